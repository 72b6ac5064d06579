"""Server's side of the control socket, as far as the hydrator asks it, without an NFS server.

It hands out what a test says that clients want, and checks what it is told: a block that is said to
be present must have the right bytes in the data file at that moment.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from gateway.common.errors import SpillwayError, errno_of
from gateway.common.types import Attr
from gateway.namespace import residency
from gateway.rpc import frames
from gateway.rpc.control import SOCKET
from gateway.rpc.frames import Op
from tests.support.namespace import Namespace
from tests.support.waiting import until

GRANULE_BYTES = 4 * 1024 * 1024


class Told(NamedTuple):
    """A request of the hydrator."""

    op: Op
    ino: int
    epoch: int
    offset: int
    length: int
    change: int


class FakeControlSocket:
    """The control socket; a context manager that listens meanwhile.

    Args:
        namespace: whose inodes are asked for.
    """

    def __init__(self, namespace: Namespace, run_dir: os.PathLike[str]) -> None:
        self._namespace = namespace
        self._run_dir = run_dir
        self._changed = threading.Condition()
        self._wanted: list[tuple[int, int, int]] = []
        """Inode, offset and length of granules that are not present."""
        self._handed: set[tuple[int, int, int]] = set()
        self._session = 0
        self._asking = 0
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self.told: list[Told] = []
        self.refused: list[Told] = []
        """What was told and not taken, because it was outdated."""
        self.wrong: list[Told] = []
        """What was said to be present and had other bytes."""
        self.expected: dict[int, bytes] = {}
        self.on_present: Callable[[Told], None] = lambda _told: None

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX)
        directory = os.open(self._run_dir, os.O_PATH | os.O_DIRECTORY)
        path = f"/proc/self/fd/{directory}/{SOCKET}"
        Path(path).unlink(missing_ok=True)
        self._listener.bind(path)
        os.close(directory)
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Go away, as a server that is killed."""
        assert self._listener is not None
        with self._changed:
            for connection in (self._listener, *self._connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._connections.clear()
            self._session = 0
            self._changed.notify_all()

    # What a test does.

    def want(self, ino: int, *offsets: int) -> None:
        """Let clients wait for the granules at some offsets; all of the file if none is given."""
        size = self._namespace.getattr(ino).size
        with self._changed:
            for offset in offsets or range(0, size, GRANULE_BYTES):
                start = offset // GRANULE_BYTES * GRANULE_BYTES
                span = (ino, start, min(GRANULE_BYTES, size - start))
                self._handed.discard(span)
                if span not in self._wanted:
                    self._wanted.append(span)
            self._changed.notify_all()

    def of(self, op: Op, ino: int | None = None) -> list[Told]:
        """Return what was told by an operation."""
        with self._changed:
            return [
                message for message in self.told if message.op is op and ino in (None, message.ino)
            ]

    def clear(self) -> None:
        """Forget the clients that wait, and what was told."""
        with self._changed:
            self._wanted.clear()
            self.told.clear()
            self.refused.clear()

    def wait(self, op: Op, ino: int, count: int = 1, seconds: float = 30.0) -> None:
        """Wait until an operation was told about a file so often."""
        until(lambda: len(self.of(op, ino)) >= count, f"{op.name} of inode {ino}", seconds)

    def lacking(self) -> int:
        """Return how many granules clients wait for."""
        with self._changed:
            return len(self._wanted)

    # The server.

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._changed:
                self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(frames._HEAD.size):
                _, _, op, length, _, number = frames._HEAD.unpack(head)
                body = stream.read(length - frames._HEAD.size)
                ino, ino2, change, offset, size, *_ = frames._BODY.unpack_from(body)
                told = Told(Op(op), ino, ino2, offset, size, change)
                connection.sendall(encoded(op, number, *self._answer(told)))

    def _answer(self, told: Told) -> tuple[int, Attr | None, int, int]:
        if told.op is Op.WANTED:
            return self._hand_out(told.ino, told.epoch / 1000)
        with self._changed:
            self.told.append(told)
        try:
            status = self._done(told)
        except SpillwayError as exc:
            status = errno_of(exc)
        if status:
            with self._changed:
                self.refused.append(told)
        return status, None, 0, 0

    def _hand_out(self, session: int, seconds: float) -> tuple[int, Attr | None, int, int]:
        with self._changed:
            if self._asking:
                return errno.EBUSY, None, 0, 0
            self._asking += 1
            try:
                if session != self._session:
                    self._session = session
                    self._handed.clear()
                self._changed.wait_for(self._next, seconds)
                span = self._next()
                if span is not None:
                    self._handed.add(span)
            finally:
                self._asking -= 1
        if span is None:
            return 0, None, 0, 0
        ino, offset, length = span
        return 0, self._namespace.getattr(ino), offset, length

    def _next(self) -> tuple[int, int, int] | None:
        return next((span for span in self._wanted if span not in self._handed), None)

    def _done(self, told: Told) -> int:
        attr = self._namespace.getattr(told.ino)
        if told.op is Op.ARRIVED:
            self._namespace.run(residency.arrived, told.ino, told.epoch, told.change)
            self._compare(told, 0, attr.size)
            return 0
        if attr.epoch != told.epoch:
            return errno.ESTALE
        if told.op is Op.PRESENT:
            end = told.offset + told.length
            if told.offset % GRANULE_BYTES or (end % GRANULE_BYTES and end != attr.size):
                return errno.EINVAL
            self._compare(told, told.offset, told.length)
            self.on_present(told)
        with self._changed:
            self._wanted = [span for span in self._wanted if not _covers(told, span)]
        return 0

    def _compare(self, told: Told, offset: int, length: int) -> None:
        expected = self.expected.get(told.ino)
        if expected is None:
            return
        with self._namespace.files.path(told.ino, told.epoch).open("rb") as file:
            data = os.pread(file.fileno(), length, offset)
        if data != expected[offset : offset + length]:
            self.wrong.append(told)


def _covers(told: Told, span: tuple[int, int, int]) -> bool:
    """Return whether an answer ends the wait for a granule."""
    ino, offset, length = span
    if ino != told.ino:
        return False
    if told.op is Op.FAILED:
        return True
    return told.offset <= offset and offset + length <= told.offset + told.length


def encoded(op: int, number: int, status: int, attr: Attr | None, start: int, size: int) -> bytes:
    """Return the frame of an answer.

    Args:
        start, size: those of a range.
    """
    head = frames._HEAD.pack(frames.MAGIC, frames.VERSION, op, frames.ANSWER_BYTES, 0, number)
    packed = bytes(frames._ATTR.size)
    if attr is not None:
        a = attr
        packed = frames._ATTR.pack(
            *(a.ino, a.generation, a.size, a.used, a.change, a.rdev, a.epoch),
            *(a.atime_ns, a.mtime_ns, a.ctime_ns, a.btime_ns),
            *(a.kind, a.mode, a.uid, a.gid, a.nlink, a.residency, a.reserved, 0),
        )
    return head + struct.pack("=iI", status, 0) + packed + frames._RANGE.pack(start, size)
