"""Invariants of a namespace at rest, as queries that people, crash tests and model tests share.

No other process may work on the namespace meanwhile. A repair is made only where the truth is in
the namespace itself. A problem whose repair would guess, or could lose bytes, is only reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from sqlalchemy import text

from gateway.common.errors import IdentityError
from gateway.common.types import InodeKind, Residency
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Connection, Database
from gateway.db.models import RESERVED_INO, ROOT_INO, TRASH_INO
from gateway.db.writer import Effects, Ids, Tx
from gateway.namespace import identity, names
from gateway.namespace.data_files import DataFiles

_REGULAR, _DIRECTORY = int(InodeKind.REGULAR), int(InodeKind.DIRECTORY)
_ABSENT, _RESIDENT = int(Residency.ABSENT), int(Residency.RESIDENT)
_COUNTED = f"s.kind = {_DIRECTORY} AND s.ino NOT IN ({RESERVED_INO}, {TRASH_INO})"
"""A directory that its parent's link count has: one that listings show."""


class BrokenInvariant(NamedTuple):
    """A broken invariant of the namespace."""

    check: str
    detail: str
    repair: str
    """What a repair does or did. Empty means that a person must decide."""


class Check(NamedTuple):
    """An invariant, and the query that finds what breaks it."""

    name: str
    query: Statement
    detail: str
    """Template of the message for a row of the query."""
    repair: str = ""
    fix: Statement | None = None
    """The repair of a row. Its parameter :key is the first column of the row."""


def _sql(statement: str) -> Statement:
    return Statement(text(statement))


_CHARGED = (
    "WITH charged(place, files, size, used, unsaved) AS (SELECT {0}, count(*), sum(size),"
    f" sum(used), sum(CASE WHEN kind = {_REGULAR} AND content_version > drained_version THEN size"
    " ELSE 0 END) FROM inode WHERE charged_to IS NOT NULL GROUP BY {0})"
)
_OWNER = "2 * uid + reserved"
_DIFFERS = " OR ".join(
    f"coalesce(u.{name}, 0) <> coalesce(c.{name}, 0)"
    for name in ("files", "size", "used", "unsaved")
)
_COUNTED_AGAIN = (
    "ON CONFLICT ({0}) DO UPDATE SET files = excluded.files, size = excluded.size,"
    " used = excluded.used, unsaved = excluded.unsaved"
)

