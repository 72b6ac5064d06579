"""Removes names, and inodes that have no name left."""

from __future__ import annotations

from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.writer import Tx
from gateway.errors import NotEmpty, NotFound
from gateway.namespace import permissions
from gateway.namespace.create import count_name, directory_changed
from gateway.namespace.lookup import check_name, find, get_directory
from gateway.types import Attr, Cred, Kind, Removed


def remove(
    tx: Tx, cred: Cred, parent: int, name: bytes, only: tuple[int, int] | None = None
) -> Removed:
    """Remove a file, link or empty directory by name (NFSv4 REMOVE does not tell them apart).

    Parameters: only, inode number and ``change`` (0: any) of the inode that may be removed; any
    other inode with the name stays. Raises NotFound, NotEmpty, AccessDenied, NotPermitted, Stale.
    """
    check_name(name)
    victim = find(tx, parent, name)
    if victim is not None and only is not None:
        ino, change = only
        if ino != victim.ino or change not in (0, victim.change):
            raise NotFound
    if victim is None:
        permissions.require_entry_change(get_directory(tx, parent), cred)
        raise NotFound
    is_directory = victim.kind == Kind.DIRECTORY
    if is_directory:
        # These checks refuse often, and a refusal is cheap only before the first change.
        permissions.require_removal(get_directory(tx, parent), victim, cred)
        require_empty(tx, victim)
    directory = directory_changed(tx, parent, links=-int(is_directory))
    permissions.require_removal(directory, victim, cred)
    tx.run(sql.DIRENT_DELETE, the_parent=parent, the_name=name)
    return lose_name(tx, victim)


def require_empty(tx: Tx, victim: Attr) -> None:
    """Raise NotEmpty for a directory with entries."""
    if victim.kind == Kind.DIRECTORY and tx.one(sql.ANY_ENTRY, parent=victim.ino) is not None:
        raise NotEmpty


def lose_name(tx: Tx, victim: Attr) -> Removed:
    """Take a name from an inode whose entry is deleted or names another inode now."""
    is_directory = victim.kind == Kind.DIRECTORY
    lost = victim.nlink if is_directory else 1
    changed = count_name(tx, victim.ino, -lost)
    left = changed.nlink
    if left == 0 and victim.kind == Kind.REGULAR:
        # The row stays as an orphan: clients may have the file open (reclaim() deletes it).
        _forget_object(tx, victim)
    elif left == 0:
        if is_directory:
            tx.run(sql.REKEY_DELETE, the_ino=victim.ino)
        tx.run(sql.INODE_DELETE, the_ino=victim.ino)
    else:
        _may_need_new_key(tx, victim.ino)
    return Removed(victim.ino, victim.kind, left, victim.epoch, changed.change)


def reclaim(tx: Tx, ino: int) -> bool:
    """Delete the row of an orphan. Its bytes may be deleted after the commit.

    Returns False if the inode is no orphan. Its bytes must not be deleted then.
    """
    tx.touch(ino)
    return tx.run(sql.INODE_DELETE, the_ino=ino) > 0


def note_renamed(tx: Tx, attr: Attr) -> None:
    """Tell the drain, and readers of the journal, that an inode and all below have other paths."""
    if attr.kind == Kind.DIRECTORY:
        tx.touch(attr.ino, journal.CHANGED | journal.BELOW)
        _add_rekey(tx, attr.ino)
    elif attr.kind == Kind.REGULAR:
        _may_need_new_key(tx, attr.ino)


def _forget_object(tx: Tx, victim: Attr) -> None:
    ino = victim.ino
    row = tx.one(sql.OBJECT_KEY, ino=ino)
    if row is None:
        # Most deleted files were never in the bucket, so they never had a wrong key.
        return
    tx.run(sql.REKEY_DELETE, the_ino=ino)
    tx.run(sql.OBJECT_DELETE, the_ino=ino)
    key, content_version, etag = row
    sql.add_tombstone(tx, tx.now_ns, key, ino, content_version, etag, victim.generation)


def _may_need_new_key(tx: Tx, ino: int) -> None:
    if tx.one(sql.OBJECT_KEY, ino=ino) is not None:
        _add_rekey(tx, ino)


def _add_rekey(tx: Tx, ino: int) -> None:
    if tx.one(sql.REKEY, ino=ino) is None:
        tx.run(sql.REKEY_INSERT, ino=ino, renamed_ns=tx.now_ns)
