"""Rename in one transaction: every observer and every crash sees all of it or nothing.

NFSv4 RENAME: RFC 8881 section 18.26.
"""

from __future__ import annotations

from sqlalchemy import literal_column, select, update

from gateway.common.errors import (
    AccessDenied,
    Busy,
    CrossesItself,
    Exists,
    IsADirectory,
    NotADirectory,
    NotFound,
    ReadOnly,
    TryAgain,
)
from gateway.common.types import Attr, Cred, InodeKind, RemovedName
from gateway.db import statements as sql
from gateway.db.compiled import Statement, b
from gateway.db.latest_links import LatestLink
from gateway.db.models import TRASH_INO
from gateway.db.writer import Tx
from gateway.namespace import attributes, fingerprint, latest_links
from gateway.namespace.lookup import (
    check_name,
    check_new_name,
    find,
    get_directory,
    readlink,
    way_up,
)
from gateway.namespace.names import (
    count_name,
    directory_changed,
    lose_name,
    note_renamed,
    require_empty,
)
from gateway.namespace.rotation import LostName

_PASSAGE = Statement(
    select(sql.trash.c.ino).where(
        sql.trash.c.ino == b("ino"),
        sql.trash.c.state == b("state"),
        sql.trash.c.since_ns == b("since_ns"),
    )
)
"""Selects the row that lets a checkpoint into the trash, or out of it (gateway.lifecycle.trash)."""


_HELD = Statement(
    select(sql.trash.c.ino).where(sql.trash.c.ino == b("ino"), sql.trash.c.rotated.is_not(None))
)
"""Selects an entry of the trash if it is what clients removed of a checkpoint."""
_UNRESERVE = Statement(
    update(sql.inode).where(sql.inode.c.ino == b("the_ino")).values(reserved=literal_column("0"))
)


def rename(
    tx: Tx,
    cred: Cred,
    old_parent: int,
    old_name: bytes,
    new_parent: int,
    new_name: bytes,
    seen: int,
    only: int = 0,
) -> tuple[Attr, RemovedName | None]:
    """Move a name, and replace an inode that has the new name (RFC 8881 section 18.26, POSIX).

    Returns the moved inode and what was replaced. If both names are of one inode, nothing happens.
    Data files are named by inode number, so no byte moves. What is in a reserved directory is
    reserved, and what is in another one is not, except for the directory of an import, and for what
    was just taken out of the trash.

    Into the trash and out of it, it is 1 more than ``trash.since_ns``: Busy is raised if no row
    lets the checkpoint pass, and Exists if the new name is taken, because nothing is replaced. For
    what a client removed of a checkpoint, and is taken back by itself, it is the number of its
    fingerprint. Otherwise a link moves, and it is that of the fingerprint of what the link leads to
    (gateway.namespace.latest_links). only, the inode to move, or 0 for any: if the old name is
    another inode's by now, TryAgain is raised. Raises also NotFound, the type errors, NotEmpty,
    CrossesItself, AccessDenied, NotPermitted, ReadOnly, HeldByLatestLink, Stale.

    Args:
        seen: 0, or a number for what the gateway moves.
    """
    moved = find(tx, old_parent, old_name) if seen else None
    is_taken_back = False
    if moved is not None and TRASH_INO in (old_parent, new_parent):
        if find(tx, new_parent, new_name) is not None:
            raise Exists
        is_taken_back = old_parent == TRASH_INO
        state = "returning" if is_taken_back else "putting"
        if tx.one(_PASSAGE, ino=moved.ino, state=state, since_ns=seen - 1) is None:
            raise Busy
    elif moved is not None and _is_held(tx, moved, old_parent):
        if find(tx, new_parent, new_name) is not None:
            raise Exists
        if fingerprint.of(tx, moved.ino).number != seen:
            raise Busy
        done = _rename(tx, cred, old_parent, old_name, new_parent, new_name, 0, True)
        tx.run(_UNRESERVE, the_ino=moved.ino)
        return done
    elif moved is not None:
        link = LatestLink(new_parent, new_name)
        latest_links.place(tx, link, readlink(tx, moved.ino), seen)
        done = _rename(tx, cred, old_parent, old_name, new_parent, new_name)
        latest_links.placed(tx, link)
        return done
    return _rename(tx, cred, old_parent, old_name, new_parent, new_name, only, is_taken_back)