CHECKS = (
    Check(
        "root",
        _sql(
            f"SELECT v.id FROM volume v WHERE NOT EXISTS (SELECT 1 FROM inode r"
            f" WHERE r.ino = {ROOT_INO} AND r.kind = {_DIRECTORY} AND r.parent = {ROOT_INO})"
        ),
        "the root directory is missing",
    ),
    Check(
        "numbers",
        _sql(
            "SELECT v.next_ino, (SELECT max(ino) FROM inode) FROM volume v WHERE v.next_ino <="
            " (SELECT max(ino) FROM inode) OR v.next_cookie <="
            " (SELECT coalesce(max(cookie), 0) FROM dirent)"
        ),
        "numbers in use would be handed out again (next inode {0}, largest {1})",
    ),
    Check(
        "entry in a non-directory",
        _sql(
            "SELECT d.ino, d.parent FROM dirent d JOIN inode p ON p.ino = d.parent"
            f" WHERE p.kind <> {_DIRECTORY}"
        ),
        "inode {0} has a name in {1}, which is no directory",
    ),
    Check(
        "directory names",
        _sql(
            "SELECT i.ino, count(d.ino) FROM inode i LEFT JOIN dirent d ON d.ino = i.ino"
            f" WHERE i.kind = {_DIRECTORY} AND i.ino <> {ROOT_INO}"
            " GROUP BY i.ino HAVING count(d.ino) > 1"
        ),
        "directory {0} has {1} names",
    ),
    Check(
        "cycle",
        _sql(
            "WITH RECURSIVE reached(ino) AS ("
            f" SELECT CAST({ROOT_INO} AS BIGINT) UNION SELECT d.ino FROM dirent d"
            " JOIN reached r ON d.parent = r.ino)"
            " SELECT i.ino FROM inode i WHERE i.nlink > 0"
            " AND i.ino NOT IN (SELECT ino FROM reached)"
            " AND EXISTS (SELECT 1 FROM dirent d WHERE d.ino = i.ino)"
        ),
        "inode {0} cannot be reached from the root",
    ),
    Check(
        "parent",
        _sql(
            "SELECT i.ino, i.parent, d.parent FROM inode i JOIN dirent d ON d.ino = i.ino"
            f" WHERE i.kind = {_DIRECTORY} AND i.parent <> d.parent"
        ),
        "directory {0} names {1} as its parent and is in {2}",
        "parent set to the directory that names it",
        _sql(
            "UPDATE inode SET parent = (SELECT d.parent FROM dirent d WHERE d.ino = inode.ino)"
            " WHERE ino = :key"
        ),
    ),
    Check(
        "link count",
        _sql(
            "SELECT i.ino, i.nlink, count(d.ino) FROM inode i"
            f" LEFT JOIN dirent d ON d.ino = i.ino WHERE i.kind <> {_DIRECTORY}"
            # An inode without a name belongs into lost+found: a count of 0 would delete its bytes.
            " GROUP BY i.ino, i.nlink HAVING i.nlink <> count(d.ino) AND count(d.ino) > 0"
        ),
        "inode {0} has link count {1} and {2} names",
        "counted again",
        _sql(
            "UPDATE inode SET nlink = (SELECT count(*) FROM dirent d WHERE d.ino = inode.ino)"
            " WHERE ino = :key"
        ),
    ),
    Check(
        "directory link count",
        _sql(
            "SELECT i.ino, i.nlink, 2 + count(s.ino) FROM inode i"
            " LEFT JOIN dirent d ON d.parent = i.ino"
            f" LEFT JOIN inode s ON s.ino = d.ino AND {_COUNTED}"
            f" WHERE i.kind = {_DIRECTORY}"
            " GROUP BY i.ino, i.nlink HAVING i.nlink <> 2 + count(s.ino)"
        ),
        "directory {0} has link count {1}, its subdirectories make it {2}",
        "counted again",
        _sql(
            "UPDATE inode SET nlink = 2 + (SELECT count(*) FROM dirent d"
            f" JOIN inode s ON s.ino = d.ino AND {_COUNTED} WHERE d.parent = inode.ino)"
            " WHERE ino = :key"
        ),
    ),
    Check(
        "reserved",
        _sql(
            "SELECT i.ino, d.parent FROM inode i JOIN dirent d ON d.ino = i.ino"
            " JOIN inode p ON p.ino = d.parent"
            f" WHERE i.reserved = 1 AND p.reserved = 0 AND i.ino <> {RESERVED_INO}"
            # These are on their way into the trash or out of it: the gateway gives them back.
            " AND i.ino NOT IN (WITH RECURSIVE below(ino) AS (SELECT ino FROM trash"
            " WHERE state IN ('putting', 'returning') UNION SELECT e.ino FROM dirent e"
            " JOIN below ON e.parent = below.ino) SELECT ino FROM below)"
            " AND i.ino NOT IN (SELECT top FROM imported_prefix)"
        ),
        "inode {0} is reserved for the gateway and has a name in {1}, which is not",
    ),
    Check(
        "nameless object",
        _sql("SELECT o.ino, o.key FROM object o JOIN inode i ON i.ino = o.ino WHERE i.nlink = 0"),
        "inode {0} has no name and still owns the object {1}",
    ),
    Check(
        "object version",
        _sql(
            "SELECT o.ino, o.key, o.content_version, i.drained_version FROM object o"
            " JOIN inode i ON i.ino = o.ino WHERE o.content_version < i.drained_version"
            # The snapshot of an open file is ahead of the drained version.
            " OR o.content_version > i.content_version"
        ),
        "object {1} of inode {0} has version {2}, the inode says {3}",
    ),
    Check(
        "absent without object",
        _sql(
            "SELECT i.ino, i.content_version FROM inode i"
            f" WHERE i.residency = {_ABSENT} AND i.nlink > 0 AND NOT EXISTS (SELECT 1 FROM object o"
            # Names that were made of the bucket have no digests before they are read first.
            " WHERE o.ino = i.ino AND o.content_version = i.content_version AND o.size = i.size)"
            " AND NOT EXISTS (SELECT 1 FROM imported_object o"
            " WHERE o.ino = i.ino AND o.size = i.size)"
        ),
        "the bytes of inode {0} (version {1}) are not on this disk, and no object is recorded for"
        " them",
    ),
    Check(
        "drained without object",
        _sql(
            "SELECT i.ino, i.drained_version FROM inode i LEFT JOIN object o ON o.ino = i.ino"
            # Of an absent file nothing but the object has the bytes: it is reported above.
            f" WHERE i.drained_version > 0 AND i.nlink > 0 AND i.residency = {_RESIDENT}"
            # What the gateway shows to clients is never drained, unless it is promoted.
            " AND o.ino IS NULL"
            " AND (i.reserved = 0 OR i.ino IN (SELECT copy FROM promotion_member))"
        ),
        "inode {0} is said to be drained (version {1}) and has no object",
        "marked as not drained: it will be uploaded again",
        _sql(f"UPDATE inode SET drained_version = 0 WHERE ino = :key AND residency = {_RESIDENT}"),
    ),
    Check(
        "charged",
        _sql(
            f"SELECT i.ino FROM inode i WHERE CASE WHEN i.kind = {_DIRECTORY}"
            " THEN i.charged_to IS NOT NULL WHEN i.charged_to IS NULL"
            " THEN EXISTS (SELECT 1 FROM dirent d WHERE d.ino = i.ino)"
            " ELSE NOT EXISTS"
            " (SELECT 1 FROM dirent d WHERE d.ino = i.ino AND d.parent = i.charged_to) END"
        ),
        "inode {0} is not charged to a directory that has a name of it",
        "charged to one",
        _sql(
            f"UPDATE inode SET charged_to = CASE WHEN kind <> {_DIRECTORY} THEN (SELECT d.parent"
            " FROM dirent d WHERE d.ino = inode.ino ORDER BY d.cookie LIMIT 1) END"
            " WHERE ino = :key"
        ),
    ),
    Check(
        "usage of a directory",
        _sql(
            f"{_CHARGED.format('charged_to')} SELECT coalesce(u.directory, c.place) FROM"
            f" directory_usage u FULL JOIN charged c ON c.place = u.directory WHERE {_DIFFERS}"
            f" UNION SELECT d.ino FROM inode d WHERE d.kind = {_DIRECTORY}"
            " AND NOT EXISTS (SELECT 1 FROM directory_usage u WHERE u.directory = d.ino)"
        ),
        "the usage of directory {0} is not that of its files",
        "counted again",
        _sql(
            f"{_CHARGED.format('charged_to')} INSERT INTO directory_usage"
            " (directory, files, size, used, unsaved)"
            " SELECT d.place, coalesce(c.files, 0), coalesce(c.size, 0), coalesce(c.used, 0),"
            " coalesce(c.unsaved, 0) FROM (SELECT CAST(:key AS BIGINT) AS place) d"
            " LEFT JOIN charged c ON c.place = d.place WHERE true"
            f" {_COUNTED_AGAIN.format('directory')}"
        ),
    ),
    Check(
        "usage of an owner",
        _sql(
            f"{_CHARGED.format(_OWNER)} SELECT coalesce(2 * u.uid + u.reserved, c.place) FROM"
            f" owner_usage u FULL JOIN charged c ON c.place = 2 * u.uid + u.reserved"
            f" WHERE {_DIFFERS}"
        ),
        "the usage of an owner (twice the uid: {0}) is not that of its files",
        "counted again",
        _sql(
            f"{_CHARGED.format(_OWNER)} INSERT INTO owner_usage"
            " (uid, reserved, files, size, used, unsaved)"
            " SELECT d.place / 2, d.place % 2, coalesce(c.files, 0), coalesce(c.size, 0),"
            " coalesce(c.used, 0), coalesce(c.unsaved, 0)"
            " FROM (SELECT CAST(:key AS BIGINT) AS place) d"
            " LEFT JOIN charged c ON c.place = d.place WHERE true"
            f" {_COUNTED_AGAIN.format('uid, reserved')}"
        ),
    ),
    Check(
        "rekey of nothing",
        _sql("SELECT r.ino FROM rekey r LEFT JOIN inode i ON i.ino = r.ino WHERE i.ino IS NULL"),
        "a rename of inode {0} is noted, which is gone",
        "note dropped",
        _sql("DELETE FROM rekey WHERE ino = :key"),
    ),
)

