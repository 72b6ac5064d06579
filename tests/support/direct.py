"""Control socket without an NFS server: requests are answered in a start of the namespace.

Files that were open for writing are sealed first, as at every start of the server.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from gateway.common.errors import SpillwayError, Stale, errno_of
from gateway.common.types import Attr, Cred, DataFileOnDisk, SetAttr
from gateway.config.settings import Settings
from gateway.db.writer import Operation
from gateway.namespace import content, names, rename, residency, volume
from gateway.namespace.attributes import setattr_
from gateway.namespace.facade import Namespace
from gateway.namespace.names import mkdir, symlink
from gateway.rpc import control, frames
from gateway.rpc.frames import Finding, Op, RpcReply, RpcRequest
from tests.support.fake_control_socket import FakeControlSocket, encoded

TOGETHER = 64
"""The changes in one transaction: as many as the server has."""


def reclaim(namespace: Namespace) -> None:
    """Delete the bytes of files without a name. Nothing may have them open."""
    volume.reclaim(namespace._writer, namespace.files)


class Direct:
    """The namespace, opened as the NFS server opens it."""

    def __init__(self, settings: Settings) -> None:
        self._namespace = Namespace(settings)

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        """Run requests, many in a transaction. Returns the answers in their order."""
        answers: list[RpcReply] = []
        for start in range(0, len(requests), TOGETHER):
            batch = requests[start : start + TOGETHER]
            operations = [self._operation(request) for request in batch]
            self._namespace.change([operation for operation in operations if operation is not None])
            answers += map(self._answer, batch, operations)
        return answers

    def close(self) -> None:
        """Delete the bytes of the files that lost their names, since no file is open, and close the
        namespace."""
        try:
            reclaim(self._namespace)
        finally:
            self._namespace.close()

    def _operation(self, request: RpcRequest) -> Operation[Any] | None:
        """Return the change that a request asks for, or None if it asks for no change."""
        op, ino, name, ino2, name2, change, wanted, cred, _offset, _length = request
        generation = self._namespace.boot.generation
        match op:
            case Op.MKDIR:
                return Operation(mkdir, cred, ino, name, wanted, generation=generation)
            case Op.SYMLINK:
                return Operation(symlink, cred, ino, name, name2, wanted, generation=generation)
            case Op.RENAME:
                return Operation(rename.rename, cred, ino, name, ino2, name2, change)
            case Op.REMOVE:
                only = (ino2, change) if ino2 else None
                return Operation(names.remove, cred, ino, name, only)
            case Op.SETATTR if cred.uid == 0:
                return Operation(setattr_, ino, wanted)
            case Op.EVICT:
                return Operation(residency.evict, ino, change, self._found(ino))
            case Op.LOST if self._has_epoch(ino, ino2):
                return self._finding(request)
        return None

    def _has_epoch(self, ino: int, epoch: int) -> bool:
        try:
            return self._namespace.getattr(ino).epoch == epoch
        except Stale:
            return False

    def _finding(self, request: RpcRequest) -> Operation[Any]:
        """Return the change for what another process found of a file (fsal/native/lost.c)."""
        if request.offset == Finding.FOUND_AGAIN:
            return Operation(content.whole, request.ino)
        reason, is_stored = request.name.decode(), request.offset != Finding.BYTES_GONE
        return Operation(content.lost, request.ino, reason, request.change, is_stored)

    def _found(self, ino: int) -> DataFileOnDisk | None:
        """Return the data file of an inode. Without an inode the operation fails."""
        try:
            return self._namespace.files.look(ino, self._namespace.getattr(ino).epoch)
        except Stale:
            return None

    def _answer(self, request: RpcRequest, operation: Operation[Any] | None) -> RpcReply:
        try:
            if operation is None:
                return self._other(request)
            result = operation.outcome()
        except (SpillwayError, OSError) as exc:
            return RpcReply(errno_of(exc), None)
        if request.op is Op.RENAME:
            result, _removed = result
        elif request.op is Op.EVICT:
            self._namespace.files.remove(request.ino, result.epoch - 1)
        elif request.op is Op.LOST and result is None:
            result = self._namespace.getattr(request.ino)
        elif request.op is Op.LOST and result.epoch != request.ino2:
            self._set_aside(request.ino, request.ino2)
        return RpcReply(0, result if isinstance(result, Attr) else None)

    def _set_aside(self, ino: int, epoch: int) -> None:
        with suppress(FileNotFoundError):
            self._namespace.files.set_aside(ino, epoch)

    def _other(self, request: RpcRequest) -> RpcReply:
        """Answer a request that is refused, or that is no operation of a transaction."""
        ino, name, cred = request.ino, request.name, request.cred
        match request.op:
            case Op.LOOKUP:
                attr = self._namespace.lookup(ino, name, is_gateway=cred.is_gateway)
                return RpcReply(0, attr)
            case Op.INSTALL:
                done = self._namespace.install(cred, ino, name, request.name2, request.wanted)
                return RpcReply(0, done.attr)
            case Op.GETATTR:
                return RpcReply(0, self._namespace.getattr(request.ino))
            case Op.SETATTR:
                return RpcReply(errno.EPERM, None)
            case Op.LOST:
                return RpcReply(errno.ESTALE, None)
        return RpcReply(errno.ENOTSUP, None)


class DirectServer(FakeControlSocket):
    """A control socket on which ``Direct`` answers, also what other processes ask. The namespace is
    open during each request only.

    Args:
        settings: of a gateway whose NFS server does not run.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(None, settings.run_dir)  # type: ignore[arg-type]
        self._settings = settings
        self._one_at_a_time = threading.Lock()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(frames._HEAD.size):
                _, _, op, length, _, number = frames._HEAD.unpack(head)
                request = _decoded(op, stream.read(length - frames._HEAD.size))
                with self._one_at_a_time, closing(Direct(self._settings)) as direct:
                    [answer] = direct.run([request])
                if answer.errno == errno.ENOTSUP:
                    return  # as if it were no server: it has neither exports nor clients
                connection.sendall(encoded(op, number, *answer[:4]))


@contextmanager
def answering() -> Iterator[None]:
    """Let ``Direct`` answer on the control sockets that this process opens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "_reach", lambda settings, _until: Direct(settings))
        yield


def _decoded(op: int, body: bytes) -> RpcRequest:
    ino, ino2, change, offset, length, *rest = frames._BODY.unpack_from(body)
    atime_ns, mtime_ns, mask, mode, uid, gid, user, group, groups, name, name2, flags = rest
    given = (mode, uid, gid, atime_ns, mtime_ns)
    wanted = SetAttr(*(one if mask >> bit & 1 else None for bit, one in enumerate(given)))
    at = frames._BODY.size
    cred = Cred(user, group, struct.unpack_from(f"={groups}I", body, at))
    at += 4 * groups
    names = body[at : at + name], body[at + name : at + name + name2]
    cred = cred._replace(is_gateway=bool(flags & frames._FOR_GATEWAY))
    return RpcRequest(Op(op), ino, names[0], ino2, names[1], change, wanted, cred, offset, length)
