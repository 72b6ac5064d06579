"""Client of NFSv4.0 without a cache: each question goes to the server."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

CREATE, LINK, READLINK, REMOVE, RENAME, SAVEFH, SETATTR = 6, 11, 27, 28, 29, 32, 34
GETATTR, GETFH, LOOKUP, PUTFH, PUTROOTFH, READDIR = 9, 10, 15, 22, 24, 26
CLOSE, OPEN, OPEN_CONFIRM, READ, RENEW = 4, 18, 20, 25, 30
SETCLIENTID, SETCLIENTID_CONFIRM, WRITE = 35, 36, 38
OK, NOENT, IO, DENIED, ROFS, STALE = 0, 2, 5, 13, 30, 70
NOTSUPP, DELAY, GRACE = 10004, 10008, 10013

AGAIN_SECONDS = 0.02
"""The pause of a client that was told to ask again."""
REGULAR = 1
"""The kind of a regular file."""
_DIRECTORY = 2
_TYPE, _CHANGE, _SIZE, _FILEID, _MODE, _NUMLINKS, _MTIME = 1, 3, 4, 20, 33, 35, 54
_ATTRIBUTES = struct.pack(
    ">III", 2, 1 << _TYPE | 1 << _CHANGE | 1 << _SIZE | 1 << _FILEID, 1 << (_NUMLINKS - 32)
)
_FOUND = struct.Struct(">IQQQI")


class Status(Exception):
    """An answer that is not NFS4_OK."""

    def __init__(self, number: int) -> None:
        super().__init__(f"NFS4ERR {number}")
        self.number = number


class Attributes(NamedTuple):
    kind: int
    change: int
    size: int
    fileid: int
    names: int


def opaque(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + b"\0" * (-len(data) % 4)


class Reply:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def unpack(self, form: str) -> tuple[int, ...]:
        values: tuple[int, ...] = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return values

    def number(self) -> int:
        return self.unpack("I")[0]

    def opaque(self) -> bytes:
        length = self.number()
        data = self._data[self._at : self._at + length]
        self._at += length + -length % 4
        return data

    def attributes(self) -> Attributes:
        self.unpack(f"{self.number()}I")
        return Attributes(*_FOUND.unpack(self.opaque()))


class File:
    """A file that a client has open, and opens again."""

    def __init__(
        self, client: Client, directory: bytes, name: str, client_id: bytes, reads: bool
    ) -> None:
        self._client = client
        self.where = directory, name
        """The directory, and the name there that ``open`` opens."""
        self.reads = reads
        """Whether ``open`` asks for reading only."""
        self.verifier = b""
        """Eight bytes: ``open`` makes the file exclusively, or finds the one that it made so."""
        self._client_id = client_id
        self._seqid = 0
        """The seqid of the owner of the open."""
        self.handle = b""
        self._state = b""
        self._is_open = False

    def open(self, empties: bool = False) -> None:
        """Open the file, also while it is open. Raises Status, also for a delay.

        Args:
            empties: whether the OPEN sets the size to 0.
        """
        directory, name = self.where
        access = 1 if self.reads else 3
        how = struct.pack(">III", self._seqid, access, 0) + self._client_id + opaque(b"owner")
        if self.reads:
            how += struct.pack(">I", 0)
        elif self.verifier:
            how += struct.pack(">II", 1, 2) + self.verifier
        else:
            how += struct.pack(">II", 1, 0)  # unchecked
            how += struct.pack(">II", 1, 1 << _SIZE) if empties else struct.pack(">I", 0)
            how += opaque(bytes(8) if empties else b"")
        how += struct.pack(">I", 0) + opaque(name.encode())
        # The server would take the same sequence number again for a repetition.
        try:
            reply = self._client.call(putfh(directory), op(OPEN) + how, op(GETFH), again=(GRACE,))
        finally:
            self._seqid += 1
        reply.unpack("IIII")
        self._state = struct.pack(">4I", *reply.unpack("4I"))
        reply.unpack("IQQ")
        must_confirm = reply.number() & 2
        reply.unpack(f"{reply.number()}I")
        reply.unpack("III")
        self.handle = reply.opaque()
        if must_confirm:
            confirm = op(OPEN_CONFIRM) + self._state + struct.pack(">I", self._seqid)
            reply = self._client.call(putfh(self.handle), confirm)
            self._seqid += 1
            reply.unpack("IIII")
            self._state = struct.pack(">4I", *reply.unpack("4I"))
        self._is_open = True

    def read(self) -> bytes:
        """Return the first bytes of the file. Raises Status."""
        return self._client.read(self.handle, 0, 4096, self._state)

    def content(self, directory: bytes, name: str) -> bytes:
        """Open the file by another name, read its first bytes and close it. Raises Status."""
        self.where = directory, name
        self.open()
        try:
            return self.read()
        finally:
            self.until_closed()

    def write_operation(self, data: bytes, offset: int = 0) -> bytes:
        """Return a durable WRITE, for ``close``.

        Args:
            offset: offset in bytes.
        """
        return op(WRITE) + self._state + struct.pack(">QI", offset, 2) + opaque(data)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Write bytes, durably. Raises Status.

        Args:
            offset: offset in bytes.
        """
        self._client.call(putfh(self.handle), self.write_operation(data, offset))

    def close_operation(self, state: bytes | None = None) -> bytes:
        """Return a CLOSE.

        Args:
            state: another stateid than that of the open.
        """
        return op(CLOSE) + struct.pack(">I", self._seqid) + (state or self._state)

    def close(self, *before: bytes) -> None:
        """Ask once to close the file, and renew the lease. The file stays open after an error.

        Raises Status, also for a delay.

        Args:
            before: operations of the same request.
        """
        try:
            self._client.call(putfh(self.handle), *before, self.close_operation(), again=(GRACE,))
        except Status:
            self._client.call(op(RENEW) + self._client_id)
            raise
        self._seqid += 1
        self._is_open = False

    def until_closed(self) -> None:
        """Close the file unless it is closed; ask again after each delay. Raises Status."""
        while self._is_open:
            try:
                self.close()
            except Status as exc:
                if exc.number != DELAY:
                    raise
                time.sleep(AGAIN_SECONDS)


