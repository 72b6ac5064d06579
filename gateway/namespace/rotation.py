"""Rotation of checkpoints: holds what clients remove before the bucket has a newer checkpoint.

A job that rotates its checkpoints removes the old one when the new one is on the gateway, hours
before the new one is in the bucket. So if a file is of the newest durable checkpoint of its run,
the removal of its last name is another operation: in the same transaction the file gets a name in
the trash, and keeps its object. Clients see no difference. What leaves the trash again, and why, is
in gateway.lifecycle.trash.

The trash has an entry for each such checkpoint: a directory with the paths that its files had in
it, or the file that it consists of.

``insert_inode`` inserts the row of any new inode of the NFS server.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    bindparam,
    delete,
    exists,
    insert,
    literal_column,
    or_,
    select,
    union_all,
    update,
)

from gateway.common import clock
from gateway.common.clock import ElapsedTime
from gateway.common.errors import SpillwayError
from gateway.common.text import bytes_of
from gateway.common.types import Attr, Extent, InodeKind, RemovedName, Residency
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import ROOT_INO, TRASH_INO
from gateway.db.statements import checkpoint, checkpoint_record, inode, pin, trash
from gateway.db.writer import Tx
from gateway.namespace.lookup import check_name, find, get, way_down, way_up


def insert_inode(
    session: Session | Tx,
    now_ns: int,
    *,
    ino: int,
    generation: int,
    kind: int,
    mode: int,
    nlink: int,
    uid: int = 0,
    gid: int = 0,
    size: int = 0,
    used: int = 0,
    atime_ns: int | None = None,
    mtime_ns: int | None = None,
    rdev: int = 0,
    reserved: int = 0,
    parent: int | None = None,
    charged_to: int | None = None,
    target: bytes | None = None,
    verifier: bytes | None = None,
    drained_version: int = 0,
    write_open: int = 0,
    residency: int = Residency.RESIDENT,
) -> Attr:
    """Insert an inode of version 0, or 1 if it is a file. The caller gives it its name.

    Args:
        now_ns: its times that are not given.
        parent: of a directory; this and the others are columns of ``inode``.
        charged_to: the directory that gets its name, if that is known (its name does the same).
    """
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
        atime_ns=now_ns if atime_ns is None else atime_ns,
        mtime_ns=now_ns if mtime_ns is None else mtime_ns,
        ctime_ns=now_ns,
        btime_ns=now_ns,
        change=1,
        rdev=rdev,
        epoch=0,
        residency=residency,
        reserved=reserved,
    )
    rest = {"target": target, "verifier": verifier, "parent": parent, "charged_to": charged_to}
    rest |= {"drained_version": drained_version, "drain_after_ns": 0, "write_open": write_open}
    version = int(kind == InodeKind.REGULAR)
    session.run(sql.INODE_INSERT, **attr._asdict(), **rest, content_version=version)
    return attr


DURABLE = "durable"
TRUSTED = ("listed", "alike")
"""State and grades of a checkpoint for which an older one may leave the bucket: those of
gateway.catalogue.facts, which knows this package."""
SILLY = b".nfs"
"""A client that has a removed file open gives it a name that begins so, and removes that later."""
UNTIL_MAX_NS = (1 << 63) - 1


class LostName(NamedTuple):
    """The name that an inode lost."""

    parent: int
    name: bytes
    uid: int
    """The user in whose name a client asked."""
    is_replaced: bool = False
    """Whether another inode has the name now."""


class _Checkpoint(NamedTuple):
    """A durable checkpoint, from its record."""

    ino: int
    run: bytes
    completion: int | None
    complete_ns: int
    step: int | None
    has_newer: bool


_newer_record: Any = checkpoint_record.alias("newer_record")
_newer: Any = checkpoint.alias("newer")


def newer_than(run: Any, completion: Any) -> Any:
    """Return the condition that a run has a durable checkpoint that can be trusted and is newer.

    It does not hold if completion is NULL.

    Args:
        run, completion: expressions.
    """
    return exists().where(
        _newer_record.c.run == run,
        _newer_record.c.completion > completion,
        _newer.c.ino == _newer_record.c.ino,
        _newer.c.state == literal_column(f"'{DURABLE}'"),
        _newer.c.grade.in_([literal_column(f"'{grade}'") for grade in TRUSTED]),
    )


_start: Any = union_all(
    select(bindparam("victim", type_=BigInteger).label("ino"), literal_column("0").label("depth")),
    select(bindparam("parent", type_=BigInteger), literal_column("1")),
).subquery("here")
_up: Any = select(_start.c.ino, _start.c.depth).cte("below", recursive=True)
_up = _up.union_all(
    select(inode.c.parent, _up.c.depth + literal_column("1"))
    .select_from(_up.join(inode, inode.c.ino == _up.c.ino))
    .where(_up.c.depth > literal_column("0"), inode.c.parent != inode.c.ino)
)
DURABLE_ABOVE = Statement(
    select(
        checkpoint_record.c.ino,
        checkpoint_record.c.run,
        checkpoint_record.c.completion,
        checkpoint_record.c.complete_ns,
        checkpoint.c.step,
        newer_than(checkpoint_record.c.run, checkpoint_record.c.completion),
    )
    .select_from(
        _up.join(checkpoint_record, checkpoint_record.c.ino == _up.c.ino).outerjoin(
            checkpoint, checkpoint.c.ino == checkpoint_record.c.ino
        )
    )
    .where(
        checkpoint_record.c.durable_ns.is_not(None),
        or_(
            checkpoint.c.extent.is_(None),
            checkpoint.c.extent != literal_column(f"{Extent.FILES:d}"),
            _up.c.depth == literal_column("1"),
        ),
    )
    .order_by(_up.c.depth)
    .limit(1)
)
"""Selects the checkpoint that an inode was of, with one statement: most files are of none. The
parameters are victim, and parent, the directory that had its name."""
IN_BUCKET = Statement(
    select(inode.c.ino).where(
        inode.c.ino == b("ino"),
        inode.c.write_open == literal_column("0"),
        inode.c.content_version == inode.c.drained_version,
    )
)
"""Selects a file if the bucket has it as it is, and no client writes into it."""
HOLD = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(reserved=literal_column("1"), ctime_ns=b("now_ns"), change=inode.c.change + 1)
    .returning(inode.c.change)
)
ENTRIES_OF = Statement(
    select(trash.c.ino, trash.c.completion).where(
        trash.c.rotated.is_not(None),
        trash.c.rotated == b("ino"),
        trash.c.state == literal_column("'kept'"),
        trash.c.released_by.is_(None),
    )
)
"""Selects the entries to which files of a checkpoint can still be added."""
ENTRY_DELETE = Statement(delete(trash).where(trash.c.ino == b("the_ino")))
ENTRY_INSERT = Statement(insert(trash))
COUNT = Statement(
    update(trash)
    .where(trash.c.ino == b("the_ino"))
    .values(files=trash.c.files + b("files"), size=trash.c.size + b("bytes"))
)
_COPIED = [column.name for column in checkpoint_record.c if column.name != "ino"]
RECORD_COPY = Statement(
    insert(checkpoint_record).from_select(
        ["ino", *_COPIED],
        select(
            bindparam("the_ino", type_=BigInteger),
            *(checkpoint_record.c[column] for column in _COPIED),
        ).where(checkpoint_record.c.ino == b("ino")),
    )
)
PIN_DELETE = Statement(delete(pin).where(pin.c.ino == b("the_ino")))


def hold(tx: Tx, victim: Attr, gone: LostName) -> RemovedName | None:
    """Give the last name of an inode in the trash to it, if the bucket must keep what it has of it.

    The caller has taken the name away, and found that a file has an object. Returns None if the
    inode is to be removed as any other.
    """
    record_row = tx.one(DURABLE_ABOVE, victim=victim.ino, parent=gone.parent)
    if record_row is None:
        return None
    durable_checkpoint = _Checkpoint(*record_row)
    if durable_checkpoint.has_newer or (durable_checkpoint.ino == victim.ino and gone.is_replaced):
        # The object of a single file is replaced by that of the newer one at once.
        return None
    if victim.kind == InodeKind.REGULAR and tx.one(IN_BUCKET, ino=victim.ino) is None:
        return None
    if not (_hold_file if durable_checkpoint.ino == victim.ino else _hold_member)(
        tx, durable_checkpoint, victim, gone
    ):
        return None
    tx.run(PIN_DELETE, the_ino=victim.ino)
    row = tx.change(HOLD, the_ino=victim.ino, now_ns=tx.now_ns)
    assert row is not None, "an entry without an inode"
    tx.touch(victim.ino)
    return RemovedName(victim.ino, victim.kind, victim.nlink, victim.epoch, row[0])


def _hold_file(tx: Tx, held_checkpoint: _Checkpoint, victim: Attr, gone: LostName) -> bool:
    """Put a checkpoint that is one file into the trash. Returns False if there is no trash."""
    if not _is_there(tx):
        return False
    name = _member_name(tx, victim, gone)
    _add_entry(tx, held_checkpoint, victim.ino, [*_path(tx, gone.parent), name], gone)
    _count(tx, victim.ino, victim)
    tx.run(
        sql.DIRENT_INSERT,
        parent=TRASH_INO,
        name=_id_of(victim.ino),
        ino=victim.ino,
        cookie=tx.new_cookie(),
    )
    return True


def _hold_member(tx: Tx, held_checkpoint: _Checkpoint, victim: Attr, gone: LostName) -> bool:
    """Put a member of a checkpoint into the trash. Returns False if its place is taken: then it is
    not what the bucket had when the checkpoint was durable."""
    inos = [
        ino
        for ino, completion in tx.all(ENTRIES_OF, ino=held_checkpoint.ino)
        if completion == held_checkpoint.completion
    ]
    if not inos and not _is_there(tx):
        return False
    name = _member_name(tx, victim, gone)
    top = inos[0] if inos else _make_entry(tx, held_checkpoint, gone)
    at = top
    for ino, below in _between(tx, held_checkpoint.ino, gone.parent):
        inside = find(tx, at, below)
        if inside is not None and inside.kind != InodeKind.DIRECTORY:
            return False
        at = _make_directory(tx, at, below, get(tx, ino)) if inside is None else inside.ino
    if find(tx, at, name) is not None:
        return False
    tx.run(sql.DIRENT_INSERT, parent=at, name=name, ino=victim.ino, cookie=tx.new_cookie())
    _count(tx, top, victim)
    return True


def _is_there(session: Session) -> bool:
    """Return whether the namespace has a trash."""
    return session.one(sql.GET, ino=TRASH_INO) is not None


def _member_name(session: Session, victim: Attr, gone: LostName) -> bytes:
    """Return the name that a member had. A client with the file open gave it another one, and its
    object still has the first."""
    row = session.one(sql.OBJECT_KEY, ino=victim.ino) if gone.name.startswith(SILLY) else None
    if row is None:
        return gone.name
    name = bytes_of(row[0].rpartition("/")[2])
    try:
        check_name(name)
    except SpillwayError:
        return gone.name
    return name


def _between(session: Session, top: int, ino: int) -> list[tuple[int, bytes]]:
    """Return the directories on the way from a directory down to another one, with the latter."""
    directories: list[tuple[int, bytes]] = []
    for at, _parent, name in way_up(session, ino):
        if at == top:
            break
        directories.append((at, bytes(name)))
    return directories[::-1]


def _path(session: Session, ino: int) -> list[bytes]:
    return [name for _ino, name in _between(session, ROOT_INO, ino)]


def _make_entry(tx: Tx, held_checkpoint: _Checkpoint, gone: LostName) -> int:
    """Make the directory of a checkpoint in the trash, with its row. Returns its inode."""
    made = _make_directory(tx, TRASH_INO, None, get(tx, held_checkpoint.ino))
    _add_entry(tx, held_checkpoint, made, _path(tx, held_checkpoint.ino), gone)
    # That of the checkpoint goes with its directory. What is complete after it is compared with it.
    tx.run(RECORD_COPY, the_ino=made, ino=held_checkpoint.ino)
    return made


def _make_directory(tx: Tx, parent: int, name: bytes | None, like: Attr) -> int:
    """Make a directory in the trash, as another one. Returns its inode.

    Args:
        name: name, or None for that of an entry.
    """
    # An operation has the numbers for one new name. It is undone together with this reservation.
    row = tx.one(sql.RESERVE, inos=1, cookies=1)
    assert row is not None, "the volume row is missing"
    ino, cookie = int(row[0]) - 1, int(row[1]) - 1
    insert_inode(
        tx,
        tx.now_ns,
        ino=ino,
        generation=secrets.randbits(62),
        kind=InodeKind.DIRECTORY,
        mode=like.mode,
        nlink=2,
        uid=like.uid,
        gid=like.gid,
        reserved=1,
        parent=parent,
    )
    tx.run(
        sql.DIRENT_INSERT,
        parent=parent,
        name=_id_of(ino) if name is None else name,
        ino=ino,
        cookie=cookie,
    )
    tx.change(sql.DIRECTORY_CHANGED, the_ino=parent, delta=1, now_ns=tx.now_ns)
    tx.touch(parent)
    tx.touch(ino)
    return ino


def _add_entry(
    tx: Tx, held_checkpoint: _Checkpoint, ino: int, path: Sequence[bytes], gone: LostName
) -> None:
    """Add the row of an entry. Its hours begin."""
    tx.run(ENTRY_DELETE, the_ino=ino)
    tx.run(
        ENTRY_INSERT,
        id=_id_of(ino).decode(),
        ino=ino,
        path=b"/".join(path),
        run=held_checkpoint.run,
        step=held_checkpoint.step,
        files=0,
        size=0,
        dirty_used=0,
        deleted_ns=tx.now_ns,
        since_ns=_elapsed_ns(tx),
        # The settings of those who ask say when: see gateway.lifecycle.trash.trash.
        expires_ns=UNTIL_MAX_NS,
        deleted_by=f"a client (uid {gone.uid})",
        reason="a client replaced it" if gone.is_replaced else "a client removed it",
        state="kept",
        complete_ns=held_checkpoint.complete_ns,
        stays=None,
        rotated=held_checkpoint.ino,
        completion=held_checkpoint.completion,
        run_ino=_run_of(tx, path, held_checkpoint.run),
        released_by=None,
    )


def _count(tx: Tx, ino: int, victim: Attr) -> None:
    is_file = int(victim.kind == InodeKind.REGULAR)
    tx.run(COUNT, the_ino=ino, files=is_file, bytes=victim.size * is_file)


def _run_of(session: Session, path: Sequence[bytes], run: bytes) -> int:
    """Return the directory of a run: the last one on the way to the checkpoint that the run's name
    begins with."""
    at = ROOT_INO
    for depth, attr in enumerate(way_down(session, path[:-1]), 1):
        above = b"/".join(path[:depth])
        if run != above and not run.startswith(above + b"/"):
            break
        at = attr.ino
    return at


def _elapsed_ns(session: Session) -> int:
    """Return the elapsed time. If the machine does not say when it was started, the stored one."""
    row = session.one(sql.ELAPSED_TIME)
    stored = None if row is None else ElapsedTime(*row)
    try:
        return clock.elapsed_time(clock.reading(), stored).elapsed_ns
    except OSError:
        return 0 if stored is None else stored.elapsed_ns


def _id_of(ino: int) -> bytes:
    return b"t%d" % ino
