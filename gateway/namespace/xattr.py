"""Reads and changes extended attributes (RFC 8276). Names come without the prefix ``user.``.

``spillway.state``, ``.etag`` and ``.checksum`` of a file are not stored: they say what the bucket
has of it. They are there only while it has the present version, because the Linux client remembers
a value until the file changes, and a file does not change when it becomes durable.

Ganesha checks nothing before it calls the FSAL, not even whether the export is read-only. So this
module and native/xattr.c check permissions.
"""

from __future__ import annotations

from enum import IntEnum

from sqlalchemy import select

from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import inode, object_
from gateway.db.writer import Tx
from gateway.errors import (
    AccessDenied,
    Exists,
    InvalidArgument,
    NoAttribute,
    NoSpace,
    NotPermitted,
    ReadOnly,
    TooBig,
)
from gateway.namespace import permissions
from gateway.namespace.entries import count_name
from gateway.namespace.lookup import get, way_up
from gateway.namespace.residency import HAS_CONTENT, IS_CERTAIN, IS_DRAINED
from gateway.types import Attr, Cred, Kind

NAME_MAX_BYTES = 255
VALUE_MAX_BYTES = 65_536
NAMES_MAX_BYTES = 65_536
"""Limit for all names of one inode, each with ``user.`` and NUL. It is listxattr's on Linux."""
PREFIX = b"user."


OURS = b"spillway."
"""Begins the names that only the gateway gives."""
DURABLE = b"durable"
_STORED = Statement(
    select(object_.c.etag, object_.c.checksum)
    .select_from(inode.join(object_, object_.c.ino == inode.c.ino))
    .where(inode.c.ino == b("ino"), *IS_DRAINED, *HAS_CONTENT, *IS_CERTAIN)
)


class How(IntEnum):
    """The values of setxattr_option4 (RFC 8276 section 8.4.2)."""

    EITHER = 0
    CREATE = 1
    REPLACE = 2


def getxattr(session: Session, cred: Cred, ino: int, name: bytes) -> bytes:
    """Return the value of an attribute. Raises NoAttribute, AccessDenied, Stale."""
    _require(get(session, ino), cred, permissions.READ)
    if name.startswith(OURS):
        found = _stored(session, ino).get(name)
        if found is None:
            raise NoAttribute
        return found
    row = session.one(sql.XATTR, ino=ino, name=name)
    if row is None:
        raise NoAttribute
    value: bytes = row[0]
    return value


def listxattr(session: Session, ino: int) -> list[bytes]:
    """Return all names, in order. Raises Stale."""
    get(session, ino)
    theirs = (row[0] for row in session.all(sql.XATTRS, ino=ino) if not row[0].startswith(OURS))
    return sorted((*theirs, *_stored(session, ino)))


def _stored(session: Session, ino: int) -> dict[bytes, bytes]:
    """Return the attributes that the gateway gives, none of them before a file is durable."""
    row = session.one(_STORED, ino=ino)
    if row is None or any(session.one(sql.REKEY, ino=at) for at, *_ in way_up(session, ino)):
        return {}
    found = {b"state": DURABLE, b"etag": row[0].encode(), b"checksum": (row[1] or "").encode()}
    return {OURS + name: value for name, value in found.items() if value}


def setxattr(tx: Tx, cred: Cred, ino: int, name: bytes, value: bytes, how: int) -> Attr:
    """Set an attribute.

    Raises Exists (CREATE), NoAttribute (REPLACE), TooBig, NoSpace, AccessDenied, NotPermitted,
    ReadOnly, Stale.
    """
    _require(get(tx, ino), cred, permissions.WRITE)
    if name.startswith(OURS):
        raise NotPermitted
    if not name or len(name) > NAME_MAX_BYTES or b"\0" in name:
        raise InvalidArgument
    if len(value) > VALUE_MAX_BYTES:
        raise TooBig
    there = tx.one(sql.XATTR, ino=ino, name=name) is not None
    if there and how == How.CREATE:
        raise Exists
    if not there and how == How.REPLACE:
        raise NoAttribute
    if there:
        tx.run(sql.XATTR_UPDATE, the_ino=ino, the_name=name, value=value)
    else:
        names = [row[0] for row in tx.all(sql.XATTRS, ino=ino)] + [name]
        if sum(len(PREFIX) + len(each) + 1 for each in names) > NAMES_MAX_BYTES:
            raise NoSpace
        tx.run(sql.XATTR_INSERT, ino=ino, name=name, value=value)
    return count_name(tx, ino, 0)


def removexattr(tx: Tx, cred: Cred, ino: int, name: bytes) -> Attr:
    """Remove an attribute. Raises NoAttribute, AccessDenied, NotPermitted, ReadOnly, Stale."""
    _require(get(tx, ino), cred, permissions.WRITE)
    if name.startswith(OURS):
        raise NotPermitted
    if tx.run(sql.XATTR_DELETE, the_ino=ino, the_name=name) == 0:
        raise NoAttribute
    return count_name(tx, ino, 0)


def _require(attr: Attr, cred: Cred, wanted: int) -> None:
    """Require the right to an attribute, by the rules of xattr(7).

    Only files and directories have attributes. In a sticky directory only the owner sets them.
    """
    if attr.kind not in (Kind.REGULAR, Kind.DIRECTORY):
        raise NotPermitted
    if wanted == permissions.WRITE and attr.reserved:
        raise ReadOnly
    if not permissions.allowed(attr, cred, wanted):
        raise AccessDenied
    sticky = attr.kind == Kind.DIRECTORY and attr.mode & permissions.STICKY
    if wanted == permissions.WRITE and sticky and cred.uid not in (0, attr.uid):
        raise NotPermitted
