"""A process of the gateway: its report, facts from /proc, notices to systemd, kept interrupts.

A report for ``spillway status`` is a small JSON file, replaced as a whole. The process never reads
the file back. The file holds no secret.

Systemd is told that a process serves, and told again while the process does its work
(sd_notify(3)). Without a service manager nothing is told.

Python runs destructors and callbacks of the garbage collection between any two steps of a program.
An exception in one of them is printed and dropped, also the KeyboardInterrupt of a signal that came
at that moment. Without ``kept`` a command would continue as if the person had not pressed Ctrl-C.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.common import clock, files

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot, or None without such a process.

    Pid and start time together identify a process, because pids are used again (proc(5)).
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(rest[18])


@cache
def here() -> str:
    """Return what names this start of the machine and the PID namespace, in which pid and start
    time identify a process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def yield_to_clients() -> None:
    """Have the NFS server and the drain go first: what waits here costs no client anything."""
    os.nice(_NICENESS)


_NICENESS = 10

log = logging.getLogger("report")

INTERVAL_SECONDS = 1.0


class ReportFile:
    """Writes the report once a second while it changes.

    Args:
        report: returns everything but pid and time.
    """

    def __init__(self, path: Path, report: Callable[[], dict[str, Any]]) -> None:
        self._path = path
        self._report = report
        self._written: dict[str, Any] | None = None
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="report", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and write the report a last time."""
        self._end.set()
        self._thread.join()
        with suppress(OSError):
            self.write()

    def write(self) -> None:
        """Write the report if it changed."""
        with self._lock:
            report = self._report()
            if report == self._written:
                return
            who = {
                "pid": os.getpid(),
                "start_ticks": start_ticks(os.getpid()),
                "time_ns": clock.now_ns(),
            }
            text = json.dumps({**who, **report}, indent=1)
            files.replace(self._path, text + "\n", 0o644, durable=False)
            self._written = report

    def _loop(self) -> None:
        while not self._end.wait(INTERVAL_SECONDS):
            try:
                self.write()
            except OSError as exc:
                # A full disk must not end the reports for good.
                log.warning("cannot write %s: %s", self._path, exc.strerror)


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

    It does nothing without a service manager.

    Args:
        is_well: whether the process does its work.
        on_ready: called once, at the first time that it does.
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


class LoopProgress:
    """Whether a loop makes rounds.

    Args:
        count: returns how many it has made.
    """

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


_dropped = threading.Event()


@contextmanager
def kept() -> Iterator[None]:
    """Remember interrupts that are dropped meanwhile, for ``check``."""
    hook = sys.unraisablehook

    def remember(dropped: UnraisableHookArgs) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            _dropped.set()
        else:
            hook(dropped)

    sys.unraisablehook = remember
    try:
        yield
    finally:
        sys.unraisablehook = hook
        _dropped.clear()


def check() -> None:
    """Raise an interrupt that was dropped. Work that takes long calls this between its steps.

    Raises KeyboardInterrupt.
    """
    if _dropped.is_set():
        _dropped.clear()
        raise KeyboardInterrupt
