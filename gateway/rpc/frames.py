"""Frames of the control socket (fsal/native/control.h): encoder and decoder.

Numbers are in the byte order of the machine.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from gateway.common.errors import SpillwayError
from gateway.common.types import ROOT_CRED, Attr, Cred, SetAttr

MAGIC = 0x524F4F44
VERSION = 6
FRAME_BYTES = 8192
DATA_BYTES = 8192
"""The most data that follow an answer."""
ALL_BYTES = (1 << 64) - 1
"""This length of a FAILED says that nothing in the data file is believed any more."""

_FOR_GATEWAY = 8
"""Flag of a request: SPW_FOR_GATEWAY (fsal/native/bridge.h)."""
_HEAD = struct.Struct("=IHHIIQ")
_BODY = struct.Struct("=QQQQQqqIIIIIIIIII")
_STATUS = struct.Struct("=iI")
_ATTR = struct.Struct("=QQQQQQQqqqqIIIIIIII")
_RANGE = struct.Struct("=QQ")
ANSWER_BYTES = _HEAD.size + _STATUS.size + _ATTR.size + _RANGE.size
"""An answer without data."""


class Op(IntEnum):
    """The operations. Those from EVICT to FAILED, and LOST, are for the gateway and root."""

    LOOKUP = 1
    GETATTR = 2
    MKDIR = 3
    SYMLINK = 4
    RENAME = 6
    REMOVE = 7
    SETATTR = 8
    EVICT = 10
    WANTED = 11
    PRESENT = 12
    ARRIVED = 13
    FAILED = 14
    INSTALL = 15
    STATISTICS = 16
    EXPORTS = 17
    CLIENTS = 18
    LEASES = 19
    OPENED = 20
    LOST = 21


class Finding(IntEnum):
    """What LOST tells of a closed file (enum spw_finding)."""

    BYTES_DIFFER = 0
    """The data file has not the bytes of the version, and the bucket has them."""
    BYTES_GONE = 1
    """Neither the disk nor the bucket has the bytes of the version."""
    FOUND_AGAIN = 2
    """The bucket has the bytes of an absent file again."""


class RpcRequest(NamedTuple):
    """An operation and the user in whose name it runs. control.h says which fields each one
    reads."""

    op: Op
    ino: int
    name: bytes = b""
    ino2: int = 0
    name2: bytes = b""
    change: int = 0
    wanted: SetAttr = SetAttr()
    cred: Cred = ROOT_CRED
    offset: int = 0
    """Bytes."""
    length: int = 0
    """Bytes."""


class RpcReply(NamedTuple):
    """The result of a request."""

    errno: int
    """0 if the request was done."""
    attr: Attr | None
    offset: int = 0
    length: int = 0
    data: bytes = b""


class Rubbish(SpillwayError, ValueError):
    """The bytes that were received are no answer."""


def encode(number: int, request: RpcRequest) -> bytes:
    """Return a frame. Raises ValueError if it is too long.

    Args:
        number: its answer has too.
    """
    wanted, cred = request.wanted, request.cred
    values = (wanted.mode, wanted.uid, wanted.gid, wanted.atime_ns, wanted.mtime_ns)
    mask = sum(1 << bit for bit, value in enumerate(values) if value is not None)
    mode, uid, gid, atime_ns, mtime_ns = (value or 0 for value in values)
    body = _BODY.pack(
        *(request.ino, request.ino2, request.change, request.offset, request.length),
        *(atime_ns, mtime_ns, mask, mode, uid, gid),
        *(cred.uid, cred.gid, len(cred.groups), len(request.name), len(request.name2)),
        _FOR_GATEWAY if cred.is_gateway else 0,
    )
    body += struct.pack(f"={len(cred.groups)}I", *cred.groups) + request.name + request.name2
    length = _HEAD.size + len(body)
    if length > FRAME_BYTES:
        raise ValueError(f"a request of {length} bytes")
    return _HEAD.pack(MAGIC, VERSION, request.op, length, 0, number) + body


def data_bytes(frame: bytes) -> int:
    """Return how many bytes of data follow the first ANSWER_BYTES bytes of an answer.

    Raises Rubbish.
    """
    magic, version, _op, frame_bytes, _pad, _number = _HEAD.unpack_from(frame)
    follow = frame_bytes - ANSWER_BYTES
    if magic != MAGIC or version != VERSION or not 0 <= follow <= DATA_BYTES:
        raise Rubbish(f"version {version}, {frame_bytes} bytes")
    return int(follow)


def decode(frame: bytes, data: bytes) -> tuple[int, RpcReply]:
    """Return the number of a request, and its answer.

    Args:
        frame: frame of ANSWER_BYTES bytes, and the data that follow it.
    """
    *_, number = _HEAD.unpack_from(frame)
    error, _pad = _STATUS.unpack_from(frame, _HEAD.size)
    fields = _ATTR.unpack_from(frame, _HEAD.size + _STATUS.size)
    ino, generation, size, used, change, rdev, epoch, atime, mtime, ctime, btime, *rest = fields
    kind, mode, uid, gid, nlink, residency, reserved, _pad = rest
    offset, length = _RANGE.unpack_from(frame, ANSWER_BYTES - _RANGE.size)
    attr = Attr(
        ino=ino,
        generation=generation,
        kind=kind,
        mode=mode,
        uid=uid,
        gid=gid,
        nlink=nlink,
        size=size,
        used=used,
        atime_ns=atime,
        mtime_ns=mtime,
        ctime_ns=ctime,
        btime_ns=btime,
        change=change,
        rdev=rdev,
        epoch=epoch,
        residency=residency,
        reserved=reserved,
    )
    return number, RpcReply(error, attr if ino else None, offset, length, data)