def _rename(
    tx: Tx,
    cred: Cred,
    old_parent: int,
    old_name: bytes,
    new_parent: int,
    new_name: bytes,
    only: int = 0,
    is_taken_back: bool = False,
) -> tuple[Attr, RemovedName | None]:
    check_name(old_name)
    check_new_name(new_parent, new_name)
    moved = find(tx, old_parent, old_name)
    if moved is None:
        source_dir, _ = _directories(tx, old_parent, new_parent)
        attributes.require_entry_change(source_dir, cred)
        raise NotFound
    if only not in (0, moved.ino):
        raise TryAgain
    if (moved.reserved or cred.is_gateway) and not is_taken_back:
        _require_alike(tx, moved, new_parent, cred)
    replaced = find(tx, new_parent, new_name)
    if replaced is not None or moved.kind == InodeKind.DIRECTORY:
        # These checks refuse often, and a refusal is cheap only before the first change.
        source_dir, target_dir = _directories(tx, old_parent, new_parent)
        attributes.require_removal(source_dir, moved, cred)
        attributes.require_entry_change(target_dir, cred)
        if replaced is not None:
            if replaced.ino == moved.ino:
                return moved, None
            attributes.require_removal(target_dir, replaced, cred)
            _require_replaceable(moved, replaced)
        if moved.kind == InodeKind.DIRECTORY and old_parent != new_parent:
            _require_movable(tx, moved, new_parent, cred)
        if replaced is not None:
            # This check comes before the entry moves: the entry may be in the replaced directory.
            require_empty(tx, replaced)

    source_dir, target_dir = _change_directories(tx, moved, replaced, old_parent, new_parent)
    attributes.require_removal(source_dir, moved, cred)
    attributes.require_entry_change(target_dir, cred)
    _require_unnamed(tx, moved, replaced, old_parent, new_parent)
    if replaced is None:
        removed = None
        tx.run(
            sql.DIRENT_MOVE,
            the_parent=old_parent,
            the_name=old_name,
            new_parent=new_parent,
            new_name=new_name,
            new_cookie=tx.new_cookie(),
        )
    else:
        tx.run(sql.DIRENT_DELETE, the_parent=old_parent, the_name=old_name)
        # The new name keeps its cookie, so a listing in progress shows the name once.
        tx.run(sql.DIRENT_REPLACE, the_parent=new_parent, the_name=new_name, new_ino=moved.ino)
        gone = LostName(new_parent, new_name, cred.uid, is_replaced=True)
        removed = lose_name(tx, replaced, gone)
    note_renamed(tx, moved)
    return count_name(tx, moved.ino, 0), removed


def _require_unnamed(
    tx: Tx, moved: Attr, replaced: Attr | None, old_parent: int, new_parent: int
) -> None:
    """Require that no link names a checkpoint that the rename changes. Raises HeldByLatestLink."""
    tx.named.entered(old_parent)
    tx.named.entered(new_parent)
    tx.named.moved(moved.ino)
    if replaced is not None:
        tx.named.moved(replaced.ino)


def _is_held(tx: Tx, moved: Attr, directory: int) -> bool:
    """Return whether an inode is what a client removed of a checkpoint: it is taken back by itself,
    because the rest of the checkpoint may still be at its path."""
    if moved.kind == InodeKind.DIRECTORY:
        return False
    for ino, parent, _name in way_up(tx, directory):
        if parent == TRASH_INO:
            return tx.one(_HELD, ino=ino) is not None
    return False


def _directories(tx: Tx, old_parent: int, new_parent: int) -> tuple[Attr, Attr]:
    source_dir = get_directory(tx, old_parent)
    return source_dir, source_dir if new_parent == old_parent else get_directory(tx, new_parent)


def _require_alike(tx: Tx, moved: Attr, directory: int, cred: Cred) -> None:
    """Require that an inode and a directory are both reserved, or none. The directory of an import
    has a place among those of clients. Raises ReadOnly, NotADirectory, Stale."""
    if get_directory(tx, directory).reserved == moved.reserved:
        return
    if not cred.is_gateway or tx.one(sql.IMPORT_TOP, top=moved.ino) is None:
        raise ReadOnly


def _require_replaceable(moved: Attr, replaced: Attr) -> None:
    """Require that both inodes are directories, or none. Raises NotADirectory, IsADirectory.

    Ganesha checked the types too, but another client may have changed the name since.
    """
    if moved.kind == InodeKind.DIRECTORY and replaced.kind != InodeKind.DIRECTORY:
        raise NotADirectory
    if moved.kind != InodeKind.DIRECTORY and replaced.kind == InodeKind.DIRECTORY:
        raise IsADirectory


def _change_directories(
    tx: Tx, moved: Attr, replaced: Attr | None, old_parent: int, new_parent: int
) -> tuple[Attr, Attr]:
    """Change both directories. Each subdirectory counts as a link of its parent.

    Returns the old and the new parent as they are now.
    """
    comes = int(moved.kind == InodeKind.DIRECTORY)
    goes = int(replaced is not None and replaced.kind == InodeKind.DIRECTORY)
    if old_parent == new_parent:
        directory = directory_changed(tx, old_parent, links=-goes)
        return directory, directory
    if comes:
        tx.run(sql.REPARENT, the_ino=moved.ino, new_parent=new_parent)
    source_dir = directory_changed(tx, old_parent, links=-comes)
    return source_dir, directory_changed(tx, new_parent, links=comes - goes)


def _require_movable(tx: Tx, directory: Attr, new_parent: int, cred: Cred) -> None:
    """Require that the caller may write a directory, whose ``..`` changes. Refuse to move it below
    itself: it would be lost with all that is in it."""
    if not attributes.allowed(directory, cred, attributes.WRITE):
        raise AccessDenied
    _require_outside(tx, directory.ino, new_parent)


def _require_outside(tx: Tx, moved: int, new_parent: int) -> None:
    at = new_parent
    while True:
        if at == moved:
            raise CrossesItself
        row = tx.one(sql.PARENT, ino=at)
        if row is None or row[0] == at:
            return
        at = row[0]
