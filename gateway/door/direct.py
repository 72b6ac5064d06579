"""Runs requests of the door while no NFS server runs, in a start of the namespace of its own.

The caller holds the data directory's lock. Files that were open for writing are sealed first, as at
every start of the server. Their clients then continue as after a restart.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from gateway.db.writer import Operation
from gateway.door.frames import Answer, Op, Request
from gateway.errors import SpillwayError, Stale, errno_of
from gateway.namespace import create, remove, rename, residency
from gateway.namespace.facade import Namespace
from gateway.namespace.setattr import setattr_
from gateway.settings import Settings
from gateway.types import Attr, Found

TOGETHER = 64
"""The changes in one transaction: as many as the server has."""


class Direct:
    """The namespace, opened as the NFS server opens it.

    Parameters: settings. Raises SchemaError, IdentityError, AnotherServer, TryAgain.
    """

    def __init__(self, settings: Settings) -> None:
        namespace = None
        try:
            with _uninterrupted():
                namespace = Namespace(settings)
        except KeyboardInterrupt:
            # The interrupt came meanwhile. The caller gets nothing that it could close.
            if namespace is not None:
                namespace.close()
            raise
        self._namespace = namespace

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Run requests, many in a transaction. Returns the answers in their order.

        Raises KeyboardInterrupt between two transactions.
        """
        remaining = iter(requests)
        answers: list[Answer] = []
        while batch := list(islice(remaining, TOGETHER)):
            with _uninterrupted():
                operations = [self._operation(request) for request in batch]
                self._namespace.change([one for one in operations if one is not None])
                answers += map(self._answer, batch, operations)
        return answers

    def close(self) -> None:
        """Delete the bytes of the files that lost their names, since no file is open, and close the
        namespace."""
        with _uninterrupted():
            try:
                self._namespace.reclaim_all()
            finally:
                self._namespace.close()

    def _operation(self, request: Request) -> Operation[Any] | None:
        """Return the change that a request asks for, or None if it asks for no change."""
        op, ino, name, ino2, name2, change, wanted, cred, _offset, _length = request
        generation = self._namespace.boot.generation
        match op:
            case Op.MKDIR:
                return Operation(create.mkdir, cred, ino, name, wanted, generation=generation)
            case Op.SYMLINK:
                return Operation(
                    create.symlink, cred, ino, name, name2, wanted, generation=generation
                )
            case Op.LINK:
                return Operation(create.link, cred, ino2, ino, name)
            case Op.RENAME:
                return Operation(rename.rename, cred, ino, name, ino2, name2, change)
            case Op.REMOVE:
                only = (ino2, change) if ino2 else None
                return Operation(remove.remove, cred, ino, name, only)
            case Op.SETATTR if cred.uid == 0:
                return Operation(setattr_, ino, wanted)
            case Op.EVICT:
                return Operation(residency.evict, ino, change, self._found(ino))
        return None

    def _found(self, ino: int) -> Found | None:
        """Return the data file of an inode. Without an inode the operation fails."""
        try:
            return self._namespace.files.look(ino, self._namespace.getattr(ino).epoch)
        except Stale:
            return None

    def _answer(self, request: Request, operation: Operation[Any] | None) -> Answer:
        try:
            if operation is None:
                return self._other(request)
            result = operation.outcome()
        except (SpillwayError, OSError) as exc:
            return Answer(errno_of(exc), None)
        if request.op is Op.RENAME:
            result, _removed = result
        elif request.op is Op.EVICT:
            self._namespace.files.remove(request.ino, result.epoch - 1)
        return Answer(0, result if isinstance(result, Attr) else None)

    def _other(self, request: Request) -> Answer:
        """Answer a request that is refused, or that is no operation of a transaction."""
        ino, name, cred = request.ino, request.name, request.cred
        match request.op:
            case Op.LOOKUP:
                found = self._namespace.lookup(ino, name, is_gateway=cred.is_gateway)
                return Answer(0, found)
            case Op.INSTALL:
                done = self._namespace.install(cred, ino, name, request.name2, request.wanted)
                return Answer(0, done.attr)
            case Op.GETATTR:
                return Answer(0, self._namespace.getattr(request.ino))
            case Op.INVALIDATE:
                return Answer(0, None)  # no process has anything in memory
            case Op.SETATTR:
                return Answer(errno.EPERM, None)
        return Answer(errno.ENOTSUP, None)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold SIGINT back. Inside the writer it would be the error of a change, which may be done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
