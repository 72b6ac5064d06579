"""Removes names, and inodes that have no name left."""

from __future__ import annotations

from gateway.db import statements as sql
from gateway.db.named import Link
from gateway.db.writer import Tx
from gateway.errors import NotFound
from gateway.namespace import naming, permissions
from gateway.namespace.entries import directory_changed, lose_name, require_empty
from gateway.namespace.lookup import check_name, find, get_directory
from gateway.namespace.rotation import Gone
from gateway.types import Cred, Kind, Removed


def remove(
    tx: Tx, cred: Cred, parent: int, name: bytes, only: tuple[int, int] | None = None
) -> Removed:
    """Remove a file, link or empty directory by name (NFSv4 REMOVE does not tell them apart).

    The bucket may keep what it has of a checkpoint (gateway.namespace.rotation): then the inode has
    a name in the trash.

    Parameters: only, inode number and ``change`` (0: any) of the inode that may be removed; any
    other inode with the name stays. Raises NotFound, NotEmpty, AccessDenied, NotPermitted,
    StillNamed, Stale.
    """
    check_name(name)
    victim = find(tx, parent, name)
    if victim is not None and only is not None:
        ino, change = only
        if ino != victim.ino or change not in (0, victim.change):
            raise NotFound
    if victim is None:
        naming.removed(tx, Link(parent, name))
        permissions.require_entry_change(get_directory(tx, parent), cred)
        raise NotFound
    is_directory = victim.kind == Kind.DIRECTORY
    if is_directory:
        # These checks refuse often, and a refusal is cheap only before the first change.
        permissions.require_removal(get_directory(tx, parent), victim, cred)
        require_empty(tx, victim)
    directory = directory_changed(tx, parent, links=-int(is_directory))
    permissions.require_removal(directory, victim, cred)
    tx.named.entered(parent)
    tx.named.moved(victim.ino)
    tx.run(sql.DIRENT_DELETE, the_parent=parent, the_name=name)
    lost = lose_name(tx, victim, Gone(parent, name, cred.uid))
    naming.removed(tx, Link(parent, name))
    return lost


def reclaim(tx: Tx, ino: int) -> bool:
    """Delete the row of an orphan. Its bytes may be deleted after the commit.

    The row is gone already if an earlier call was committed that got no answer. Returns False if
    the inode is no orphan. Its bytes must not be deleted then.
    """
    tx.touch(ino)
    is_deleted = tx.run(sql.INODE_DELETE, the_ino=ino) > 0
    return is_deleted or tx.one(sql.CONTENT_VERSION, ino=ino) is None