class Client:
    """A connection. A context manager.

    Args:
        port: on loopback.
        source: the address that it comes from.
        name: it gives itself, or None for a new one for each file.
    """

    minor_version = 0

    def __init__(self, port: int, source: str = "127.0.0.1", name: bytes | None = None) -> None:
        self._socket = socket.create_connection(
            ("127.0.0.1", port), timeout=30, source_address=(source, 0)
        )
        self._name = name
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._xid = 0
        self.uid = 0
        """The user, and the group, of the calls from now on."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def handle(self, *names: str) -> bytes:
        """Return the handle of a path. Raises Status."""
        steps = [lookup(name) for name in names]
        reply = self.call(op(PUTROOTFH), *steps, op(GETFH))
        for _ in range(len(names) + 1):
            reply.unpack("II")
        reply.unpack("II")
        return reply.opaque()

    def lookup(self, directory: bytes, name: str) -> Attributes:
        """Return the attributes of what a name stands for. Raises Status."""
        reply = self.call(putfh(directory), lookup(name), op(GETATTR) + _ATTRIBUTES)
        reply.unpack("IIIIII")
        return reply.attributes()

    def is_absent(self, directory: bytes, name: str) -> bool:
        """Return whether nothing has a name. Raises Status."""
        try:
            self.lookup(directory, name)
        except Status as exc:
            if exc.number == NOENT:
                return True
            raise
        return False

    def getattr(self, handle: bytes) -> Attributes:
        """Return the attributes of a handle. Raises Status."""
        reply = self.call(putfh(handle), op(GETATTR) + _ATTRIBUTES)
        reply.unpack("IIII")
        return reply.attributes()

    def read(self, handle: bytes, offset: int, count: int, state: bytes = bytes(16)) -> bytes:
        """Return bytes of a file. Raises Status.

        Args:
            state: state of an open, if there is one.
        """
        asked = op(READ) + state + struct.pack(">QI", offset, count)
        reply = self.call(putfh(handle), asked)
        reply.unpack("IIIII")
        return reply.opaque()

    def names(self, directory: bytes) -> list[str]:
        """Return the whole listing of a directory. Raises Status."""
        names: list[str] = []
        cookie, verifier, is_end = 0, b"\0" * 8, 0
        while not is_end:
            listing = struct.pack(">Q8sII", cookie, verifier, 8192, 32768) + struct.pack(">I", 0)
            reply = self.call(putfh(directory), op(READDIR) + listing)
            reply.unpack("IIII")
            high, low = reply.unpack("II")
            verifier = struct.pack(">II", high, low)
            while reply.number():
                [cookie] = reply.unpack("Q")
                names.append(reply.opaque().decode())
                reply.unpack(f"{reply.number()}I")
                reply.opaque()
            is_end = reply.number()
        return names

    def mkdir(self, directory: bytes, name: str, mode: int | None = None) -> None:
        """Make a directory. Raises Status.

        Args:
            mode: None for that of the server.
        """
        kind = op(CREATE) + struct.pack(">I", _DIRECTORY) + opaque(name.encode())
        attributes = struct.pack(">II", 0, 0)
        if mode is not None:
            attributes = struct.pack(">III", 2, 0, 1 << (_MODE - 32))
            attributes += opaque(struct.pack(">I", mode))
        self.call(putfh(directory), kind + attributes)

    def rename(self, directory: bytes, old: str, new: str, into: bytes | None = None) -> None:
        """Rename. Raises Status.

        Args:
            into: the directory of the new name, if it is another one.
        """
        names = opaque(old.encode()) + opaque(new.encode())
        self.call(putfh(directory), op(SAVEFH), putfh(into or directory), op(RENAME) + names)

    def truncate(self, file: bytes, size: int) -> None:
        """Set size (bytes) and mtime (1970) of a file. Raises Status, also for a delay."""
        attributes = struct.pack(">III", 2, 1 << _SIZE, 1 << (_MTIME - 32))
        attributes += opaque(struct.pack(">QIqI", size, 1, 0, 0))
        self._ask((putfh(file), op(SETATTR) + bytes(16) + attributes))

    def link(self, file: bytes, directory: bytes, name: str) -> None:
        """Give a file another name. Raises Status."""
        link = op(LINK) + opaque(name.encode())
        self.call(putfh(file), op(SAVEFH), putfh(directory), link)

    def remove(self, directory: bytes, name: str) -> None:
        """Remove a name from a directory. Raises Status."""
        self.call(putfh(directory), op(REMOVE) + opaque(name.encode()))

    def read_once(self, handle: bytes, offset: int, count: int) -> bytes:
        """Read without an open file.

        Args:
            offset, count: in bytes.

        Raises:
            Status: also for a delay.
        """
        asked = op(READ) + bytes(16) + struct.pack(">QI", offset, count)
        reply = self._ask((putfh(handle), asked))
        reply.unpack("IIIII")
        return reply.opaque()

    def file(self, directory: bytes, name: str, reads: bool = False) -> File:
        """Return a file that is not open yet, of a client that is not known yet.

        Raises Status.

        Args:
            reads: whether the file is there and is opened for reading only.
        """
        program = struct.pack(">I", 0) + opaque(b"tcp") + opaque(b"127.0.0.1.0.0")
        asked = os.urandom(8) + opaque(self._name or os.urandom(8)) + program + struct.pack(">I", 0)
        reply = self.call(op(SETCLIENTID) + asked)
        reply.unpack("II")
        client = struct.pack(">QQ", *reply.unpack("QQ"))  # with the verifier
        self.call(op(SETCLIENTID_CONFIRM) + client)
        return File(self, directory, name, client[:8], reads)

    def open(self, directory: bytes, name: str, empties: bool = False, reads: bool = False) -> File:
        """Open a file, which is made if there is none, as a client that is not known yet.

        Raises Status, also for a delay.

        Args:
            empties: whether the OPEN sets the size to 0.
            reads: as of ``file``.
        """
        file = self.file(directory, name, reads)
        file.open(empties)
        return file

    @contextmanager
    def opened(
        self, directory: bytes, name: str, empties: bool = False, reads: bool = False
    ) -> Iterator[File]:
        """Open a file, and close it at the end. Parameters and errors as of ``open``."""
        file = self.open(directory, name, empties, reads)
        try:
            yield file
        finally:
            file.until_closed()

    def call(self, *operations: bytes, again: Sequence[int] = (DELAY, GRACE)) -> Reply:
        """Have operations done.

        Raises Status.

        Args:
            again: the answers after which to ask again.
        """
        while True:
            try:
                return self._ask(operations)
            except Status as exc:
                if exc.number not in again:
                    raise
            time.sleep(AGAIN_SECONDS)

    def _ask(self, operations: Sequence[bytes]) -> Reply:
        self.send(*operations)
        return self.answer()

    def send(self, *operations: bytes) -> None:
        """Ask for operations, whose answer ``answer`` returns."""
        self._xid += 1
        cred = struct.pack(">I", 0) + opaque(b"test") + struct.pack(">III", self.uid, self.uid, 0)
        call = struct.pack(">IIIIII", self._xid, 0, 2, 100003, 4, 1)
        call += struct.pack(">I", 1) + opaque(cred) + struct.pack(">II", 0, 0)
        call += opaque(b"") + struct.pack(">II", self.minor_version, len(operations))
        call += b"".join(operations)
        self._socket.sendall(struct.pack(">I", 1 << 31 | len(call)) + call)

    def answer(self) -> Reply:
        """Return the answer to the last ``send``. Raises Status."""
        data, is_last = b"", 0
        while not is_last:
            [mark] = struct.unpack(">I", self._receive(4))
            data += self._receive(mark & 0x7FFFFFFF)
            is_last = mark >> 31
        reply = Reply(data)
        _xid, _kind, refused, _flavor, _length, bad = reply.unpack("IIIIII")
        assert (refused, bad) == (0, 0)
        status = reply.number()
        reply.opaque()
        reply.number()
        if status != OK:
            raise Status(status)
        return reply

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionResetError("the NFS server closed the connection")
            data += more
        return data


def op(number: int) -> bytes:
    return struct.pack(">I", number)


def lookup(name: str) -> bytes:
    return op(LOOKUP) + opaque(name.encode())


def putfh(handle: bytes) -> bytes:
    return op(PUTFH) + opaque(handle)
