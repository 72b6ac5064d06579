"""One function for each operation of the boundary: unpack the request, call, fill the reply."""

from __future__ import annotations

import ctypes
from typing import Any

from fsal import bridge
from fsal.bridge import (
    cred_of,
    name2_of,
    name_of,
    put_attr,
    put_directories,
    put_removed,
    setattr_of,
)
from gateway.errors import TooBig
from gateway.namespace.facade import Namespace
from gateway.namespace.space import Level, Space
from gateway.types import Attr, Sealed


def put_buffer(request: Any, reply: Any, data: bytes) -> None:
    """Copy into C's buffer. Raises TooBig when it does not fit; the length is told all the same."""
    reply.length = len(data)
    if len(data) > request.buffer_bytes:
        raise TooBig
    ctypes.memmove(request.buffer, data, len(data))


class Verbs:
    """The operations of one namespace; method names are those of ``bridge.OPERATIONS``."""

    def __init__(self, namespace: Namespace, space: Space) -> None:
        self._ns = namespace
        self._space = space

    def lookup(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.lookup(request.ino, name_of(request)))

    def lookup_parent(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.lookup_parent(request.ino))

    def getattr(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.getattr(request.ino))

    def readdir(self, request: Any, reply: Any) -> None:
        most = request.entries_max
        found = self._ns.readdir(request.ino, request.cookie, most + 1)
        offset = 0
        entries = request.entries
        for index, dirent in enumerate(found[:most]):
            name = dirent.name + b"\0"
            ctypes.memmove(request.buffer + offset, name, len(name))
            entry = entries[index]
            entry.cookie = dirent.cookie
            entry.name_offset = offset
            put_attr(entry.attr, dirent.attr)
            offset += len(name)
        reply.count = min(len(found), most)
        reply.eof = int(len(found) <= most)

    def readlink(self, request: Any, reply: Any) -> None:
        put_buffer(request, reply, self._ns.readlink(request.ino))

    def verifier(self, request: Any, reply: Any) -> None:
        verifier = self._ns.verifier(request.ino)
        reply.count = int(verifier is not None)
        if verifier is not None:
            ctypes.memmove(reply.verifier, verifier, 8)

    def create(self, request: Any, reply: Any) -> None:
        verifier = bytes(request.verifier) if request.flags & bridge.HAS_VERIFIER else None
        directories: list[Attr] = []
        attr = self._ns.create(
            cred_of(request),
            request.ino,
            name_of(request),
            setattr_of(request),
            verifier,
            bool(request.flags & bridge.FOR_WRITING),
            directories=directories,
        )
        put_attr(reply.attr, attr)
        put_directories(reply, request, directories)

    def mkdir(self, request: Any, reply: Any) -> None:
        directories: list[Attr] = []
        attr = self._ns.mkdir(
            cred_of(request),
            request.ino,
            name_of(request),
            setattr_of(request),
            directories=directories,
        )
        put_attr(reply.attr, attr)
        put_directories(reply, request, directories)

    def symlink(self, request: Any, reply: Any) -> None:
        directories: list[Attr] = []
        attr = self._ns.symlink(
            cred_of(request),
            request.ino,
            name_of(request),
            name2_of(request),
            setattr_of(request),
            directories=directories,
        )
        put_attr(reply.attr, attr)
        put_directories(reply, request, directories)

    def mknod(self, request: Any, reply: Any) -> None:
        directories: list[Attr] = []
        attr = self._ns.mknod(
            cred_of(request),
            request.ino,
            name_of(request),
            request.kind,
            request.rdev,
            setattr_of(request),
            directories=directories,
        )
        put_attr(reply.attr, attr)
        put_directories(reply, request, directories)

    def link(self, request: Any, reply: Any) -> None:
        directories: list[Attr] = []
        attr = self._ns.link(
            cred_of(request),
            request.ino2,
            request.ino,
            name_of(request),
            directories=directories,
        )
        put_attr(reply.attr, attr)
        put_directories(reply, request, directories)

    def rename(self, request: Any, reply: Any) -> None:
        directories: list[Attr] = []
        attr, removed = self._ns.rename(
            cred_of(request),
            request.ino,
            name_of(request),
            request.ino2,
            name2_of(request),
            directories=directories,
        )
        put_attr(reply.attr, attr)
        put_directories(reply, request, directories)
        put_removed(reply.removed, removed)

    def remove(self, request: Any, reply: Any) -> None:
        directories: list[Attr] = []
        removed = self._ns.remove(
            cred_of(request), request.ino, name_of(request), directories=directories
        )
        put_directories(reply, request, directories)
        put_removed(reply.removed, removed)

    def setattr(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.setattr(request.ino, setattr_of(request)))

    def open_write(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.open_write(request.ino))

    def seal(self, request: Any, _reply: Any) -> None:
        waiting = request.seals[: request.entries_max]
        wanted = [
            (item.ino, Sealed(item.data.size, item.data.used, item.data.mtime_ns, item.data.writes))
            for item in waiting
        ]
        for item, found in zip(waiting, self._ns.seal_all(wanted), strict=True):
            if isinstance(found, Attr):
                put_attr(item.attr, found)
                item.status = 0
            else:
                item.status = bridge.status_of("seal", found)

    def getxattr(self, request: Any, reply: Any) -> None:
        value = self._ns.getxattr(cred_of(request), request.ino, name_of(request))
        put_buffer(request, reply, value)

    def setxattr(self, request: Any, reply: Any) -> None:
        attr = self._ns.setxattr(
            cred_of(request), request.ino, name_of(request), name2_of(request), request.kind
        )
        put_attr(reply.attr, attr)

    def removexattr(self, request: Any, reply: Any) -> None:
        put_attr(reply.attr, self._ns.removexattr(cred_of(request), request.ino, name_of(request)))

    def listxattr(self, request: Any, reply: Any) -> None:
        names = self._ns.listxattr(request.ino)
        put_buffer(request, reply, b"".join(b"user." + name + b"\0" for name in names))

    def space(self, request: Any, reply: Any) -> None:
        space = request.space
        reply.dirty_bytes = self._space.report(
            space.headroom_bytes, space.unsealed_bytes, Level(space.level), space.flows
        )

    def flow(self, request: Any, reply: Any) -> None:
        client = name_of(request).decode("ascii", "replace")
        reply.attr.ino, reply.count = self._space.flow(request.ino, client)

    def reclaim(self, request: Any, reply: Any) -> None:
        self._ns.reclaim(request.ino, request.cookie)
