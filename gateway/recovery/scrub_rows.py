"""Database access of the scrub: its passes, and the files and objects that it compares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)

from gateway.common import clock
from gateway.config.settings import ScrubSettings
from gateway.db import journal
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.engine import Database
from gateway.db.journal import CHANGED, STORED
from gateway.db.statements import (
    IS_REGULAR,
    IS_RESIDENT,
    VOLUME,
    block_digest,
    damage,
    digest,
    indeterminate_write,
    inode,
    last_read,
    object_,
    scrub_pass,
    upload,
)
from gateway.namespace.residency import IS_CERTAIN


class ScrubKind(StrEnum):
    """What a pass compares."""

    LOCAL = "local"
    """Data files with their checksums."""
    OBJECTS = "objects"
    """What the store tells of objects with what was recorded."""
    DEEP = "deep"
    """The bytes of objects with their checksums."""


class ScrubPass(NamedTuple):
    """A row of ``scrub_pass``: how far a pass is."""

    kind: str
    is_whole: int = 0
    number: int = 1
    began_ns: int = 0
    ended_ns: int | None = None
    ino: int = 0
    content_version: int = 0
    done_bytes: int = 0
    files: int = 0
    bytes: int = 0
    found: int = 0
    healed: int = 0
    damaged: int = 0


DAY_NS = 86_400 * clock.NS
LATE_FACTOR = 3
"""A whole pass over the disk is late after so many times the time in which one is due."""


def days_of(settings: ScrubSettings, kind: ScrubKind) -> float:
    """Return every how many days a pass of a kind begins. 0: never."""
    return {
        ScrubKind.LOCAL: settings.local_days,
        ScrubKind.OBJECTS: settings.objects_days,
        ScrubKind.DEEP: settings.deep_days,
    }[kind]


def is_due(settings: ScrubSettings, kind: ScrubKind, last: ScrubPass | None) -> bool:
    """Return whether a pass of a kind is to begin.

    Args:
        last: the last one that ended.
    """
    days = days_of(settings, kind)
    if not days or last is None:
        return days > 0
    now_ns = clock.now_ns()
    # A pass that began in the future did so before the clock went back.
    return now_ns < last.began_ns or now_ns >= last.began_ns + days * DAY_NS


def is_late(settings: ScrubSettings, present: ScrubPass | None, last: ScrubPass | None) -> bool:
    """Return whether no whole pass over the disk ended for too long.

    Args:
        present: the one that is under way.
        last: the last one that ended.
    """
    days, since_ns = settings.local_days, None
    if last is not None:
        since_ns = last.ended_ns
    elif present is not None:
        since_ns = present.began_ns
    if not days or since_ns is None:
        return False
    return clock.now_ns() - since_ns > LATE_FACTOR * days * DAY_NS


_PASSES = Statement(select(*[scrub_pass.c[name] for name in ScrubPass._fields]))
_PASS_DELETE = Statement(
    delete(scrub_pass).where(
        scrub_pass.c.kind == b("the_kind"), scrub_pass.c.is_whole == b("whole")
    )
)
_PASS_INSERT = Statement(insert(scrub_pass))


def passes(session: Session) -> dict[tuple[str, bool], ScrubPass]:
    """Return the passes by their kind, and whether they ended."""
    rows = (ScrubPass(*row) for row in session.all(_PASSES))
    return {(row.kind, bool(row.is_whole)): row for row in rows}


def ended(present: ScrubPass) -> ScrubPass:
    """Return the row of a pass that looked at everything."""
    return present._replace(is_whole=1, ended_ns=clock.now_ns())


def save(database: Database, present: ScrubPass, before: ScrubPass | None = None) -> None:
    """Store how far a pass is. Raises TryAgain.

    Args:
        present: the pass. If it ended, it takes the place of the last one that did.
        before: the row of the pass that goes, if this one ended.
    """
    with database.writing() as session:
        for row in (present, before):
            if row is not None:
                session.run(_PASS_DELETE, the_kind=row.kind, whole=row.is_whole)
        session.run(_PASS_INSERT, **present._asdict())


class ScrubFile(NamedTuple):
    """A file as the scrub compares it. Two of them are equal if nothing of it changed meanwhile."""

    ino: int
    epoch: int
    size: int
    content_version: int
    drained_version: int
    write_open: int
    nlink: int
    residency: int
    mtime_ns: int
    ctime_ns: int
    checksum: str | None
    """What is known of the whole file, without blocks."""
    has_blocks: bool
    """Whether its object is of this version and has block digests."""
    is_damaged: bool


_OF_VERSION = and_(
    object_.c.ino == inode.c.ino,
    object_.c.content_version == inode.c.content_version,
    object_.c.size == inode.c.size,
    inode.c.drained_version == inode.c.content_version,
)
_CHECKSUM = func.coalesce(digest.c.checksum, object_.c.checksum)
_FILE_COLUMNS = (
    *(inode.c[name] for name in ScrubFile._fields[:10]),
    _CHECKSUM,
    block_digest.c.ino.is_not(None),
    damage.c.ino.is_not(None),
)


def _files(start: Any) -> Any:
    return (
        start.outerjoin(
            digest,
            and_(digest.c.ino == inode.c.ino, digest.c.content_version == inode.c.content_version),
        )
        .outerjoin(object_, _OF_VERSION)
        .outerjoin(block_digest, block_digest.c.ino == object_.c.ino)
        .outerjoin(damage, damage.c.ino == inode.c.ino)
    )


_IS_HERE = (
    IS_REGULAR,
    IS_RESIDENT,
    inode.c.write_open == literal_column("0"),
    inode.c.nlink > literal_column("0"),
    inode.c.size > literal_column("0"),
    damage.c.ino.is_(None),
    block_digest.c.ino.is_not(None) | _CHECKSUM.is_not(None),
)
FILES_FROM = Statement(
    select(*_FILE_COLUMNS)
    .select_from(_files(inode))
    .where(*_IS_HERE, inode.c.ino >= b("first"))
    .order_by(inode.c.ino)
    .limit(b("most"))
)
"""Selects closed files on the disk of which a checksum is known."""
_INOS = given_numbers("inos")
FILES_OF = Statement(
    select(*_FILE_COLUMNS)
    .select_from(_files(_INOS.join(inode, inode.c.ino == _INOS.c.value)))
    .where(*_IS_HERE)
    .order_by(inode.c.ino)
)
"""Selects those of some files that ``FILES_FROM`` selects."""
FILE = Statement(
    select(*_FILE_COLUMNS).select_from(_files(inode)).where(IS_REGULAR, inode.c.ino == b("ino"))
)
READ_NS = Statement(select(last_read.c.read_ns).where(last_read.c.ino == b("ino")))
DAMAGE = Statement(select(damage.c.reason).where(damage.c.ino == b("ino")))
DAMAGED_OBJECTS = Statement(
    select(object_.c.ino, object_.c.key).select_from(
        damage.join(object_, object_.c.ino == damage.c.ino)
    )
)
"""Selects the objects of damaged files."""


class ScrubObject(NamedTuple):
    """An object as the scrub compares it, with its file."""

    ino: int
    key: str
    size: int
    etag: str
    object_version: int
    is_certain: bool
    """Whether no request that was given up can still change it."""
    is_of_file: bool
    """Whether it is of the present version of its file."""


_OBJECT_COLUMNS = (
    object_.c.ino,
    object_.c.key,
    object_.c.size,
    object_.c.etag,
    object_.c.content_version,
    and_(*IS_CERTAIN),
    and_(
        object_.c.content_version == inode.c.content_version,
        object_.c.size == inode.c.size,
        inode.c.drained_version == inode.c.content_version,
        inode.c.write_open == literal_column("0"),
        inode.c.nlink > literal_column("0"),
    ),
)
_OBJECTS = object_.join(inode, inode.c.ino == object_.c.ino)
OBJECTS_FROM = Statement(
    select(*_OBJECT_COLUMNS)
    .select_from(_OBJECTS)
    .where(object_.c.ino >= b("first"))
    .order_by(object_.c.ino)
    .limit(b("most"))
)
OBJECTS_OF = Statement(
    select(*_OBJECT_COLUMNS)
    .select_from(
        _INOS.join(object_, object_.c.ino == _INOS.c.value).join(
            inode, inode.c.ino == object_.c.ino
        )
    )
    .order_by(object_.c.ino)
)
OBJECT = Statement(select(*_OBJECT_COLUMNS).select_from(_OBJECTS).where(object_.c.ino == b("ino")))
_SAME_OBJECT = (
    object_.c.ino == b("ino"),
    object_.c.key == b("key"),
    object_.c.etag == b("etag"),
    object_.c.content_version == b("object_version"),
    *IS_CERTAIN,
)
_LOOK_AT = Statement(
    insert(indeterminate_write).from_select(
        ["key", "ino", "noted_ns", "check_after_ns"],
        select(
            object_.c.key, object_.c.ino, bindparam("now_ns", type_=BigInteger), literal_column("0")
        ).where(*_SAME_OBJECT),
    )
)
_SEND_AGAIN = Statement(
    update(inode)
    .where(
        inode.c.ino == b("the_ino"),
        IS_RESIDENT,
        inode.c.write_open == literal_column("0"),
        inode.c.content_version == b("object_version"),
        inode.c.drained_version == b("object_version"),
        inode.c.epoch == b("epoch"),
        exists().where(*_SAME_OBJECT),
        ~exists().where(damage.c.ino == inode.c.ino),
        ~exists().where(upload.c.ino == inode.c.ino),
    )
    .values(drained_version=0)
)
"""Makes a file dirty whose object has other bytes than its ETag says."""


class ScrubRows:
    """The rows of one namespace.

    Args:
        database: its database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def files(self, first: int, most: int) -> list[ScrubFile]:
        """Return the next closed files on the disk of which a checksum is known."""
        return [_file(row) for row in self._all(FILES_FROM, first=first, most=most)]

    def files_of(self, inos: Iterable[int]) -> list[ScrubFile]:
        """Return those of some files that are such files."""
        return [_file(row) for row in self._all(FILES_OF, inos=numbers_of(inos))]

    def file(self, ino: int) -> ScrubFile | None:
        """Return a regular file as it is now."""
        rows = self._all(FILE, ino=ino)
        return _file(rows[0]) if rows else None

    def read_ns(self, ino: int) -> int:
        """Return when a file was last read or arrived, 0 if that is not known."""
        rows = self._all(READ_NS, ino=ino)
        return int(rows[0][0]) if rows else 0

    def damage_of(self, ino: int) -> str | None:
        """Return why a file is damaged, or None."""
        rows = self._all(DAMAGE, ino=ino)
        return str(rows[0][0]) if rows else None

    def damaged_objects(self) -> list[tuple[int, str]]:
        """Return the damaged files that have objects, with their keys."""
        return [(ino, key) for ino, key in self._all(DAMAGED_OBJECTS)]

    def objects(self, first: int, most: int) -> list[ScrubObject]:
        """Return the next objects, by the number of their file."""
        return [_object(row) for row in self._all(OBJECTS_FROM, first=first, most=most)]

    def objects_of(self, inos: Iterable[int]) -> list[ScrubObject]:
        """Return the objects of some files."""
        return [_object(row) for row in self._all(OBJECTS_OF, inos=numbers_of(inos))]

    def object(self, ino: int) -> ScrubObject | None:
        """Return the object of a file as it is recorded now."""
        rows = self._all(OBJECT, ino=ino)
        return _object(rows[0]) if rows else None

    def volume(self) -> str:
        """Return the id of this namespace, in hex."""
        return bytes(self._all(VOLUME)[0][0]).hex()

    def look_at(self, stored: ScrubObject) -> bool:
        """Have the drain compare an object with its row, and send it again if it is not what was
        recorded. Returns whether the row is as it was. Raises TryAgain."""
        with self._database.writing() as session:
            return session.run(_LOOK_AT, now_ns=clock.now_ns(), **_same(stored)) > 0

    def send_again(self, stored: ScrubObject, epoch: int) -> bool:
        """Have the drain send a file again whose object has other bytes. Returns whether both are
        as they were. Raises TryAgain."""
        with self._database.writing() as session:
            if not session.run(_SEND_AGAIN, the_ino=stored.ino, epoch=epoch, **_same(stored)):
                return False
            journal.note(session, {stored.ino: CHANGED | STORED})
            return True

    def _all(self, statement: Statement, **values: Any) -> list[Sequence[Any]]:
        with self._database.reader() as connection:
            return Session(connection, self._database.dialect).all(statement, **values)


def _same(stored: ScrubObject) -> dict[str, Any]:
    return {name: getattr(stored, name) for name in ("ino", "key", "etag", "object_version")}


def _file(row: Sequence[Any]) -> ScrubFile:
    file = ScrubFile(*row)
    return file._replace(has_blocks=bool(file.has_blocks), is_damaged=bool(file.is_damaged))


def _object(row: Sequence[Any]) -> ScrubObject:
    found = ScrubObject(*row)
    return found._replace(is_certain=bool(found.is_certain), is_of_file=bool(found.is_of_file))
