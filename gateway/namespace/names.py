"""Changes of directory entries: create, link and remove; extended attributes; ``/lost+found``.

The first functions change an entry, with what that means for the inode and the drain. All
operations that make, move and take away names use them, also those in rename.py.

Extended attributes (RFC 8276) have names without the prefix ``user.`` here. ``spillway.state``,
``.etag`` and ``.checksum`` of a file are not stored: they say what the bucket has of it. They are
there only while it has the present version, because the Linux client remembers a value until the
file changes, and a file does not change when it becomes durable. Ganesha checks nothing before it
calls the FSAL for an extended attribute, not even whether the export is read-only. So this module
and native/xattr.c check permissions.

``/lost+found`` is for inodes that a repair found nameless. A repair never deletes an inode: its
bytes may be the only copy of a checkpoint.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from sqlalchemy import select

from gateway.common.errors import (
    AccessDenied,
    Exists,
    InvalidArgument,
    NameTooLong,
    NoAttribute,
    NoSpace,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotPermitted,
    ReadOnly,
    Stale,
    TooBig,
    TooManyLinks,
)
from gateway.common.types import (
    LINK_MAX,
    ROOT_CRED,
    SYMLINK_MAX_BYTES,
    Attr,
    Cred,
    InodeKind,
    RemovedName,
    SetAttr,
)
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.latest_links import LatestLink
from gateway.db.models import ROOT_INO
from gateway.db.statements import inode, object_
from gateway.db.writer import Tx
from gateway.namespace import attributes, latest_links, rotation
from gateway.namespace.lookup import check_name, check_new_name, find, get, get_directory, way_up
from gateway.namespace.residency import HAS_CONTENT, IS_CERTAIN, IS_DRAINED
from gateway.namespace.rotation import LostName


def directory_changed(tx: Tx, ino: int, links: int = 0) -> Attr:
    """Move mtime, ctime and change of a directory whose entries change.

    Returns the directory as it is now. Raises Stale, NotADirectory.

    Args:
        links: how many subdirectories come (negative: go).
    """
    row = tx.change(sql.DIRECTORY_CHANGED, the_ino=ino, delta=links, now_ns=tx.now_ns)
    if row is None:
        raise Stale
    directory = Attr(*row)
    if directory.kind != InodeKind.DIRECTORY:
        raise NotADirectory
    tx.directories.append(directory)
    tx.touch(ino)
    return directory


def require_empty(tx: Tx, victim: Attr) -> None:
    """Raise NotEmpty for a directory with entries."""
    if victim.kind == InodeKind.DIRECTORY and tx.one(sql.ANY_ENTRY, parent=victim.ino) is not None:
        raise NotEmpty


def add_name(tx: Tx, parent: int, name: bytes, ino: int) -> None:
    """Insert a directory entry with a new cookie."""
    tx.run(sql.DIRENT_INSERT, parent=parent, name=name, ino=ino, cookie=tx.new_cookie())


def count_name(tx: Tx, ino: int, names: int) -> Attr:
    """Move nlink, ctime and change of an inode that got or lost names, or was renamed (0)."""
    return Attr(*_count(tx, sql.NLINK, ino, names))


def _count(tx: Tx, statement: Statement, ino: int, names: int) -> Sequence[Any]:
    """Run NLINK or NAME_LOST. Returns the row."""
    row = tx.change(statement, the_ino=ino, delta=names, now_ns=tx.now_ns)
    assert row is not None, "an entry without an inode"
    tx.touch(ino)
    return row


def lose_name(tx: Tx, victim: Attr, gone: LostName | None = None) -> RemovedName:
    """Take a name from an inode whose entry is deleted or names another inode now.

    The inode may get one in the trash instead (gateway.namespace.rotation).

    Args:
        gone: the name, if a client asks.
    """
    is_directory = victim.kind == InodeKind.DIRECTORY
    stored = None
    if victim.nlink == 1 and victim.kind == InodeKind.REGULAR:
        stored = tx.one(sql.OBJECT_KEY, ino=victim.ino)
    if gone is not None and victim.nlink == 1 and not victim.reserved:
        # Most deleted files were never in the bucket: nothing more is asked about them.
        may_be_held = stored is not None or victim.kind == InodeKind.SYMLINK
        if may_be_held and (held := rotation.hold(tx, victim, gone)) is not None:
            return held
    lost = victim.nlink if is_directory else 1
    left, change = _count(tx, sql.NAME_LOST, victim.ino, -lost)
    if left == 0 and victim.kind == InodeKind.REGULAR:
        # The row stays as an orphan: clients may have the file open (reclaim() deletes it).
        if stored is not None:
            _forget_object(tx, victim, stored)
    elif left == 0:
        if is_directory:
            tx.run(sql.REKEY_DELETE, the_ino=victim.ino)
        tx.run(sql.INODE_DELETE, the_ino=victim.ino)
    else:
        _may_need_new_key(tx, victim.ino)
    return RemovedName(victim.ino, victim.kind, left, victim.epoch, change)


def note_renamed(tx: Tx, attr: Attr) -> None:
    """Tell the drain, and readers of the journal, that an inode and all below have other paths."""
    if attr.kind == InodeKind.DIRECTORY:
        tx.touch(attr.ino, journal.CHANGED | journal.BELOW)
        _add_rekey(tx, attr.ino)
    elif attr.kind == InodeKind.REGULAR:
        _may_need_new_key(tx, attr.ino)


def _forget_object(tx: Tx, victim: Attr, stored: Sequence[Any]) -> None:
    """Record that the object of a file is garbage. A file without one never had a wrong key."""
    ino = victim.ino
    tx.run(sql.REKEY_DELETE, the_ino=ino)
    tx.run(sql.OBJECT_DELETE, the_ino=ino)
    key, content_version, etag = stored
    sql.add_tombstone(tx, tx.now_ns, key, ino, content_version, etag, victim.generation)


def _may_need_new_key(tx: Tx, ino: int) -> None:
    if tx.one(sql.OBJECT_KEY, ino=ino) is not None:
        _add_rekey(tx, ino)


def _add_rekey(tx: Tx, ino: int) -> None:
    if tx.one(sql.REKEY, ino=ino) is None:
        tx.run(sql.REKEY_INSERT, ino=ino, renamed_ns=tx.now_ns)


_SPECIAL = (InodeKind.CHARACTER, InodeKind.BLOCK, InodeKind.SOCKET, InodeKind.FIFO)


def create(
    tx: Tx,
    cred: Cred,
    parent: int,
    name: bytes,
    wanted: SetAttr,
    *,
    generation: int,
    verifier: bytes | None = None,
    for_writing: bool = True,
) -> Attr:
    """Make an empty regular file and, if asked, open it for writing in the same commit.

    Raises Exists and what a directory change raises.

    Args:
        verifier: 8 bytes of an exclusive create (they have a column of their own, so that a later
            SETATTR of times cannot break a retry).
    """
    directory = _prepare(tx, cred, parent, name)
    return _insert(
        tx,
        cred,
        directory,
        name,
        InodeKind.REGULAR,
        wanted,
        generation=generation,
        verifier=verifier,
        write_open=int(for_writing),
    )


def mkdir(
    tx: Tx, cred: Cred, parent: int, name: bytes, wanted: SetAttr, *, generation: int
) -> Attr:
    """Make a directory. It inherits the group and the bit of a setgid parent."""
    directory = _prepare(tx, cred, parent, name, links=1)
    if directory.nlink > LINK_MAX * 1000:
        raise TooManyLinks
    return _insert(tx, cred, directory, name, InodeKind.DIRECTORY, wanted, generation=generation)


def symlink(
    tx: Tx, cred: Cred, parent: int, name: bytes, target: bytes, wanted: SetAttr, *, generation: int
) -> Attr:
    """Make a symbolic link. Raises InvalidArgument for an empty target, NameTooLong."""
    if not target or b"\0" in target:
        raise InvalidArgument
    if len(target) > SYMLINK_MAX_BYTES:
        raise NameTooLong
    directory = _prepare(tx, cred, parent, name)
    return _insert(
        tx, cred, directory, name, InodeKind.SYMLINK, wanted, generation=generation, target=target
    )


def mknod(
    tx: Tx,
    cred: Cred,
    parent: int,
    name: bytes,
    kind: int,
    rdev: int,
    wanted: SetAttr,
    *,
    generation: int,
) -> Attr:
    """Make a fifo, socket or device node. Raises NotPermitted for a device unless uid is 0."""
    if kind not in _SPECIAL:
        raise InvalidArgument
    if kind in (InodeKind.CHARACTER, InodeKind.BLOCK) and cred.uid != 0:
        raise NotPermitted
    directory = _prepare(tx, cred, parent, name)
    return _insert(tx, cred, directory, name, kind, wanted, generation=generation, rdev=rdev)


def link(tx: Tx, cred: Cred, ino: int, parent: int, name: bytes) -> Attr:
    """Give an inode one more name. A reserved inode has names in reserved directories only.

    Raises NotPermitted (directory), TooManyLinks, Exists, ReadOnly.
    """
    attr = get(tx, ino)
    if attr.kind == InodeKind.DIRECTORY:
        raise NotPermitted
    if attr.nlink == 0:
        # Stale would end the orphan for a client that still has it open.
        raise NotFound
    if attr.nlink >= LINK_MAX:
        raise TooManyLinks
    directory = _prepare(tx, cred, parent, name)
    if attr.reserved and not directory.reserved:
        raise ReadOnly
    add_name(tx, parent, name, ino)
    return count_name(tx, ino, 1)


def _prepare(tx: Tx, cred: Cred, parent: int, name: bytes, links: int = 0) -> Attr:
    """Check that a name can be made, and change its directory in the same statement."""
    check_new_name(parent, name)
    if find(tx, parent, name) is not None:
        attributes.require_entry_change(get_directory(tx, parent), cred)
        raise Exists
    directory = directory_changed(tx, parent, links)
    attributes.require_entry_change(directory, cred)
    tx.named.entered(parent)
    return directory


def _insert(
    tx: Tx,
    cred: Cred,
    directory: Attr,
    name: bytes,
    kind: int,
    wanted: SetAttr,
    *,
    generation: int,
    verifier: bytes | None = None,
    write_open: int = 0,
    target: bytes | None = None,
    rdev: int = 0,
) -> Attr:
    is_directory = kind == InodeKind.DIRECTORY
    attributes.require_ownership(cred, wanted)
    mode = 0o777 if wanted.mode is None else wanted.mode & 0o7777
    gid = cred.gid if wanted.gid is None else wanted.gid
    if directory.mode & attributes.SETGID:
        gid = directory.gid if wanted.gid is None else wanted.gid
        mode |= attributes.SETGID if is_directory else 0
    if not is_directory and cred.uid != 0 and not cred.is_member(gid):
        mode &= ~attributes.SETGID
    attr = rotation.insert_inode(
        tx,
        tx.now_ns,
        ino=tx.new_ino(),
        generation=generation,
        kind=kind,
        mode=mode,
        nlink=2 if is_directory else 1,
        uid=cred.uid if wanted.uid is None else wanted.uid,
        gid=gid,
        reserved=directory.reserved,
        size=len(target or b""),
        atime_ns=wanted.atime_ns,
        mtime_ns=wanted.mtime_ns,
        rdev=rdev,
        target=target,
        verifier=verifier,
        parent=directory.ino if is_directory else None,
        charged_to=None if is_directory else directory.ino,
        write_open=write_open,
    )
    add_name(tx, directory.ino, name, attr.ino)
    tx.touch(attr.ino)
    return attr


def remove(
    tx: Tx, cred: Cred, parent: int, name: bytes, only: tuple[int, int] | None = None
) -> RemovedName:
    """Remove a file, link or empty directory by name (NFSv4 REMOVE does not tell them apart).

    The bucket may keep what it has of a checkpoint (gateway.namespace.rotation): then the inode has
    a name in the trash.

    Raises NotFound, NotEmpty, AccessDenied, NotPermitted, HeldByLatestLink, Stale.

    Args:
        only: inode number and ``change`` (0: any) of the inode that may be removed; any other inode
            with the name stays.
    """
    check_name(name)
    victim = find(tx, parent, name)
    if victim is not None and only is not None:
        ino, change = only
        if ino != victim.ino or change not in (0, victim.change):
            raise NotFound
    if victim is None:
        latest_links.removed(tx, LatestLink(parent, name))
        attributes.require_entry_change(get_directory(tx, parent), cred)
        raise NotFound
    is_directory = victim.kind == InodeKind.DIRECTORY
    if is_directory:
        # These checks refuse often, and a refusal is cheap only before the first change.
        attributes.require_removal(get_directory(tx, parent), victim, cred)
        require_empty(tx, victim)
    directory = directory_changed(tx, parent, links=-int(is_directory))
    attributes.require_removal(directory, victim, cred)
    tx.named.entered(parent)
    tx.named.moved(victim.ino)
    tx.run(sql.DIRENT_DELETE, the_parent=parent, the_name=name)
    lost = lose_name(tx, victim, LostName(parent, name, cred.uid))
    latest_links.removed(tx, LatestLink(parent, name))
    return lost


def reclaim(tx: Tx, ino: int) -> bool:
    """Delete the row of an orphan. Its bytes may be deleted after the commit.

    The row is gone already if an earlier call was committed that got no answer. Returns False if
    the inode is no orphan. Its bytes must not be deleted then.
    """
    tx.touch(ino)
    is_deleted = tx.run(sql.INODE_DELETE, the_ino=ino) > 0
    return is_deleted or tx.one(sql.CONTENT_VERSION, ino=ino) is None


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


class SetXattrMode(IntEnum):
    """The values of setxattr_option4 (RFC 8276 section 8.4.2)."""

    EITHER = 0
    CREATE = 1
    REPLACE = 2


def getxattr(session: Session, cred: Cred, ino: int, name: bytes) -> bytes:
    """Return the value of an attribute. Raises NoAttribute, AccessDenied, Stale."""
    _require(get(session, ino), cred, attributes.READ)
    if name.startswith(OURS):
        attribute = _stored(session, ino).get(name)
        if attribute is None:
            raise NoAttribute
        return attribute
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
    stored_attributes = {
        b"state": DURABLE,
        b"etag": row[0].encode(),
        b"checksum": (row[1] or "").encode(),
    }
    return {OURS + name: value for name, value in stored_attributes.items() if value}


def setxattr(tx: Tx, cred: Cred, ino: int, name: bytes, value: bytes, how: int) -> Attr:
    """Set an attribute.

    Raises Exists (CREATE), NoAttribute (REPLACE), TooBig, NoSpace, AccessDenied, NotPermitted,
    ReadOnly, Stale.
    """
    _require(get(tx, ino), cred, attributes.WRITE)
    if name.startswith(OURS):
        raise NotPermitted
    if not name or len(name) > NAME_MAX_BYTES or b"\0" in name:
        raise InvalidArgument
    if len(value) > VALUE_MAX_BYTES:
        raise TooBig
    there = tx.one(sql.XATTR, ino=ino, name=name) is not None
    if there and how == SetXattrMode.CREATE:
        raise Exists
    if not there and how == SetXattrMode.REPLACE:
        raise NoAttribute
    if there:
        tx.run(sql.XATTR_UPDATE, the_ino=ino, the_name=name, value=value)
    else:
        names = [row[0] for row in tx.all(sql.XATTRS, ino=ino)] + [name]
        if sum(len(PREFIX) + len(other_name) + 1 for other_name in names) > NAMES_MAX_BYTES:
            raise NoSpace
        tx.run(sql.XATTR_INSERT, ino=ino, name=name, value=value)
    return count_name(tx, ino, 0)


def removexattr(tx: Tx, cred: Cred, ino: int, name: bytes) -> Attr:
    """Remove an attribute. Raises NoAttribute, AccessDenied, NotPermitted, ReadOnly, Stale."""
    _require(get(tx, ino), cred, attributes.WRITE)
    if name.startswith(OURS):
        raise NotPermitted
    if tx.run(sql.XATTR_DELETE, the_ino=ino, the_name=name) == 0:
        raise NoAttribute
    return count_name(tx, ino, 0)


def _require(attr: Attr, cred: Cred, wanted: int) -> None:
    """Require the right to an attribute, by the rules of xattr(7).

    Only files and directories have attributes. In a sticky directory only the owner sets them.
    """
    if attr.kind not in (InodeKind.REGULAR, InodeKind.DIRECTORY):
        raise NotPermitted
    if wanted == attributes.WRITE and attr.reserved:
        raise ReadOnly
    if not attributes.allowed(attr, cred, wanted):
        raise AccessDenied
    sticky = attr.kind == InodeKind.DIRECTORY and attr.mode & attributes.STICKY
    if wanted == attributes.WRITE and sticky and cred.uid not in (0, attr.uid):
        raise NotPermitted


NAME = b"lost+found"


def shown(ino: int) -> str:
    """Return the path that an inode gets, for people."""
    return f"/{NAME.decode()}/#{ino}"


def keep(tx: Tx, ino: int) -> None:
    """Give a name to an inode that has none, in a transaction of its own."""
    tx.reserve(2)
    attr = get(tx, ino)
    is_directory = attr.kind == InodeKind.DIRECTORY
    directory = _directory(tx)
    if is_directory:
        tx.run(sql.REPARENT, the_ino=ino, new_parent=directory.ino)
    else:
        count_name(tx, ino, 1 - attr.nlink)
    add_name(tx, directory.ino, b"#%d" % ino, ino)
    directory_changed(tx, directory.ino, links=int(is_directory))
    note_renamed(tx, attr)


def _directory(tx: Tx) -> Attr:
    """Return the directory; make it if there is none. Another inode with its name stays."""
    name = NAME
    while (attr := find(tx, ROOT_INO, name)) is not None and attr.kind != InodeKind.DIRECTORY:
        name += b"_"
    if attr is not None:
        return attr
    wanted = SetAttr(mode=0o700, uid=0, gid=0)
    return mkdir(tx, ROOT_CRED, ROOT_INO, name, wanted, generation=secrets.randbits(62))
