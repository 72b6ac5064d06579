"""Adoption: binds a namespace to data files or to a bucket that it did not have before.

A person asks for it after a disk was replaced, a backup restored, or another bucket chosen. Files
whose bytes are neither on the disk nor in the bucket are recorded as damaged: they are neither
drained nor sealed, so that their objects stay. No other process may work on the namespace
meanwhile.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from sqlalchemy import (
    and_,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from gateway.common import clock
from gateway.common.errors import IdentityError
from gateway.common.types import Residency
from gateway.config.settings import BucketSettings
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.engine import Connection, Database
from gateway.db.writer import Effects, Ids, Tx
from gateway.namespace import content, data_files, identity
from gateway.namespace.data_files import DataFiles, Stamp
from gateway.namespace.residency import HAS_VERSION

PAGE = 1024

_NUMBERS_ABOVE = Statement(
    update(sql.volume)
    .where(sql.volume.c.next_ino <= b("largest"))
    .values(next_ino=b("largest") + literal_column("1"))
)
_IS_KEPT = or_(
    sql.IS_CLIENTS,
    and_(*sql.IS_DIRTY),
    exists().where(sql.object_.c.ino == sql.inode.c.ino),
    sql.IS_IMPORTED,
)
"""A file of clients, also in the trash, or a promoted or imported one. What the gateway shows
beside them is made again when it is lost, and is not in the bucket."""
_FILES_AFTER = Statement(
    select(
        sql.inode.c.ino,
        sql.inode.c.epoch,
        sql.inode.c.size,
        sql.inode.c.mtime_ns,
        sql.inode.c.write_open,
        sql.inode.c.content_version > sql.inode.c.drained_version,
        sql.inode.c.ctime_ns,
        func.coalesce(sql.last_read.c.read_ns, literal_column("0")),
        sql.IS_IMPORTED,
    )
    .select_from(sql.inode.outerjoin(sql.last_read, sql.last_read.c.ino == sql.inode.c.ino))
    .where(
        sql.IS_REGULAR,
        sql.IS_RESIDENT,
        _IS_KEPT,
        sql.inode.c.nlink > 0,
        sql.inode.c.ino > b("after"),
    )
    .order_by(sql.inode.c.ino)
    .limit(b("most"))
)
_INOS_AFTER = Statement(
    select(sql.inode.c.ino)
    .where(sql.inode.c.ino > b("after"))
    .order_by(sql.inode.c.ino)
    .limit(b("most"))
)
_STEP_CHANGES = Statement(
    update(sql.inode)
    .where(sql.inode.c.ino > b("after"), sql.inode.c.ino <= b("last"))
    .values(change=sql.inode.c.change + b("step"))
)
"""Moves ``change`` past every value that clients can have seen of lost changes. Otherwise the next
changes would have the same values, and clients would believe what they remember."""
_EPOCH_PASSED = Statement(
    update(sql.inode)
    .where(sql.inode.c.ino == b("the_ino"), sql.IS_ABSENT, sql.inode.c.epoch == b("the_epoch"))
    .values(epoch=sql.inode.c.epoch + 1)
)
"""Lets an absent file have another data file than the one that is moved away. The hydrator may
still have that one open."""
_RESIDENT_OF = Statement(
    select(sql.inode.c.ino, sql.inode.c.epoch).where(
        sql.IS_REGULAR, sql.IS_RESIDENT, sql.inode.c.ino.in_(select(given_numbers("inos").c.value))
    )
)
_EVICTED_SINCE = Statement(
    update(sql.inode)
    .where(
        sql.inode.c.ino == b("the_ino"),
        sql.inode.c.drained_version == sql.inode.c.content_version,
        or_(
            exists().where(sql.object_.c.ino == sql.inode.c.ino, *HAS_VERSION),
            sql.IS_IMPORTED,
        ),
        ~exists().where(sql.damage.c.ino == sql.inode.c.ino),
    )
    .values(residency=Residency.ABSENT, epoch=sql.inode.c.epoch + 1)
)
"""Makes a file absent whose bytes are not on the disk and whose version the bucket has. The
hydrator compares the object with the digests when a client reads the file."""

_PRESENT_BLOCKS_FORGET = Statement(delete(sql.present_blocks))
_TAKE_BYTES = Statement(
    update(sql.inode)
    .where(sql.inode.c.ino == b("the_ino"))
    .values(
        size=b("size"),
        used=b("used"),
        mtime_ns=b("mtime_ns"),
        ctime_ns=b("now_ns"),
        drain_after_ns=b("now_ns"),
        change=sql.inode.c.change + content.CRASH_CHANGE_STEP,
        content_version=sql.inode.c.content_version + 1,
    )
)
"""Records the newer bytes of a data file in the row, which comes from a restored database."""

_KEEP_IN_TRASH = Statement(
    update(sql.trash)
    .where(sql.trash.c.state == literal_column("'expiring'"))
    .values(state=literal_column("'kept'"))
)
_ONLY_IN_BUCKET = Statement(
    select(func.count()).select_from(sql.inode).where(sql.IS_REGULAR, ~sql.IS_RESIDENT)
)
_OBJECTS_FORGET = Statement(delete(sql.object_))
_UPLOADS_FORGET = Statement(delete(sql.upload))
_TOMBSTONES_FORGET = Statement(delete(sql.tombstone))
_REKEYS_FORGET = Statement(delete(sql.rekey))
_INDETERMINATE_FORGET = Statement(delete(sql.indeterminate_write))
_INDETERMINATE_ALL = Statement(
    insert(sql.indeterminate_write).from_select(
        ["key", "ino", "noted_ns", "check_after_ns"],
        select(sql.object_.c.key, sql.object_.c.ino, b("now_ns"), literal_column("0")).select_from(
            sql.object_
        ),
    )
)
_PROMOTED_AGAIN = Statement(update(sql.promotion).values(manifest_etag=literal_column("NULL")))
"""Lets the manifests of promoted copies be put into the new bucket, when it has the copies."""
_DRAIN_AGAIN = Statement(
    update(sql.inode)
    .where(
        sql.IS_REGULAR,
        _IS_KEPT,
        sql.inode.c.nlink > 0,
        sql.inode.c.content_version > 0,
    )
    .values(drained_version=0)
)
"""Runs before the objects are forgotten: a promoted file is known by its object."""


class Adopted(NamedTuple):
    """What the adoption of data files found."""

    files: int
    """The number of regular files that were compared."""
    damaged: int
    """The number of these files that lost bytes and are not made absent. They are recorded as
    damaged."""
    taken: int
    """The number of these files with newer bytes than the database says. They are drained again."""
    absent: int
    """The number of these files without the bytes of their version that are made absent."""
    aside: int
    """The number of data files that were moved to ``set-aside``."""


class _Age(Enum):
    """How old the database is, compared with the data files."""

    SAME = auto()
    OLDER = auto()
    NEWER = auto()
    UNKNOWN = auto()
    """The data files have no stamp: the disk may be new, and the database of any age."""


class _Verdict(Enum):
    """What becomes of a file."""

    KEPT = auto()
    TAKEN = auto()
    LOST = auto()
    """The disk does not have the bytes of this version: the file is absent if the bucket has them,
    and damaged otherwise."""
    DAMAGED = auto()


class _Row(NamedTuple):
    """A file as the database knows it, in the columns of ``_FILES_AFTER``."""

    ino: int
    epoch: int
    size: int
    mtime_ns: int
    write_open: int
    is_dirty: bool
    ctime_ns: int
    read_ns: int
    is_imported: bool
    """Whether another bucket has its bytes, whatever the disk has."""

    def knows(self, found: os.stat_result) -> bool:
        """Return whether the bytes of a data file were there when the row was last written.

        The row may have another mtime where a client set it, which moved the ctime, or where the
        bytes came back from the bucket, which counts as a read.
        """
        return found.st_mtime_ns <= max(self.mtime_ns, self.ctime_ns, self.read_ns)


def adopt_files(
    database: Database, files: DataFiles, is_verified: Callable[[int], bool] = lambda _ino: False
) -> Adopted:
    """Make the data files below a directory those of this namespace.

    Without it no data file is verified.

    Raises IdentityError when they belong to another namespace: there the same inode number names a
    different file.

    Args:
        is_verified: whether the data file of an inode has the bytes whose checksum is recorded.
    """
    connection = database.connect(for_writing=True)
    try:
        around = identity.surroundings(database, connection, files)
        database_identity, stamped, lineage = around
        if stamped is not None and stamped.fs_id != database_identity.fs_id.hex():
            raise IdentityError(
                f"{files.root} belongs to another namespace: give this one a directory of its own"
            )
        marks = () if stamped is None else stamped.marks
        age = _Age.OLDER if around.may_lack_changes else _age(database_identity.mark, marks)
        adopted = _adopt(database, connection, files, age, is_verified)
        mark = max((database_identity.mark, *marks)) + 1
        bound = Stamp(
            database_identity.fs_id.hex(),
            (database_identity.gateway or secrets.token_bytes(16)).hex(),
            (database_identity.mark, mark),
            data_files.directory_of(files.root),
            lineage,
        )
        # From here on the data files are adopted. After a crash the database has one of both marks.
        data_files.write(files.root, bound)
        session = Session(connection, database.dialect)
        with database.transaction(connection):
            session.run(sql.MARK, gateway=bytes.fromhex(bound.gateway), mark=mark)
        data_files.write(files.root, bound._replace(marks=(mark,)))
        return adopted
    finally:
        connection.close()


def compare_files(database: Database, files: DataFiles) -> Adopted:
    """Do what ``adopt_files`` does for an older database, without reading bytes, for a database
    that lost its last changes in a failover. No client is served meanwhile.

    Raises TryAgain, OSError.
    """
    connection = database.connect(for_writing=True)
    try:
        return _adopt(database, connection, files, _Age.OLDER, None)
    finally:
        connection.close()


def _adopt(
    database: Database,
    connection: Connection,
    files: DataFiles,
    age: _Age,
    is_verified: Callable[[int], bool] | None,
) -> Adopted:
    session = Session(connection, database.dialect)
    largest = max((ino for ino, _epoch in files.walk()), default=0)
    with database.transaction(connection):
        # An older database would otherwise hand out the numbers of these files again.
        session.run(_NUMBERS_ABOVE, largest=largest)
        session.run(_PRESENT_BLOCKS_FORGET)
        if age is not _Age.SAME:
            # A restored database does not know what people took back from the trash since. The time
            # begins at 0 again: so each grace in it lasts at least as long again as it did.
            session.run(sql.ELAPSED_TIME_DELETE)
            session.run(_KEEP_IN_TRASH)
    if age in (_Age.OLDER, _Age.UNKNOWN):
        _step_changes(database, connection)
    aside = _set_others_aside(database, connection, files)
    adopted = _compare(database, connection, files, age, is_verified)
    with database.transaction(connection):
        journal.forget_readers(session)
    return adopted._replace(aside=adopted.aside + aside)


def _step_changes(database: Database, connection: Connection) -> None:
    session = Session(connection, database.dialect)
    after = 0
    while rows := session.all(_INOS_AFTER, after=after, most=PAGE):
        with database.transaction(connection):
            step = content.CRASH_CHANGE_STEP
            session.run(_STEP_CHANGES, after=after, last=rows[-1][0], step=step)
        after = rows[-1][0]


def _age(mark: int, marks: tuple[int, ...]) -> _Age:
    """Compare the mark of the database with those of the stamp."""
    if not marks:
        return _Age.UNKNOWN
    if mark in marks:
        return _Age.SAME
    return _Age.OLDER if mark < max(marks) else _Age.NEWER


def _compare(
    database: Database,
    connection: Connection,
    files: DataFiles,
    age: _Age,
    is_verified: Callable[[int], bool] | None,
) -> Adopted:
    """Compare rows and data files, a page of rows to a transaction."""
    session = Session(connection, database.dialect)
    looked, damaged, taken, absent, aside, after = 0, 0, 0, 0, 0, 0
    while rows := [_Row(*row) for row in session.all(_FILES_AFTER, after=after, most=PAGE)]:
        # A data file is read before the transaction: it may be large.
        assessed = [(row, *_assess(row, files, age, is_verified)) for row in rows]
        replaced = []
        with database.transaction(connection):
            tx = Tx(connection, database.dialect, Ids(), "adopt", Effects())
            for row, stat, verdict in assessed:
                if row.is_imported and verdict is not _Verdict.KEPT:
                    verdict = _Verdict.LOST
                if verdict is _Verdict.TAKEN and stat is not None:
                    taken += 1
                    _take(session, row.ino, stat)
                elif verdict is _Verdict.LOST and tx.run(_EVICTED_SINCE, the_ino=row.ino):
                    absent += 1
                    tx.touch(row.ino)
                    replaced += [row] if stat is not None else []
                elif verdict in (_Verdict.LOST, _Verdict.DAMAGED):
                    damaged += 1
                    content.damaged(tx, row.ino, _reason(row, files, stat))
        # After a crash the next adoption moves them: the row has another epoch.
        for row in replaced:
            files.set_aside(row.ino, row.epoch)
            aside += 1
        for row, stat, verdict in assessed:
            if verdict is _Verdict.KEPT and not row.write_open and stat is not None:
                # An eviction compares the times once more. Without it the file stays on the disk.
                with suppress(OSError):
                    files.set_mtime(row.ino, row.epoch, row.mtime_ns)
        looked, after = looked + len(rows), rows[-1].ino
    return Adopted(looked, damaged, taken, absent, aside)


def _assess(
    row: _Row, files: DataFiles, age: _Age, is_verified: Callable[[int], bool] | None
) -> tuple[os.stat_result | None, _Verdict]:
    """Return the data file of a row, if there is one, and what becomes of the file."""
    try:
        stat: os.stat_result | None = files.path(row.ino, row.epoch).stat()
    except FileNotFoundError:
        stat = None
    except OSError:
        return None, _Verdict.DAMAGED
    if stat is None:
        # A file may have no data file before it has bytes. A backup knows no bytes that came
        # later: the next start would seal an empty file, and the drain send it over the object.
        is_unsure = age is not _Age.SAME and (row.write_open or row.is_dirty)
        if row.write_open:
            return None, _Verdict.DAMAGED if is_unsure else _Verdict.KEPT
        return None, _Verdict.LOST if row.size > 0 or is_unsure else _Verdict.KEPT
    if row.write_open:
        return stat, _Verdict.KEPT  # the next start seals what it has
    has_its_size = stat.st_size == row.size
    if age in (_Age.SAME, _Age.UNKNOWN) and not has_its_size:
        return stat, _Verdict.DAMAGED
    if age is _Age.UNKNOWN or (age is _Age.SAME and row.knows(stat)):
        return stat, _Verdict.KEPT
    # Only the time shows a rewrite of the same length. It differs too where a client set it, or
    # where the file came back from the bucket.
    if has_its_size and (
        stat.st_mtime_ns == row.mtime_ns
        or (row.knows(stat) if is_verified is None else is_verified(row.ino))
    ):
        return stat, _Verdict.KEPT
    return stat, _Verdict.LOST if age is _Age.NEWER else _Verdict.TAKEN


def _reason(row: _Row, files: DataFiles, stat: os.stat_result | None) -> str:
    path = files.path(row.ino, row.epoch)
    if stat is not None and stat.st_size == row.size:
        return f"data file {path} has bytes of an earlier time"
    if stat is None and row.size == 0:
        return f"data file {path} is missing, and the database may be older than the file's bytes"
    there = "is missing" if stat is None else f"has {stat.st_size} bytes"
    return f"data file {path} {there}, {row.size} bytes expected"


def _set_others_aside(database: Database, connection: Connection, files: DataFiles) -> int:
    """Move away every data file that is not that of a resident row. Returns how many.

    The hydrator writes into the data file of an absent file's epoch. If the database is older, a
    client may have written into that one since, or into one of a later epoch, which the row gets
    again. If the disk is older, it may lack blocks that the database believed in.
    """
    session = Session(connection, database.dialect)
    moved = 0
    all_files = files.walk()
    while page := list(islice(all_files, PAGE)):
        inos = numbers_of({ino for ino, _epoch in page})
        resident = set(map(tuple, session.all(_RESIDENT_OF, inos=inos)))
        others = [data_file for data_file in page if data_file not in resident]
        if others:
            with database.transaction(connection):
                rows = [{"the_ino": ino, "the_epoch": epoch} for ino, epoch in others]
                session.run_each(_EPOCH_PASSED, rows)
        for ino, epoch in others:
            files.set_aside(ino, epoch)
            moved += 1
    return moved


def _take(session: Session, ino: int, stat: os.stat_result) -> None:
    session.run(
        _TAKE_BYTES,
        the_ino=ino,
        size=stat.st_size,
        used=stat.st_blocks * 512,
        mtime_ns=stat.st_mtime_ns,
        now_ns=clock.now_ns(),
    )


def adopt_bucket(database: Database, bucket: BucketSettings) -> int:
    """Make the configured bucket and prefix those of this namespace. Every file is drained again.

    The objects in the former bucket stay there: no tombstone for them is kept. Returns how many
    files will be sent. Raises IdentityError when some bytes are only in the former bucket.
    """
    connection = database.connect(for_writing=True)
    try:
        session = Session(connection, database.dialect)
        with database.transaction(connection):
            row = session.one(_ONLY_IN_BUCKET)
            if row is not None and row[0]:
                raise IdentityError(
                    f"the bytes of {row[0]} files are only in the former bucket, and everything is "
                    "sent from the local disk: put bucket.name and bucket.prefix back, start the "
                    "gateway, and bring the bytes here: spillway warm / --wait"
                )
            files = session.run(_DRAIN_AGAIN)
            for statement in (
                _OBJECTS_FORGET,
                _UPLOADS_FORGET,
                _TOMBSTONES_FORGET,
                _REKEYS_FORGET,
                _INDETERMINATE_FORGET,
                _PROMOTED_AGAIN,
            ):
                session.run(statement)
            journal.forget_readers(session)
            session.run(sql.BUCKET, bucket=bucket.name, prefix=bucket.prefix)
        return files
    finally:
        connection.close()


def mark_bucket_indeterminate(database: Database) -> int:
    """Have the drain compare each object with its row, because another gateway may have replaced
    some: what is not there as recorded is sent again. Returns how many objects there are."""
    with database.writing() as session:
        session.run(_INDETERMINATE_FORGET)
        return session.run(_INDETERMINATE_ALL, now_ns=clock.now_ns())
