"""Makes names: files, directories, symlinks, device nodes, hard links."""

from __future__ import annotations

from gateway.db.writer import Tx
from gateway.errors import (
    Exists,
    InvalidArgument,
    NameTooLong,
    NotFound,
    NotPermitted,
    ReadOnly,
    TooManyLinks,
)
from gateway.namespace import inodes, permissions
from gateway.namespace.entries import add_name, count_name, directory_changed
from gateway.namespace.lookup import check_new_name, find, get, get_directory
from gateway.types import LINK_MAX, SYMLINK_MAX_BYTES, Attr, Cred, Kind, SetAttr

_SPECIAL = (Kind.CHARACTER, Kind.BLOCK, Kind.SOCKET, Kind.FIFO)


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

    Parameters: verifier, 8 bytes of an exclusive create (they have a column of their own, so that a
    later SETATTR of times cannot break a retry). Raises Exists and what a directory change raises.
    """
    directory = _prepare(tx, cred, parent, name)
    return _insert(
        tx,
        cred,
        directory,
        name,
        Kind.REGULAR,
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
    return _insert(tx, cred, directory, name, Kind.DIRECTORY, wanted, generation=generation)


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
        tx, cred, directory, name, Kind.SYMLINK, wanted, generation=generation, target=target
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
    if kind in (Kind.CHARACTER, Kind.BLOCK) and cred.uid != 0:
        raise NotPermitted
    directory = _prepare(tx, cred, parent, name)
    return _insert(tx, cred, directory, name, kind, wanted, generation=generation, rdev=rdev)


def link(tx: Tx, cred: Cred, ino: int, parent: int, name: bytes) -> Attr:
    """Give an inode one more name. A reserved inode has names in reserved directories only.

    Raises NotPermitted (directory), TooManyLinks, Exists, ReadOnly.
    """
    attr = get(tx, ino)
    if attr.kind == Kind.DIRECTORY:
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
        permissions.require_entry_change(get_directory(tx, parent), cred)
        raise Exists
    directory = directory_changed(tx, parent, links)
    permissions.require_entry_change(directory, cred)
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
    is_directory = kind == Kind.DIRECTORY
    permissions.require_ownership(cred, wanted)
    mode = 0o777 if wanted.mode is None else wanted.mode & 0o7777
    gid = cred.gid if wanted.gid is None else wanted.gid
    if directory.mode & permissions.SETGID:
        gid = directory.gid if wanted.gid is None else wanted.gid
        mode |= permissions.SETGID if is_directory else 0
    if not is_directory and cred.uid != 0 and not cred.is_member(gid):
        mode &= ~permissions.SETGID
    attr = inodes.insert(
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
        write_open=write_open,
    )
    add_name(tx, directory.ino, name, attr.ino)
    tx.touch(attr.ino)
    return attr
