"""Opens the door of the NFS server, which alone changes names.

While it starts or stops, a process holds the data directory's lock: then it is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol

from gateway import clock, datadir
from gateway.door.frames import Answer, Request
from gateway.door.remote import Remote
from gateway.errors import RESTART, START, InUse, UserError
from gateway.settings import Settings

WAIT_SECONDS = 30.0
"""The time to wait for a server that starts or stops: it seals the files that it finds open, or
finishes the requests that are under way."""
BACKGROUND_SECONDS = 5.0
"""The same for what works in the background, and tries again later by itself."""
POLL_SECONDS = 0.1
RESTART_SECONDS = 5.0
"""The time in which another ``spillway up`` may follow one that has ended."""


class Door(Protocol):
    """Answers requests."""

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Have requests answered, in any order. Returns the answers in the order of the requests.

        Raises DoorClosed. Then it is not known which of them were done.
        """

    def close(self) -> None:
        """Close the door."""


@contextmanager
def opened(settings: Settings, wait_seconds: float = WAIT_SECONDS) -> Iterator[Door]:
    """Open the door of a gateway.

    Args:
        settings: of the gateway.
        wait_seconds: the time to wait for a server that starts or stops.

    Raises:
        UserError: the server does not run, or does not answer.
    """
    with closing(_reach(settings, clock.monotonic_seconds() + wait_seconds)) as door:
        yield door


def _reach(settings: Settings, until: float) -> Door:
    not_before = 0.0
    while True:
        try:
            return Remote(settings)
        except (FileNotFoundError, ConnectionRefusedError):
            pass
        except OSError as exc:
            raise UserError(
                f"cannot reach the NFS server in {settings.run_dir}: {exc.strerror or exc}: run as "
                f"root or as the user that owns it; if it does not answer: {RESTART}"
            ) from None
        now = clock.monotonic_seconds()
        if now >= min(not_before, until):
            held = datadir.in_use(settings)
            if held is None:
                raise UserError(f"the NFS server does not run: start it: {START}")
            if now >= until:
                raise UserError(_advice(held))
            if held.holder in (datadir.UP, datadir.SERVICES):
                # Between the end of an up and the next one, no process holds the lock.
                not_before = now + RESTART_SECONDS
        time.sleep(POLL_SECONDS)


def _advice(exc: InUse) -> str:
    if exc.holder in (datadir.UP, datadir.SERVICES):
        return (
            f"the NFS server does not answer: {exc.holder} (pid {exc.pid}) is starting or "
            "stopping, or does not come up: look at spillway status, and try again"
        )
    return f"another {exc.holder} (pid {exc.pid}) runs: try again when it has ended"