NAMELESS = _sql(
    "SELECT i.ino FROM inode i WHERE i.nlink > 0"
    f" AND i.ino <> {ROOT_INO} AND NOT EXISTS (SELECT 1 FROM dirent d WHERE d.ino = i.ino)"
    " ORDER BY i.ino"
)
_DAMAGED = _sql(
    "SELECT d.ino, d.reason FROM damage d JOIN inode i ON i.ino = d.ino"
    " WHERE i.nlink > 0 ORDER BY d.ino"
)
_MET_BY_READING = re.compile(r"data file \d+\.\d+ ")
"""Begins the reason of damage that the server met when it read a file (fsal/native/lost.c)."""
_FILE = _sql(
    f"SELECT epoch, size, write_open FROM inode WHERE ino = :ino AND residency = {_RESIDENT}"
)
_BLOCK_BYTES = 1 << 20
_EVICTED = _sql("SELECT ino, epoch FROM eviction")
_FILES = _sql(
    "SELECT ino, epoch, size, write_open, nlink, residency FROM inode"
    f" WHERE kind = {_REGULAR} ORDER BY ino"
)


def check(database: Database, files: DataFiles, *, repair: bool = False) -> list[BrokenInvariant]:
    """Find all problems. With ``repair``, repair those whose repair is safe.

    Returns the problems that were found, repaired or not. Raises TryAgain when the database does
    not answer.
    """
    connection = database.connect(for_writing=True)
    try:
        session = Session(connection, database.dialect)
        broken_invariants = list(_check_identity(database, connection, files))
        for (ino,) in session.all(NAMELESS):
            if repair:
                with database.transaction(connection):
                    names.keep(Tx(connection, database.dialect, Ids(), "fsck", Effects()), ino)
                    journal.forget_readers(session)
            broken_invariants.append(
                BrokenInvariant("nameless", f"inode {ino} has no name", f"named {names.shown(ino)}")
            )
        for invariant in CHECKS:
            for row in session.all(invariant.query):
                if repair and invariant.fix is not None:
                    with database.transaction(connection):
                        session.run(invariant.fix, key=row[0])
                        journal.forget_readers(session)
                broken_invariants.append(
                    BrokenInvariant(invariant.name, invariant.detail.format(*row), invariant.repair)
                )
        broken_invariants += _check_damaged(session, files)
        if repair:
            with database.transaction(connection):
                _forget_damage(session, files)
                journal.forget_readers(session)
        broken_invariants += _check_files(session, files, repair)
        return broken_invariants
    finally:
        connection.close()


