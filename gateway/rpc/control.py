"""Client of the control socket of the NFS server, which alone changes names.

While the server starts or stops, a process holds the data directory's lock: then the client waits
for the server.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Protocol

from gateway.common import clock
from gateway.common.errors import RESTART, START, ControlSocketClosed, InUse, UserError
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.rpc import frames
from gateway.rpc.frames import RpcReply, RpcRequest

SOCKET = "nfs.sock"
UNDER_WAY = 64
"""The requests that may be sent and not answered yet: as many as the server takes from one peer."""
ANSWER_SECONDS = 90.0
"""The time to wait for an answer. The server answers within 30 s while its database is away."""

_CREDENTIALS = struct.Struct("=iII")
"""struct ucred (unix(7))."""


class Remote:
    """A connection to the control socket.

    Raises OSError when no server listens.

    Args:
        seconds: the time to wait for an answer.
    """

    def __init__(self, settings: Settings, seconds: float = ANSWER_SECONDS) -> None:
        self._settings = settings
        self._seconds = seconds
        self._connect()
        self._number = 0

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        """Have requests answered, in any order. Returns the answers in the order of the requests.

        Raises ControlSocketClosed. Then it is not known which of them were done.
        """
        self._reconnect_if_closed()
        first, self._number = self._number, self._number + len(requests)
        answers: dict[int, RpcReply] = {}
        sent = 0
        try:
            while len(answers) < len(requests):
                until = min(len(requests), len(answers) + UNDER_WAY)
                self._socket.sendall(
                    b"".join(frames.encode(first + at, requests[at]) for at in range(sent, until))
                )
                sent = until
                frame = self._receive(frames.ANSWER_BYTES)
                data = self._receive(frames.data_bytes(frame))
                number, answer = frames.decode(frame, data)
                # Counted as one of ours, it would end the wait for an answer that is missing then.
                if not 0 <= number - first < sent:
                    raise frames.Rubbish(f"it answered request {number}")
                answers[number - first] = answer
        except TimeoutError:
            raise ControlSocketClosed(
                f"the NFS server gave no answer for {self._seconds:g} s"
            ) from None
        except OSError as exc:
            raise ControlSocketClosed(f"the NFS server went away: {exc.strerror}") from None
        except frames.Rubbish as exc:
            raise ControlSocketClosed(
                f"the NFS server is of another version ({exc}): restart it"
            ) from None
        return [answers[at] for at in range(len(requests))]

    def server_pid(self) -> int:
        """Return the process that listens on the control socket, of the connection as it is now."""
        credentials = self._socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        pid: int = _CREDENTIALS.unpack(credentials)[0]
        return pid

    def _connect(self) -> None:
        # The path of a data directory may be longer than the address of a socket can be.
        directory = os.open(self._settings.run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(self._seconds)
        try:
            self._socket.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except BaseException:
            self._socket.close()
            raise
        finally:
            os.close(directory)

    def _reconnect_if_closed(self) -> None:
        """Connect again if the server closed the connection while no request was under way, as it
        does after a minute without requests. Raises ControlSocketClosed."""
        # An open connection has nothing to read now.
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        if not ready.poll(0):
            return
        self._socket.close()
        try:
            self._connect()
        except OSError as exc:
            raise ControlSocketClosed(f"the NFS server went away: {exc.strerror}") from None

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _receive(self, count_bytes: int) -> bytes:
        data = b""
        while len(data) < count_bytes:
            more = self._socket.recv(count_bytes - len(data))
            if not more:
                raise ConnectionResetError(errno.ECONNRESET, "it closed the connection")
            data += more
        return data


WAIT_SECONDS = 30.0
"""The time to wait for a server that starts or stops: it seals the files that it finds open, or
finishes the requests that are under way."""
BACKGROUND_SECONDS = 5.0
"""The same for what works in the background, and tries again later by itself."""
POLL_SECONDS = 0.1
RESTART_SECONDS = 5.0
"""The time in which another ``spillway up`` may follow one that has ended."""


class ControlSocket(Protocol):
    """Connection to the control socket: has requests answered by the NFS server."""

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        """Have requests answered, in any order. Returns the answers in the order of the requests.

        Raises ControlSocketClosed. Then it is not known which of them were done.
        """

    def close(self) -> None:
        """Close the control socket."""


@contextmanager
def opened(settings: Settings, wait_seconds: float = WAIT_SECONDS) -> Iterator[ControlSocket]:
    """Open the control socket of a gateway.

    Args:
        settings: of the gateway.
        wait_seconds: the time to wait for a server that starts or stops.

    Raises:
        UserError: the server does not run, or does not answer.
    """
    with closing(_reach(settings, clock.monotonic_seconds() + wait_seconds)) as control:
        yield control


def _reach(settings: Settings, until: float) -> ControlSocket:
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
            if held.holder in (datadir.UP_PROGRAM, datadir.SERVICES):
                # Between the end of an up and the next one, no process holds the lock.
                not_before = now + RESTART_SECONDS
        time.sleep(POLL_SECONDS)


def _advice(exc: InUse) -> str:
    if exc.holder in (datadir.UP_PROGRAM, datadir.SERVICES):
        return (
            f"the NFS server does not answer: {exc.holder} (pid {exc.pid}) is starting or "
            "stopping, or does not come up: look at spillway status, and try again"
        )
    return f"another {exc.holder} (pid {exc.pid}) runs: try again when it has ended"
