"""Python side of native/bridge.h: the same structures in ctypes, and a guard around every call.

Each load compares the sizes, and a test compares the offsets. The status is written last, so that
after an earlier failure the reply keeps the EIO that C preset. No exception leaves a callback:
ctypes would drop it, and C would see an unfinished reply.
"""

from __future__ import annotations

import ctypes
import logging
import operator
import struct
from collections.abc import Callable
from typing import Any

from gateway.common.errors import NamespaceError, errno_of
from gateway.common.types import Attr, Cred, RemovedName, SetAttr
from gateway.db.latest_links import LatestLink

ABI = 15

HAS_VERIFIER = 1
FOR_WRITING = 2
EMPTIED = 4
FOR_GATEWAY = 8
WITHOUT_PRIVILEGES = 16
NO_DATA_FILE = 32
NOT_STORED = 64

SET_MODE, SET_UID, SET_GID, SET_ATIME, SET_MTIME = 1, 2, 4, 8, 16

READS = (
    "lookup",
    "lookup_parent",
    "getattr",
    "readdir",
    "readlink",
    "verifier",
    "getxattr",
    "listxattr",
    "damages",
    "acknowledged",
    "note_open",
)
CHANGES = (
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "link",
    "rename",
    "remove",
    "setattr",
    "open_write",
    "seal",
    "reclaim",
    "damage",
    "setxattr",
    "removexattr",
    "evict",
    "arrived",
    "lost",
    "note_reads",
)
"""The operations that change the namespace."""
OPERATIONS = (*READS, *CHANGES, "space", "flow", "install", "shared")
"""All operations, in the order of ``enum spw_op``."""

log = logging.getLogger("spillway.fsal")

u32, u64, i32, i64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64


class AttrStruct(ctypes.Structure):
    _fields_ = (
        ("ino", u64),
        ("generation", u64),
        ("size", u64),
        ("used", u64),
        ("change", u64),
        ("rdev", u64),
        ("epoch", u64),
        ("atime_ns", i64),
        ("mtime_ns", i64),
        ("ctime_ns", i64),
        ("btime_ns", i64),
        ("kind", u32),
        ("mode", u32),
        ("uid", u32),
        ("gid", u32),
        ("nlink", u32),
        ("residency", u32),
        ("reserved", u32),
        ("pad", u32),
    )


_ATTR = struct.Struct("".join(kind._type_ for _name, kind in AttrStruct._fields_))
_in_order = operator.itemgetter(
    *(Attr._fields.index(name) for name, _kind in AttrStruct._fields_ if name != "pad")
)
"""Returns the values of an Attr in the order of AttrStruct."""


class SetAttrStruct(ctypes.Structure):
    _fields_ = (
        ("atime_ns", i64),
        ("mtime_ns", i64),
        ("mask", u32),
        ("mode", u32),
        ("uid", u32),
        ("gid", u32),
    )


class SealedStruct(ctypes.Structure):
    _fields_ = (("size", u64), ("used", u64), ("mtime_ns", i64), ("writes", u64))


class SealStruct(ctypes.Structure):
    _fields_ = (
        ("ino", u64),
        ("data", SealedStruct),
        ("attr", AttrStruct),
        ("status", i32),
        ("pad", u32),
    )


class OrphanStruct(ctypes.Structure):
    _fields_ = (("ino", u64), ("epoch", u64), ("status", i32), ("pad", u32))


class ReadStruct(ctypes.Structure):
    _fields_ = (("ino", u64), ("read_ns", i64))


class UsedStruct(ctypes.Structure):
    _fields_ = (("threads", u32), ("descriptors", u32), ("descriptors_most", u64))


class SpaceStruct(ctypes.Structure):
    _fields_ = (
        ("headroom_bytes", u64),
        ("unsealed_bytes", u64),
        ("level", u32),
        ("flows", u32),
        ("refused_opens", u64),
        ("used", UsedStruct),
    )


class RemovedStruct(ctypes.Structure):
    _fields_ = (("ino", u64), ("epoch", u64), ("change", u64), ("kind", u32), ("nlink", u32))


class DirentStruct(ctypes.Structure):
    _fields_ = (("cookie", u64), ("name_offset", u32), ("pad", u32), ("attr", AttrStruct))


class RequestStruct(ctypes.Structure):
    _fields_ = (
        ("ino", u64),
        ("ino2", u64),
        ("ino3", u64),
        ("cookie", u64),
        ("rdev", u64),
        ("name", ctypes.c_void_p),
        ("name2", ctypes.c_void_p),
        ("client", ctypes.c_void_p),
        ("groups", ctypes.POINTER(u32)),
        ("entries", ctypes.POINTER(DirentStruct)),
        ("seals", ctypes.POINTER(SealStruct)),
        ("orphans", ctypes.POINTER(OrphanStruct)),
        ("buffer", ctypes.c_void_p),
        ("name_len", u32),
        ("name2_len", u32),
        ("uid", u32),
        ("gid", u32),
        ("group_count", u32),
        ("flags", u32),
        ("kind", u32),
        ("entries_max", u32),
        ("buffer_bytes", u32),
        ("client_len", u32),
        ("set", SetAttrStruct),
        ("space", SpaceStruct),
        ("verifier", ctypes.c_uint8 * 8),
    )