def _check_identity(
    database: Database, connection: Connection, files: DataFiles
) -> Iterator[BrokenInvariant]:
    """Yield a problem if database and data files do not belong together."""
    try:
        identity.require_files(database, connection, files)
    except IdentityError as exc:
        yield BrokenInvariant("stamp", str(exc), "")


def _check_damaged(session: Session, files: DataFiles) -> Iterator[BrokenInvariant]:
    """Yield the damaged files."""
    whole = set(_whole_again(session, files))
    for ino, reason in session.all(_DAMAGED):
        if ino in whole:
            detail = f"inode {ino}: {reason}; by now its data file can be read to its end"
            yield BrokenInvariant("damaged", detail, "damage forgotten")
        else:
            yield BrokenInvariant("damaged", f"inode {ino}: {reason}", "")


def _whole_again(session: Session, files: DataFiles) -> Iterator[int]:
    """Yield the files whose damage was that the server could not read them, and that can be read.

    A person may have put the data file back, or the disk may have come back. Of damage by a failed
    sync no reading tells: the lost bytes read as older ones.
    """
    for ino, reason in session.all(_DAMAGED):
        row = session.one(_FILE, ino=ino)
        if row is None or _MET_BY_READING.match(reason) is None:
            continue
        epoch, size, write_open = row
        try:
            with files.path(ino, epoch).open("rb", buffering=0) as data:
                read_bytes = sum(iter(partial(data.readinto, bytearray(_BLOCK_BYTES)), 0))
        except OSError:
            continue
        if read_bytes == size or (write_open and read_bytes > 0):
            yield ino


def _forget_damage(session: Session, files: DataFiles) -> None:
    for ino in list(_whole_again(session, files)):
        session.run(sql.DAMAGE_DELETE, the_ino=ino)


def _check_files(session: Session, files: DataFiles, repair: bool) -> Iterator[BrokenInvariant]:
    """Yield where rows and data files differ. Damaged files were reported before."""
    known = set()
    damaged = {ino for ino, _reason in session.all(_DAMAGED)}
    for ino, epoch, size, write_open, nlink, residency in session.all(_FILES):
        known.add((ino, epoch))
        if nlink == 0 or write_open or residency != Residency.RESIDENT or ino in damaged:
            continue  # the next start settles it, or it is not on this disk, or is reported above
        path = files.path(ino, epoch)
        found_bytes = path.stat().st_size if path.exists() else 0
        if found_bytes != size:
            yield BrokenInvariant(
                "size", f"inode {ino} has {size} bytes, its data file {path} {found_bytes}", ""
            )
    # The next start deletes these files.
    evicted = set(map(tuple, session.all(_EVICTED)))
    is_ours = identity.owns(session, files)
    for ino, epoch in files.walk():
        if (ino, epoch) not in known and (ino, epoch) not in evicted:
            if repair and is_ours:
                files.set_aside(ino, epoch)
            # The file is never deleted: a database restored from a backup knows less than the disk.
            yield BrokenInvariant(
                "data file without inode",
                f"{files.path(ino, epoch)} belongs to no inode",
                f"moved to {files.aside}" if is_ours else "",
            )
