"""Links of ``/.spillway/runs``, which name checkpoints that may not change while they are there.

A link is put in its place by a rename of the gateway, in the transaction that finds the checkpoint
as it was when it was found complete. From then on ``Tx.named`` refuses the first change of the
checkpoint until the link is gone. A start reads the links that are there.
"""

from __future__ import annotations

from functools import partial

from sqlalchemy import literal_column, select

from gateway.common.errors import Busy
from gateway.common.types import Extent, InodeKind
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.latest_links import LatestLink, LinkGuards
from gateway.db.models import RUNS_INO
from gateway.db.writer import Tx
from gateway.namespace import fingerprint
from gateway.namespace.lookup import way_down

EXTENT = Statement(select(sql.checkpoint.c.extent).where(sql.checkpoint.c.ino == b("ino")))
DIRECTORIES = Statement(
    select(sql.inode.c.ino)
    .select_from(sql.TREE.join(sql.inode, sql.inode.c.ino == sql.TREE.c.ino))
    .where(sql.IS_DIRECTORY)
)
"""Selects the directories at and below an inode."""
LINKS = Statement(
    select(sql.dirent.c.parent, sql.dirent.c.name, sql.inode.c.target)
    .select_from(
        sql.TREE.join(sql.dirent, sql.dirent.c.ino == sql.TREE.c.ino).join(
            sql.inode, sql.inode.c.ino == sql.TREE.c.ino
        )
    )
    .where(sql.inode.c.kind == literal_column(f"{InodeKind.SYMLINK:d}"))
)
"""Selects the symbolic links below an inode."""


def load(session: Session, named: LinkGuards) -> None:
    """Guard what the links that are there name. A link that leads nowhere guards nothing."""
    for directory, name, target in session.all(LINKS, top=RUNS_INO):
        if way := _way(session, bytes(target)):
            named.add(LatestLink(directory, bytes(name)), _inside(session, way[-1]), way)


def seen(session: Session, ino: int) -> int:
    """Return the number of the fingerprint of the members of a checkpoint."""
    make = fingerprint.of if _is_tree(session, ino) else fingerprint.flat
    return make(session, ino).number


def place(tx: Tx, link: LatestLink, target: bytes, number: int) -> None:
    """Guard what a link names that is put in its place in this operation.

    Raises Busy if it is another one by now, or nothing is there.

    Args:
        target: target of the link.
        number: what ``seen`` gave when the checkpoint to which it leads was found complete.
    """
    way = _way(tx, target)
    if not way or seen(tx, way[-1]) != number:
        raise Busy
    tx.named.add(link, _inside(tx, way[-1]), way)


def placed(tx: Tx, link: LatestLink) -> None:
    """The link of ``place`` is in its place: what it named before is guarded until the commit."""
    *before, _now = tx.named.of(link)
    tx.after_commit(partial(tx.named.drop, link, before))


def removed(tx: Tx, link: LatestLink) -> None:
    """A link is gone, or was never there. The journal names its checkpoint: if nothing of the
    checkpoint changes after all, it must be named again."""
    guards = tx.named.of(link)
    for guard in guards:
        tx.touch(guard.ino)
    if guards:
        tx.after_commit(partial(tx.named.drop, link, guards))


def opened(tx: Tx, ino: int) -> None:
    """A file is about to be opened for writing. Raises HeldByLatestLink."""
    if not tx.named:
        return
    tx.named.entered(ino)
    for directory, _name in tx.all(sql.NAMES, ino=ino):
        tx.named.entered(directory)


def _way(session: Session, target: bytes) -> list[int]:
    """Return what a path leads through and to, or nothing if it leads nowhere.

    It begins with the way up to the export's root.

    Args:
        target: target of a link.
    """
    names = [name for name in target.split(b"/") if name != b".."]
    way = [attr.ino for attr in way_down(session, names)]
    return way if len(way) == len(names) else []


def _is_tree(session: Session, ino: int) -> bool:
    row = session.one(EXTENT, ino=ino)
    return row is None or row[0] == Extent.TREE


def _inside(session: Session, ino: int) -> list[int]:
    if not _is_tree(session, ino):
        return [ino]
    return [directory for (directory,) in session.all(DIRECTORIES, top=ino)] or [ino]