class ReplyStruct(ctypes.Structure):
    _fields_ = (
        ("status", i32),
        ("count", u32),
        ("eof", u32),
        ("length", u32),
        ("attr", AttrStruct),
        ("parent", AttrStruct),
        ("parent2", AttrStruct),
        ("removed", RemovedStruct),
        ("dirty_bytes", u64),
        ("named_in", u64),
        ("verifier", ctypes.c_uint8 * 8),
        ("named", ctypes.c_char * 32),
    )


class ItemStruct(ctypes.Structure):
    _fields_ = (
        ("op", u32),
        ("pad", u32),
        ("request", ctypes.POINTER(RequestStruct)),
        ("reply", ctypes.POINTER(ReplyStruct)),
    )


Callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(ItemStruct), u32)


class TableStruct(ctypes.Structure):
    _fields_ = (
        ("abi", u32),
        ("attr_bytes", u32),
        ("request_bytes", u32),
        ("reply_bytes", u32),
        ("dirent_bytes", u32),
        ("op_count", u32),
        ("root_ino", u64),
        ("root_generation", u64),
        ("volume_id", u64),
        ("boot", u64),
        ("reserve_bytes", u64),
        ("dirty_limit_bytes", u64),
        ("slow_per_mille", u32),
        ("full_wait_ms", u32),
        ("park_ms", u32),
        ("acknowledges", u32),
        ("acknowledge_ms", u32),
        ("notes_opens", u32),
        ("files_dir", ctypes.c_char * 4096),
        ("run_dir", ctypes.c_char * 4096),
        ("commits", ctypes.c_void_p),
        ("batch", Callback),
    )


def check_sizes(table: TableStruct) -> None:
    """Raise RuntimeError when C was compiled from another bridge.h than this file mirrors."""
    ours = (
        ABI,
        ctypes.sizeof(AttrStruct),
        ctypes.sizeof(RequestStruct),
        ctypes.sizeof(ReplyStruct),
        ctypes.sizeof(DirentStruct),
        len(OPERATIONS),
    )
    theirs = (
        table.abi,
        table.attr_bytes,
        table.request_bytes,
        table.reply_bytes,
        table.dirent_bytes,
        table.op_count,
    )
    if ours != theirs:
        raise RuntimeError(
            f"libfsalpython.so has ABI {theirs}, fsal/bridge.py has {ours}: rebuild the plugin"
        )


def guard(batch: Callable[[list[Any]], None]) -> Any:
    """Return a C callback around a function that answers requests. The caller keeps it alive."""

    def call(items: Any, count: int) -> None:
        try:
            batch(items[:count])
        except BaseException:
            # Every exception must end here. C has preset EIO, and the server continues.
            log.exception("a batch of requests failed")

    return Callback(call)


def status_of(name: str, exc: BaseException) -> int:
    """Return the errno of an exception for C. An unforeseen one is logged with its traceback."""
    if isinstance(exc, NamespaceError):
        return exc.errno
    log.error("%s failed", name, exc_info=exc)
    return errno_of(exc)


def name_of(request: Any) -> bytes:
    return ctypes.string_at(request.name, request.name_len)


def name2_of(request: Any) -> bytes:
    return ctypes.string_at(request.name2, request.name2_len)


def client_of(request: Any) -> str:
    """Return the address of the client that asks. Empty: the gateway itself."""
    if not request.client_len:
        return ""
    return ctypes.string_at(request.client, request.client_len).decode("ascii", "replace")


def cred_of(request: Any) -> Cred:
    groups = tuple(request.groups[: request.group_count]) if request.group_count else ()
    return Cred(request.uid, request.gid, groups, bool(request.flags & FOR_GATEWAY))


def setattr_of(request: Any) -> SetAttr:
    wanted = request.set
    mask = wanted.mask
    return SetAttr(
        mode=wanted.mode if mask & SET_MODE else None,
        uid=wanted.uid if mask & SET_UID else None,
        gid=wanted.gid if mask & SET_GID else None,
        atime_ns=wanted.atime_ns if mask & SET_ATIME else None,
        mtime_ns=wanted.mtime_ns if mask & SET_MTIME else None,
    )


def put_attr(out: Any, attr: Attr) -> None:
    """Fill in a ``struct spw_attr`` at once: assignments to its fields take three times as long."""
    _ATTR.pack_into(out, 0, *_in_order(attr), 0)


def put_directories(reply: Any, request: Any, changed: list[Attr]) -> None:
    """Fill in the directories whose entries an operation changed, each in its last state."""
    for attr in changed:
        put_attr(reply.parent if attr.ino == request.ino else reply.parent2, attr)


def put_named(reply: Any, link: LatestLink) -> None:
    """Fill in the link that must be removed before the change."""
    reply.named = link.name
    reply.named_in = link.directory


def put_removed(out: Any, removed: RemovedName | None) -> None:
    if removed is None:
        return
    out.ino = removed.ino
    out.epoch = removed.epoch
    out.change = removed.change
    out.kind = removed.kind
    out.nlink = removed.nlink
