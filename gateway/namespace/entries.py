"""Changes directory entries, and what a change of a name means for the inode and the drain.

The verbs that make, move and take away names use this module. It knows no verb.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Statement
from gateway.db.writer import Tx
from gateway.errors import NotADirectory, NotEmpty, Stale
from gateway.namespace import rotation
from gateway.namespace.rotation import Gone
from gateway.types import Attr, Kind, Removed


def directory_changed(tx: Tx, ino: int, links: int = 0) -> Attr:
    """Move mtime, ctime and change of a directory whose entries change.

    Parameters: links, how many subdirectories come (negative: go). Returns the directory as it is
    now. Raises Stale, NotADirectory.
    """
    row = tx.change(sql.DIRECTORY_CHANGED, the_ino=ino, delta=links, now_ns=tx.now_ns)
    if row is None:
        raise Stale
    directory = Attr(*row)
    if directory.kind != Kind.DIRECTORY:
        raise NotADirectory
    tx.directories.append(directory)
    tx.touch(ino)
    return directory


def require_empty(tx: Tx, victim: Attr) -> None:
    """Raise NotEmpty for a directory with entries."""
    if victim.kind == Kind.DIRECTORY and tx.one(sql.ANY_ENTRY, parent=victim.ino) is not None:
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


def lose_name(tx: Tx, victim: Attr, gone: Gone | None = None) -> Removed:
    """Take a name from an inode whose entry is deleted or names another inode now.

    Parameters: gone, the name, if a client asks. The inode may get one in the trash instead
    (gateway.namespace.rotation).
    """
    is_directory = victim.kind == Kind.DIRECTORY
    stored = None
    if victim.nlink == 1 and victim.kind == Kind.REGULAR:
        stored = tx.one(sql.OBJECT_KEY, ino=victim.ino)
    if gone is not None and victim.nlink == 1 and not victim.reserved:
        # Most deleted files were never in the bucket: nothing more is asked about them.
        may_be_held = stored is not None or victim.kind == Kind.SYMLINK
        if may_be_held and (held := rotation.hold(tx, victim, gone)) is not None:
            return held
    lost = victim.nlink if is_directory else 1
    left, change = _count(tx, sql.NAME_LOST, victim.ino, -lost)
    if left == 0 and victim.kind == Kind.REGULAR:
        # The row stays as an orphan: clients may have the file open (reclaim() deletes it).
        if stored is not None:
            _forget_object(tx, victim, stored)
    elif left == 0:
        if is_directory:
            tx.run(sql.REKEY_DELETE, the_ino=victim.ino)
        tx.run(sql.INODE_DELETE, the_ino=victim.ino)
    else:
        _may_need_new_key(tx, victim.ino)
    return Removed(victim.ino, victim.kind, left, victim.epoch, change)


def note_renamed(tx: Tx, attr: Attr) -> None:
    """Tell the drain, and readers of the journal, that an inode and all below have other paths."""
    if attr.kind == Kind.DIRECTORY:
        tx.touch(attr.ino, journal.CHANGED | journal.BELOW)
        _add_rekey(tx, attr.ino)
    elif attr.kind == Kind.REGULAR:
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
