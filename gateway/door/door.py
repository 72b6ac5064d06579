"""Opens the door: through the NFS server while it runs, and in its place while it does not.

Both hold the data directory's lock while they change names (the server through ``spillway up``), so
there are never two. If the lock is held and no process answers, the server is starting or stopping.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Protocol

from gateway import clock, datadir, port
from gateway.db.engine import Database
from gateway.db.opening import explained
from gateway.door.direct import Direct
from gateway.door.frames import Answer, Request
from gateway.door.remote import Remote
from gateway.errors import RESTART, InUse, UserError
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

    Parameters: wait_seconds, the time to wait for a server that starts or stops. Raises UserError
    when it does not answer, or when the namespace cannot be opened in its place; OSError.
    """
    with ExitStack() as stack:
        door = _reach(settings, stack, clock.monotonic_seconds() + wait_seconds)
        with closing(door):
            yield door


def _reach(settings: Settings, stack: ExitStack, until: float) -> Door:
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
        # The server, which runs as the owner, could not use the files that another user leaves.
        datadir.require_ours(settings)
        now = clock.monotonic_seconds()
        if now >= min(not_before, until):
            try:
                stack.enter_context(datadir.locked(settings, datadir.COMMAND))
                return _direct(settings)
            except InUse as exc:
                if now >= until:
                    raise UserError(_advice(exc)) from None
                if exc.holder in (datadir.UP, datadir.SERVICES):
                    # The next up must find the lock free.
                    not_before = now + RESTART_SECONDS
        time.sleep(POLL_SECONDS)


def _advice(exc: InUse) -> str:
    if exc.holder in (datadir.UP, datadir.SERVICES):
        return (
            f"the NFS server does not answer: {exc.holder} (pid {exc.pid}) is starting or "
            "stopping, or does not come up: look at spillway status, and try again"
        )
    return f"another {exc.holder} (pid {exc.pid}) runs: try again when it has ended"


def _direct(settings: Settings) -> Door:
    if not datadir.await_leftovers(settings):
        raise UserError(
            "processes of a spillway up that was killed still run: try again, or kill them: "
            "spillway status shows their pids"
        )
    refused = port.bind_error(settings)
    if refused is not None and refused.errno == errno.EADDRINUSE:
        number = settings.nfs.port
        raise UserError(
            f"a server listens on port {number}, and may be an NFS server that up.json does not "
            f"name: stop it (ss -ltnp 'sport = :{number}')"
        )
    with explained(Database(settings.database_url)):
        return Direct(settings)
