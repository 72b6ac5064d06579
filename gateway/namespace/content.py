"""Life cycle of a regular file's bytes in the database: open for writing, sealed, damaged.

The content version moves durably before the first byte of the new version is written. So an upload
of the old version can never be published as the new one.

``answer`` says whether a CLOSE must wait until the bucket has the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from sqlalchemy import and_, select

from gateway.common.errors import Busy, InvalidArgument, ReadOnly, Stale, TryAgain
from gateway.common.types import Attr, InodeKind, Sealed
from gateway.config.acknowledge import Acknowledge
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import ROOT_INO
from gateway.db.statements import damage, inode, object_
from gateway.db.writer import Tx
from gateway.namespace import latest_links
from gateway.namespace.lookup import get, way_up
from gateway.namespace.residency import (
    HAS_CONTENT,
    IS_CERTAIN,
    IS_DRAINED,
    give_up_copy,
    open_emptied,
)

STORED = Statement(
    select(inode.c.ino)
    .select_from(inode.join(object_, object_.c.ino == inode.c.ino))
    .where(inode.c.ino == b("ino"), and_(*IS_DRAINED, *HAS_CONTENT, *IS_CERTAIN))
)
"""Selects a sealed file if the bucket has its present version, and nothing can change that."""
CLOSED = Statement(
    select(inode.c.ino).where(
        inode.c.ino == b("ino"),
        inode.c.content_version == b("version"),
        inode.c.write_open == 0,
        inode.c.nlink > 0,
    )
)
"""Selects a file if it is closed and of a version."""
DAMAGED = Statement(select(damage.c.ino).where(damage.c.ino == b("ino")))


class CloseAnswer(IntEnum):
    """The values of ``enum spw_ack``."""

    LOCAL = 0
    """Nothing is asked of the bucket: other path, a name that is not final, or no name."""
    STORED = 1
    """The bucket has the file as it is, at the key of its path."""
    WAITS = 2
    FAILED = 3
    """The file is damaged: it is not uploaded before it is emptied."""


def answer(session: Session, rules: Acknowledge, ino: int) -> CloseAnswer:
    """Say what a CLOSE of a file means now. Nothing waits for a file without a name."""
    paths = list(_paths(session, ino))
    if not any(rules.covers(parts) for parts, _inos in paths):
        return CloseAnswer.LOCAL
    if session.one(DAMAGED, ino=ino) is not None:
        return CloseAnswer.FAILED
    is_stored = session.one(STORED, ino=ino) is not None
    # A rename above has not reached the bucket: the object is at the key of the path before.
    is_moved = any(
        session.one(sql.REKEY, ino=above) is not None for _parts, inos in paths for above in inos
    )
    return CloseAnswer.STORED if is_stored and not is_moved else CloseAnswer.WAITS


def is_urgent(session: Session, rules: Acknowledge, ino: int) -> bool:
    """Return whether a client may wait for a file: it is drained without time to settle."""
    return any(rules.covers(parts) for parts, _inos in _paths(session, ino))


def _paths(session: Session, ino: int) -> Iterator[tuple[tuple[bytes, ...], tuple[int, ...]]]:
    """Yield the paths of a file, each with the directories that it leads through."""
    for parent, name in session.all(sql.NAMES, ino=ino):
        way = list(way_up(session, parent))
        if (way[-1][1] if way else parent) == ROOT_INO:
            names = (name for _at, _parent, name in reversed(way))
            yield (*names, name), tuple(at for at, _parent, _name in way)


CRASH_CHANGE_STEP = 1 << 32
"""Added to ``change`` when a file is sealed after a crash. It is more than the number of writes
that the file can have had, so a value that a client saw never comes back for other bytes."""


def open_write(tx: Tx, ino: int, is_emptied: bool = False) -> Attr:
    """Open a file for its first writer. From here on the data file is newer than the bucket.

    Raises TryAgain for an absent file that is not emptied; HeldByLatestLink; ReadOnly;
    InvalidArgument if the inode is not a regular file; Stale.

    Args:
        is_emptied: whether the writer empties the file before it writes.
    """
    latest_links.opened(tx, ino)
    row = tx.change(sql.OPEN_WRITE, the_ino=ino)
    if row is None:
        attr = get(tx, ino)
        if attr.kind != InodeKind.REGULAR:
            raise InvalidArgument
        if attr.reserved:
            raise ReadOnly
        emptied = open_emptied(tx, ino) if is_emptied else None
        if emptied is None:
            raise TryAgain
        return emptied
    tx.touch(ino)
    return Attr(*row)


def seal(
    tx: Tx, ino: int, data: Sealed, settle_ns: int, acknowledge: Acknowledge | None = None
) -> Attr:
    """Seal a file whose last writer closed and whose bytes are on stable storage.

    Without writes the content stays the same version as before. Bytes that were written into a file
    that is not open for writing are a new version: their writer did not know that the file was
    sealed.

    Raises Stale.

    Args:
        settle_ns: the time to settle.
        acknowledge: the rules about files whose CLOSE waits for the bucket: these do not settle.
    """
    if acknowledge and is_urgent(tx, acknowledge, ino):
        settle_ns = 0
    drain_after_ns = tx.now_ns + settle_ns
    tx.touch(ino)
    if data.writes == 0:
        row = tx.change(sql.SEAL_UNCHANGED, the_ino=ino, drain_after_ns=drain_after_ns)
        if row is None:
            return get(tx, ino)
        drained_version, *attr = row
        if drained_version > 0 and tx.run(sql.SAME_CONTENT, the_ino=ino):
            tx.run(sql.SAME_CONTENT_OBJECT, the_ino=ino)
        return Attr(*attr)
    row = tx.change(
        sql.SEAL,
        the_ino=ino,
        size=data.size,
        used=data.used,
        mtime_ns=data.mtime_ns,
        written_ns=min(data.mtime_ns, tx.now_ns),
        writes=data.writes,
        drain_after_ns=drain_after_ns,
    )
    return get(tx, ino) if row is None else Attr(*row)


def damaged(tx: Tx, ino: int, reason: str) -> None:
    """Record that bytes of a file are lost. Until it is emptied it is neither sealed nor drained.

    Raises Stale.

    Args:
        reason: one line for a person.
    """
    row = tx.one(sql.CONTENT_VERSION, ino=ino)
    if row is None:
        raise Stale
    tx.run(sql.DAMAGE_DELETE, the_ino=ino)
    tx.run(sql.DAMAGE_INSERT, ino=ino, content_version=row[0], reason=reason, noted_ns=tx.now_ns)
    tx.touch(ino)


def lost(tx: Tx, ino: int, reason: str, content_version: int = 0, is_stored: bool = True) -> Attr:
    """Give up the data file of a file: it lacks bytes, or the disk cannot read it.

    The file becomes absent, to be fetched again, if the bucket has it. If not, it is damaged. The
    caller moves the data file aside once an absent file is durable.

    Raises Busy if the file has another version or is open for writing; Stale.

    Args:
        reason: one line for a person.
        content_version: of which another process found it, after which it is fetched at once. 0:
            the present one.
        is_stored: whether the rows are right if they say that the bucket has the file.
    """
    if content_version and tx.one(CLOSED, ino=ino, version=content_version) is None:
        get(tx, ino)
        raise Busy
    attr = give_up_copy(tx, ino, content_version > 0) if is_stored else None
    if attr is None:
        damaged(tx, ino, reason)
        return get(tx, ino)
    return attr


def whole(tx: Tx, ino: int) -> None:
    """Delete the record of damage of a file that was emptied: it has no lost bytes any more."""
    tx.run(sql.DAMAGE_DELETE, the_ino=ino)
    tx.touch(ino)
