"""Tells systemd that a process serves, and tells it again while the process does its work.

Without a service manager nothing is told. Source: sd_notify(3).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from gateway import clock

READY = "READY=1"
ALIVE = "WATCHDOG=1"
PROBE_SECONDS = 0.2
STALL_SECONDS = 900.0
"""A loop that has made no round for so long does not work any more. The longest rounds, which read
the rows of all files, take minutes."""


def is_asked() -> bool:
    """Return whether a service manager wants to be told."""
    return "NOTIFY_SOCKET" in os.environ


def tell(message: str) -> None:
    """Send a message to the service manager. One that does not listen is not waited for."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        # A leading @ stands for the abstract namespace.
        sender.sendto(message.encode(), address.replace("@", "\0", 1))


def keep_telling(is_well: Callable[[], bool], on_ready: Callable[[], None]) -> None:
    """Tell in a thread of its own that the process is ready, and then that it is alive, as often as
    the watchdog of the service wants it (WATCHDOG_USEC).

    Parameters: is_well, whether the process does its work; on_ready, called once, at the first time
    that it does. It does nothing without a service manager.
    """
    if is_asked():
        threading.Thread(target=_tell, args=(is_well, on_ready), name="notify", daemon=True).start()


def _tell(is_well: Callable[[], bool], on_ready: Callable[[], None]) -> None:
    pause = threading.Event()
    while not is_well():
        pause.wait(PROBE_SECONDS)
    on_ready()
    tell(READY)
    interval_seconds = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6 / 3
    while interval_seconds > 0:
        pause.wait(interval_seconds)
        if is_well():
            tell(ALIVE)


class Rounds:
    """Whether a loop makes rounds. Parameters: count, which returns how many it has made."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._seen = -1
        self._since = 0.0

    def go_on(self) -> bool:
        """Return whether the loop has made a round in the last STALL_SECONDS."""
        now, seen = clock.monotonic_seconds(), self._count()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since < STALL_SECONDS
