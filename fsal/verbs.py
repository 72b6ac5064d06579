"""Operations of the boundary: each unpacks a request, calls the namespace, and fills the reply."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fsal import bridge
from fsal.bridge import (
    CHANGES,
    OPERATIONS,
    client_of,
    cred_of,
    name2_of,
    name_of,
    put_attr,
    put_directories,
    put_removed,
    setattr_of,
)
from gateway.common.errors import TooBig
from gateway.common.types import Attr, DataFileOnDisk, Residency, Sealed
from gateway.db.latest_links import HeldByLatestLink
from gateway.db.writer import Operation
from gateway.namespace import content, names, rename, residency
from gateway.namespace.attributes import setattr_
from gateway.namespace.facade import Namespace
from gateway.namespace.names_log import LoggedChange, NamesLog
from gateway.namespace.server_reports import DiskTrouble, Level, SharedNames, Space, UsageReport


def put_buffer(request: Any, reply: Any, data: bytes) -> None:
    """Copy data into C's buffer. Raises TooBig when it does not fit; the reply has the length."""
    reply.length = len(data)
    if len(data) > request.buffer_bytes:
        raise TooBig
    ctypes.memmove(request.buffer, data, len(data))


T = TypeVar("T")

Change = tuple[Sequence[Operation[Any]], Callable[[Any, Any], None]]
"""Operations to run, and a function that then fills the reply or raises what they raised."""


class Verbs:
    """The operations of one namespace. Method names are those of ``bridge.OPERATIONS``.

    A method of ``bridge.CHANGES`` only prepares a change: ``batch`` runs many changes in one
    transaction.
    """

    def __init__(
        self,
        namespace: Namespace,
        space: Space,
        trouble: DiskTrouble,
        shared: SharedNames,
        names: NamesLog,
        used: UsageReport,
    ) -> None:
        self._ns = namespace
        self._names = names
        self._shared = shared
        self._trouble = trouble
        self._used = used
        self._generation = namespace.boot.generation
        self._space = space
        self.notes_opens = "open" in names.noted
        """Whether C tells of each open."""

    def lookup(self, request: Any, reply: Any) -> None:
        is_gateway = bool(request.flags & bridge.FOR_GATEWAY)
        attr = self._ns.lookup(request.ino, name_of(request), is_gateway=is_gateway)
        put_attr(reply.attr, attr)

    def lookup_parent(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.lookup_parent(request.ino))

    def getattr(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.getattr(request.ino))

    def readdir(self, request: Any, reply: Any) -> None:
        most = request.entries_max
        dirents = self._ns.readdir(request.ino, request.cookie, most + 1)
        offset = 0
        entries = request.entries
        for index, dirent in enumerate(dirents[:most]):
            name = dirent.name + b"\0"
            ctypes.memmove(request.buffer + offset, name, len(name))
            entry = entries[index]
            entry.cookie = dirent.cookie
            entry.name_offset = offset
            put_attr(entry.attr, dirent.attr)
            offset += len(name)
        reply.count = min(len(dirents), most)
        reply.eof = int(len(dirents) <= most)

    def readlink(self, request: Any, reply: Any) -> None:
        put_buffer(request, reply, self._ns.readlink(request.ino))

    def verifier(self, request: Any, reply: Any) -> None:
        verifier = self._ns.verifier(request.ino)
        reply.count = int(verifier is not None)
        if verifier is not None:
            ctypes.memmove(reply.verifier, verifier, 8)

    def create(self, request: Any) -> Change:
        verifier = bytes(request.verifier) if request.flags & bridge.HAS_VERIFIER else None
        return self._name(
            "create",
            request,
            Operation(
                names.create,
                cred_of(request),
                request.ino,
                name_of(request),
                setattr_of(request),
                generation=self._generation,
                verifier=verifier,
                for_writing=bool(request.flags & bridge.FOR_WRITING),
            ),
        )

    def mkdir(self, request: Any) -> Change:
        return self._name(
            "mkdir",
            request,
            Operation(
                names.mkdir,
                cred_of(request),
                request.ino,
                name_of(request),
                setattr_of(request),
                generation=self._generation,
            ),
        )

    def symlink(self, request: Any) -> Change:
        return self._name(
            "symlink",
            request,
            Operation(
                names.symlink,
                cred_of(request),
                request.ino,
                name_of(request),
                name2_of(request),
                setattr_of(request),
                generation=self._generation,
            ),
        )

    def mknod(self, request: Any) -> Change:
        return self._name(
            "mknod",
            request,
            Operation(
                names.mknod,
                cred_of(request),
                request.ino,
                name_of(request),
                request.kind,
                request.rdev,
                setattr_of(request),
                generation=self._generation,
            ),
        )

    def link(self, request: Any) -> Change:
        return self._name(
            "link",
            request,
            Operation(names.link, cred_of(request), request.ino2, request.ino, name_of(request)),
        )

    def rename(self, request: Any) -> Change:
        operation = Operation(
            rename.rename,
            cred_of(request),
            request.ino,
            name_of(request),
            request.ino2,
            name2_of(request),
            request.cookie,
            only=request.ino3,
        )
        noted = self._noted("rename", request, operation)

        def finish(request: Any, reply: Any) -> None:
            attr, removed = operation.outcome()
            self._names.write(noted, is_replaced=removed is not None)
            put_attr(reply.attr, attr)
            put_directories(reply, request, operation.directories)
            put_removed(reply.removed, removed)

        return [operation], finish

    def remove(self, request: Any) -> Change:
        only = (request.ino2, request.cookie) if request.ino2 else None
        operation = Operation(names.remove, cred_of(request), request.ino, name_of(request), only)
        noted = self._noted("remove", request, operation)

        def finish(request: Any, reply: Any) -> None:
            removed = operation.outcome()
            self._names.write(noted)
            put_directories(reply, request, operation.directories)
            put_removed(reply.removed, removed)

        return [operation], finish

    def setattr(self, request: Any) -> Change:
        loses = bool(request.flags & bridge.WITHOUT_PRIVILEGES)
        return self._make(
            Operation(setattr_, request.ino, setattr_of(request), loses_privileges=loses)
        )

    def setxattr(self, request: Any) -> Change:
        return self._make(
            Operation(
                names.setxattr,
                cred_of(request),
                request.ino,
                name_of(request),
                name2_of(request),
                request.kind,
            )
        )

    def removexattr(self, request: Any) -> Change:
        return self._make(
            Operation(names.removexattr, cred_of(request), request.ino, name_of(request))
        )

    def open_write(self, request: Any) -> Change:
        is_emptied = bool(request.flags & bridge.EMPTIED)
        return self._make(Operation(content.open_write, request.ino, is_emptied))

    def evict(self, request: Any) -> Change:
        is_missing = bool(request.flags & bridge.NO_DATA_FILE)
        disk = (
            None if is_missing else DataFileOnDisk(request.ino2, ctypes.c_int64(request.ino3).value)
        )
        return self._make(Operation(residency.evict, request.ino, request.cookie, disk))

    def arrived(self, request: Any) -> Change:
        return self._make(Operation(residency.arrived, request.ino, request.ino2, request.cookie))

    def lost(self, request: Any) -> Change:
        reason = name_of(request).decode("utf-8", "replace")
        is_stored = not request.flags & bridge.NOT_STORED
        operation = Operation(content.lost, request.ino, reason, request.cookie, is_stored)

        def finish(request: Any, reply: Any) -> None:
            attr = operation.outcome()
            put_attr(reply.attr, attr)
            if attr.residency == Residency.ABSENT:
                self._trouble.lost(request.ino, reason)

        return [operation], finish

    def note_reads(self, request: Any) -> Change:
        reads = (bridge.ReadStruct * request.entries_max).from_address(request.buffer)
        operation = Operation(residency.note_reads, [(read.ino, read.read_ns) for read in reads])

        def finish(_request: Any, _reply: Any) -> None:
            operation.outcome()

        return [operation], finish

    def seal(self, request: Any) -> Change:
        waiting = request.seals[: request.entries_max]
        operations = [
            Operation(
                content.seal,
                item.ino,
                Sealed(item.data.size, item.data.used, item.data.mtime_ns, item.data.writes),
                self._ns.settle_ns,
                self._ns.acknowledge,
            )
            for item in waiting
        ]

        def answer(item: Any, attr: Attr) -> int:
            put_attr(item.attr, attr)
            return 0

        return self._of_many("seal", waiting, operations, answer)

    def reclaim(self, request: Any) -> Change:
        waiting = request.orphans[: request.entries_max]
        operations = [Operation(names.reclaim, orphan.ino) for orphan in waiting]

        def answer(_orphan: Any, is_gone: bool) -> int:
            return 0 if is_gone else errno.ENOENT

        return self._of_many("reclaim", waiting, operations, answer)

    def damage(self, request: Any) -> Change:
        reason = name_of(request).decode("utf-8", "replace") if request.name_len else ""
        ino = request.ino
        operation = (
            Operation(content.damaged, ino, reason) if reason else Operation(content.whole, ino)
        )

        def finish(_request: Any, _reply: Any) -> None:
            operation.outcome()

        return [operation], finish

    def _of_many(
        self,
        name: str,
        parts: Sequence[Any],
        operations: list[Operation[T]],
        answer: Callable[[Any, T], int],
    ) -> Change:
        """Prepare a change of many inodes, each with a status of its own."""

        def finish(_request: Any, _reply: Any) -> None:
            for part, operation in zip(parts, operations, strict=True):
                try:
                    part.status = answer(part, operation.outcome())
                except BaseException as exc:
                    part.status = bridge.status_of(name, exc)

        return operations, finish

    def _noted(self, verb: str, request: Any, operation: Operation[Any]) -> LoggedChange | None:
        """Have the log of names note a change of the request's name, or of both its names."""
        if verb not in self._names.noted:
            return None
        names = [(request.ino, name_of(request))]
        if verb == "rename":
            names.append((request.ino2, name2_of(request)))
        noted = LoggedChange(verb, client_of(request), request.uid, names)
        operation.before = noted.find
        return noted

    def _name(self, verb: str, request: Any, operation: Operation[Attr]) -> Change:
        """Prepare a change that makes a name, and answers as those of ``_make``."""
        return self._make(operation, self._noted(verb, request, operation))

    def _make(self, operation: Operation[Attr], noted: LoggedChange | None = None) -> Change:
        """Prepare a change that answers with an inode's attributes, and those of a directory."""

        def finish(request: Any, reply: Any) -> None:
            put_attr(reply.attr, operation.outcome())
            self._names.write(noted)
            put_directories(reply, request, operation.directories)

        return [operation], finish

    def getxattr(self, request: Any, reply: Any) -> None:
        value = self._ns.getxattr(cred_of(request), request.ino, name_of(request))
        put_buffer(request, reply, value)

    def listxattr(self, request: Any, reply: Any) -> None:
        names = self._ns.listxattr(request.ino)
        put_buffer(request, reply, b"".join(b"user." + name + b"\0" for name in names))

    def damages(self, request: Any, reply: Any) -> None:
        damages = self._ns.damages(request.cookie, request.entries_max)
        put_buffer(request, reply, b"".join(ino.to_bytes(8, "little") for ino in damages))
        reply.count = len(damages)

    def acknowledged(self, request: Any, reply: Any) -> None:
        reply.count = self._ns.acknowledged(request.ino)

    def note_open(self, request: Any, _reply: Any) -> None:
        writes = bool(request.flags & bridge.FOR_WRITING)
        verb = "open to write" if writes else "open to read"
        path = self._ns.path_of(request.ino)
        self._names.write(LoggedChange(verb, client_of(request), request.uid, (), [path]))

    def space(self, request: Any, reply: Any) -> None:
        space, used = request.space, request.space.used
        # First: what follows may wait for the database, and then the threads of clients do too.
        self._used.take(used.threads, used.descriptors, used.descriptors_most)
        self._ns.keep_mark()
        self._trouble.refused(space.refused_opens)
        reply.dirty_bytes = self._space.report(
            space.headroom_bytes, space.unsealed_bytes, Level(space.level), space.flows
        )

    def flow(self, request: Any, reply: Any) -> None:
        client = name_of(request).decode("ascii", "replace")
        reply.attr.ino, reply.count = self._space.flow(request.ino, client)

    def install(self, request: Any, reply: Any) -> None:
        done = self._ns.install(
            cred_of(request),
            request.ino,
            name_of(request),
            name2_of(request),
            setattr_of(request),
        )
        put_attr(reply.attr, done.attr)
        put_attr(reply.parent, done.directory)
        put_removed(reply.removed, done.removed)

    def shared(self, request: Any, _reply: Any) -> None:
        self._shared.found(name_of(request), name2_of(request).decode("ascii", "replace"))

    def batch(self, items: list[Any]) -> None:
        """Answer requests. Changes run in one transaction, in their order.

        Args:
            items: each a ``struct spw_item``.
        """
        changes = []
        for item in items:
            name = OPERATIONS[item.op]
            request, reply = item.request.contents, item.reply.contents
            try:
                if name in CHANGES:
                    changes.append((name, request, reply, getattr(self, name)(request)))
                else:
                    getattr(self, name)(request, reply)
                    reply.status = 0
            except BaseException as exc:
                reply.status = bridge.status_of(name, exc)
        if not changes:
            return
        self._ns.run_together(
            [operation for *_, (operations, _finish) in changes for operation in operations]
        )
        for name, request, reply, (_operations, finish) in changes:
            try:
                finish(request, reply)
                reply.status = 0
            except BaseException as exc:
                if isinstance(exc, HeldByLatestLink):
                    bridge.put_named(reply, exc.link)
                reply.status = bridge.status_of(name, exc)
