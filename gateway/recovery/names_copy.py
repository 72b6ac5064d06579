"""Copy of the names: keeps every name of the namespace in the bucket, some seconds behind.

The copy is a base, which has all rows, and a log, whose segments have the rows of every inode that
the journal names since, as they are when the segment is made. To use a segment twice, or an older
one before a newer one, changes nothing. So a base needs no long transaction: it is read page by
page, each page at its own moment, and the log since its beginning makes it whole.

What people and the catalogue write is compared with what was copied last, because the journal does
not name it.

Nothing here holds a client up: each read is one short transaction, and each segment costs two write
transactions, which save its number and how far the log has come. While the bucket does not answer
the journal waits (``gateway.db.journal.KEPT_MAX``). If it was not kept, or the bucket has a log
that this database does not remember (an older database was put back), a new series begins with a
base of its own, and the former series stays what a restore uses until that base is whole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, select

from gateway.common import clock
from gateway.common.errors import StoreError
from gateway.common.units import size
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.journal import READER_DELETE, Lost, Reader
from gateway.db.schema import known
from gateway.db.statements import inode, journal, names_copy, volume
from gateway.objectstore.objects import ListedObject
from gateway.recovery import tables
from gateway.recovery.names_store import (
    BaseDocument,
    NamesStore,
    Series,
    base_after_of,
    base_name,
    series_name,
)
from gateway.recovery.segments import JsonRow, SegmentHead, SegmentWriter, batches

log = logging.getLogger("recovery")

READER = "names"
READ_INOS = 65_536
"""The inodes of the journal that one read takes up."""
TOUCHED_MAX = 500_000
"""The inodes of one segment. It is made in memory: some 100 bytes for each."""
BASE_INOS = 16_384
"""The inodes of one segment of a base."""
PAGE_INOS = 2048
"""The inodes whose rows one transaction of a base reads."""
SELDOM_SECONDS = 60.0
"""How often the tables that the catalogue writes are compared."""
RETRY_SECONDS = 10.0
CLOCK_SLACK_NS = clock.NS
"""A clock that is corrected by so little was not set."""
LOG_SEGMENTS_MAX = 5000
LOG_BYTES_MIN = 16 << 20
"""A new base is made when the log has so many segments, or is larger than this and the base."""

_STATE = Statement(select(*names_copy.c))
_STATE_DELETE = Statement(delete(names_copy))
_STATE_INSERT = Statement(insert(names_copy))
_LAST = Statement(select(func.coalesce(func.max(journal.c.seq), 0)))
_NEXT_INO = Statement(select(volume.c.next_ino))
_INOS_AFTER = Statement(
    select(inode.c.ino).where(inode.c.ino > b("after")).order_by(inode.c.ino).limit(b("most"))
)

_Hashes = dict[tuple[Any, ...], int]


@dataclass(frozen=True)
class CopyState:
    """The row of ``names_copy``."""

    series: str
    number: int = 0
    base_after: int | None = None
    base_ns: int | None = None
    base_bytes: int = 0
    log_bytes: int = 0
    log_segments: int = 0
    copied_ns: int = 0

    @property
    def needs_base(self) -> bool:
        """Whether a new base should be made."""
        return (
            self.base_after is None
            or self.log_segments > LOG_SEGMENTS_MAX
            or self.log_bytes > max(LOG_BYTES_MIN, self.base_bytes)
        )


class CopyStanding:
    """What the database remembers of the copy in the bucket: a reader of the journal, and a row."""

    reader = READER
    """The name of the reader."""

    def is_there(self, session: Session) -> bool:
        """Return whether anything is remembered."""
        return self.state(session) is not None

    def state(self, session: Session) -> CopyState | None:
        """Return how far the copy has come, or None if it has not begun."""
        row = session.one(_STATE)
        return None if row is None else CopyState(*row[1:])

    def save(self, session: Session, state: CopyState) -> None:
        """Remember how far the copy has come, inside a write transaction."""
        session.run(_STATE_DELETE)
        session.run(_STATE_INSERT, id=1, **asdict(state))

    def forget(self, session: Session) -> None:
        """Remember nothing, inside a write transaction: the journal is not kept for it any more."""
        session.run(READER_DELETE, reader=self.reader)
        session.run(_STATE_DELETE)


class CopyProgress(NamedTuple):
    """How far the copy is, for the report."""

    copied_ns: int
    """The bucket has every name as it was at this time. 0: it has none yet."""
    waiting: int
    """Rows of the journal that wait."""
    base_ns: int
    """When the newest base was whole. 0: there is none, and a restore uses an older series."""
    base_inodes: int
    """The inodes of a base that is being made. 0: none is."""
    error: str
    """Why nothing is copied now. Empty: nothing is wrong."""


@dataclass
class _Base:
    """A base that is being made."""

    name: str
    after: int
    began_ns: int
    last_ino: int
    """Inodes with higher numbers are in the log."""
    done_ino: int = 0
    inodes: int = 0
    rows: int = 0
    body: bytes = b""
    """The segment that is put next."""
    upto: int | None = None
    """The end of the journal when the last row was read. None: there is more to read."""
    parts: list[tuple[str, int]] = field(default_factory=list)
    """The segments that are in the bucket."""


class NamesCopy:
    """The copy of the names of one namespace. Not safe to use from several threads.

    Args:
        settings: of the gateway.
        database: of the gateway.
        names: the copy.
        standing: what the database remembers of it (default: that of the copy in the bucket).
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        names: NamesStore,
        standing: CopyStanding | None = None,
    ) -> None:
        self._settings = settings.recovery
        self._database = database
        self._names = names
        self._standing = standing or CopyStanding()
        self._reader: Reader | None = None
        """The reader of the journal. None: it must begin or resume."""
        self._state = CopyState("")
        self._namespace = ""
        self._base: _Base | None = None
        self._compared: dict[str, _Hashes] = {}
        """By table, a hash of each row as it was copied last, by its key."""
        self._log_at = 0.0
        self._seldom_at = 0.0
        self._copied: tuple[int, int] | None = None
        """When all names were in the bucket: by the clock, and since the start of the machine."""
        self._waiting = 0
        self._error = ""

    def leave(self) -> None:
        """End the series, because nothing is to be copied: the journal is not kept for it any more.

        Raises:
            NamespaceError: the database cannot be used now.
        """
        with self._database.reading() as session:
            if not self._standing.is_there(session):
                return
        with self._database.writing() as session:
            self._standing.forget(session)

    def progress(self) -> CopyProgress:
        """Return how far it is."""
        inodes = 0 if self._base is None else self._base.inodes
        base_ns = self._state.base_ns or 0
        copied_ns = 0 if self._copied is None else _by_clock(*self._copied)
        return CopyProgress(copied_ns, self._waiting, base_ns, inodes, self._error)

    def step(self) -> float:
        """Copy what is due.

        Returns:
            After how many seconds something may be due again.

        Raises:
            NamespaceError: the database cannot be used now.
        """
        try:
            self._step()
        except StoreError as exc:
            if not self._error:
                log.warning("the names are not copied, and wait: %s", exc)
            self._error = str(exc)
            return RETRY_SECONDS
        self._error = ""
        if self._base is not None and (self._base.body or self._base.upto is None):
            return 0.0
        # A base that was read to its end waits for the log.
        return self._log_at - clock.monotonic_seconds()

    def _step(self) -> None:
        # A failure leaves no reader: the rows that it has read are read again.
        reader, self._reader = self._reader, None
        try:
            if reader is None:
                reader = self._resumed()
            if clock.monotonic_seconds() >= self._log_at:
                self._copy_log(reader)
                self._log_at = clock.monotonic_seconds() + self._settings.names_seconds
        except Lost as exc:
            log.info("%s: a new series of the names begins", exc)
            reader = self._begun()
        self._reader = reader
        if self._base is None and self._state.needs_base:
            self._base = self._begin_base(reader)
        if self._base is not None:
            self._continue_base(self._base, reader)

    def _resumed(self) -> Reader:
        """Continue the series. Raises Lost, StoreError."""
        reader = Reader(self._standing.reader)
        with self._database.reading() as session:
            state = self._standing.state(session)
            if state is None:
                raise Lost("the names were never copied")
            reader.resume(session)
        if self._names.has_later(state.series, reader.position, state.number):
            raise Lost("the bucket has names that this database does not know")
        if state.series != self._state.series:
            self._base = None
        if state.base_after is not None and not self._names.has_base(
            state.series, state.base_after
        ):
            log.warning("the base of the names is gone from the bucket: another one is made")
            state = replace(state, base_after=None, base_ns=None)
        self._state, self._compared, self._seldom_at = state, {}, 0.0
        return reader

    def _begun(self) -> Reader:
        """Begin a new series. Raises StoreError, Lost."""
        state = CopyState(series_name(self._names.series_names()))
        reader = Reader(self._standing.reader)
        with self._database.writing() as session:
            reader.begin(session)
            self._standing.save(session, state)
        self._state, self._base, self._compared, self._seldom_at = state, None, {}, 0.0
        return reader

    def _copy_log(self, reader: Reader) -> None:
        """Put a segment with what changed since the last one. Raises StoreError, Lost."""
        after, at_ns, uptime_ns = reader.position, clock.now_ns(), clock.uptime_ns()
        with self._database.reading() as session:
            touched = _touched(reader, session)
            self._waiting = reader.unsaved
            segment = SegmentWriter(self._head(session, at_ns, after, reader.position))
            segment.gone(sorted(touched))
            compared = self._compare(session, segment)
            for inos in batches(touched, tables.INOS_AT_ONCE):
                for table in tables.BY_INODE:
                    segment.add(table.name, table.of_inos(session, inos))
        if touched or compared:
            self._put(reader, segment.finish(), after, at_ns)
            self._compared.update(compared)
        self._waiting = 0
        if reader.is_at_end:
            self._copied = at_ns, uptime_ns

    def _put(self, reader: Reader, body: bytes, after: int, at_ns: int) -> None:
        # A try that fails counts too: of two segments up to one row, the later one is used last.
        self._state = replace(self._state, number=self._state.number + 1)
        # The number is recorded after the rows were read and before the request. So a database that
        # has it has all that the segment tells, and an older one that is put back has a lower one.
        with self._database.writing() as session:
            self._standing.save(session, self._state)
        state = replace(
            self._state,
            log_bytes=self._state.log_bytes + len(body),
            log_segments=self._state.log_segments + 1,
            copied_ns=at_ns if reader.is_at_end else self._state.copied_ns,
        )
        self._names.put_log(state.series, after, reader.position, state.number, body)
        with self._database.writing() as session:
            reader.save(session)
            self._standing.save(session, state)
        self._state = state

    def _compare(self, session: Session, segment: SegmentWriter) -> dict[str, _Hashes]:
        """Add the rows of the compared tables that differ to a segment.

        Returns:
            The hashes of all rows of the tables that differ.
        """
        now = clock.monotonic_seconds()
        due = tables.COMPARED_OFTEN
        if now >= self._seldom_at:
            self._seldom_at = now + SELDOM_SECONDS
            due = tables.COMPARED
        hashes: dict[str, _Hashes] = {}
        differing: dict[str, list[JsonRow]] = {}
        for table in due:
            rows = table.all(session)
            found = {table.key(row): hash(tuple(row)) for row in rows}
            before = self._compared.get(table.name)
            if before == found:
                continue
            hashes[table.name] = found
            if before is None:
                segment.drop_all(table.name)
                differing[table.name] = rows
            else:
                segment.drop(table.name, [key for key in before if key not in found])
                differing[table.name] = [
                    row for row in rows if before.get(key := table.key(row)) != found[key]
                ]
        for name, rows in differing.items():
            segment.add(name, rows)
        return hashes

    def _begin_base(self, reader: Reader) -> _Base:
        with self._database.reading() as session:
            row = session.one(_NEXT_INO)
        assert row is not None, "the volume row is missing"
        log.info("a base of the names begins")
        return _Base(base_name(reader.saved), reader.saved, clock.now_ns(), int(row[0]))

    def _continue_base(self, base: _Base, reader: Reader) -> None:
        """Put the next segment of a base, or end it. Raises StoreError."""
        if not base.body and base.upto is None:
            base.body = self._next_part(base)
        if base.body:
            part = self._names.put_part(self._state.series, base.name, len(base.parts), base.body)
            base.parts.append(part)
            base.body = b""
        elif base.upto is not None and reader.saved >= base.upto:
            self._end_base(base, base.upto)

    def _next_part(self, base: _Base) -> bytes:
        """Return the next segment of a base. After the last one, ``base.upto`` is known."""
        with self._database.reading() as session:
            segment = SegmentWriter(
                self._head(session, clock.now_ns(), base.after, _last_row(session))
            )
        end = base.inodes + BASE_INOS
        while base.inodes < end and base.upto is None:
            with self._database.reading() as session:
                inos = session.all(_INOS_AFTER, after=base.done_ino, most=PAGE_INOS)
                is_last = len(inos) < PAGE_INOS or inos[-1][0] >= base.last_ino
                # Some rows belong to inodes that are gone, as tombstones do.
                upto_ino = base.last_ino if is_last else int(inos[-1][0])
                for table in tables.BY_INODE:
                    segment.add(table.name, table.of_range(session, base.done_ino, upto_ino))
                base.done_ino, base.inodes = upto_ino, base.inodes + len(inos)
                if is_last:
                    for table in tables.COMPARED:
                        segment.add(table.name, table.all(session))
                    base.upto = _last_row(session)
        base.rows += segment.rows
        return segment.finish()

    def _end_base(self, base: _Base, upto: int) -> None:
        now_ns = clock.now_ns()
        document = BaseDocument(
            base.name,
            self._namespace,
            base.after,
            upto,
            base.began_ns,
            now_ns,
            base.inodes,
            base.rows,
            base.parts,
        )
        self._names.put_document(self._state.series, document)
        # The log that the base has needed so far is not counted: a little too few.
        state = replace(
            self._state,
            base_after=base.after,
            base_ns=now_ns,
            base_bytes=document.size,
            log_bytes=0,
            log_segments=0,
        )
        with self._database.writing() as session:
            self._standing.save(session, state)
        self._state, self._base = state, None
        log.info("a base of the names is whole: %d inodes, %s", base.inodes, size(document.size))
        self._tidy(base.after)

    def _tidy(self, base_after: int) -> None:
        """Delete what no restore within ``keep_days`` needs. Raises StoreError."""
        kept_ns = clock.now_ns() - self._settings.keep_days * 86_400 * clock.NS
        old = superfluous(self._names.series(), self._state.series, base_after, kept_ns)
        if old:
            log.info("deleted %d old segments of the names", self._names.delete(old))

    def _head(self, session: Session, at_ns: int, after: int, upto: int) -> SegmentHead:
        if not self._namespace:
            identity = session.one(sql.IDENTITY)
            assert identity is not None, "the volume row is missing"
            self._namespace = bytes(identity[0]).hex()
        [volume] = tables.VOLUME.all(session)
        forms = {name: table.form for name, table in tables.COPIED.items()}
        return SegmentHead(known()[-1], self._namespace, at_ns, after, upto, volume, forms)


def superfluous(
    there: Sequence[Series], current: str, base_after: int, kept_ns: int
) -> list[ListedObject]:
    """Return the objects of the copy that no restore to a time since then needs. Pure.

    Args:
        there: what the bucket has.
        current: name of the series that is continued. Later ones are not this gateway's.
        base_after: of its newest whole base.
        kept_ns: the time, by the clock of the store.
    """
    old: list[ListedObject] = []
    for series in there:
        objects = list(series.objects())
        if series.name < current and all(one.modified_ns < kept_ns for one in objects):
            old.extend(objects)
        elif series.name == current:
            old.extend(_before(series, base_after, kept_ns))
    return old


def _before(series: Series, base_after: int, kept_ns: int) -> list[ListedObject]:
    """Return what is older than the newest base that was whole at a time, or than the newest one
    of all."""
    documents = [
        (base_after_of(listed), listed)
        for listed in series.documents
        if base_after_of(listed) <= base_after
    ]
    whole_then = [after for after, listed in documents if listed.modified_ns < kept_ns]
    if not whole_then:
        return []
    first = max(whole_then)
    old = [listed for after, listed in documents if after < first]
    old += [listed for listed in series.parts if base_after_of(listed) < first]
    old += [segment.listed for segment in series.log if segment.upto <= first]
    return old


def _by_clock(at_ns: int, uptime_ns: int) -> int:
    """Return when something was, by the clock as it is set now. A clock that was set back must not
    make it look younger.

    Args:
        at_ns: when it was, by the clock as it was set then.
        uptime_ns: when it was, since the start of the machine.
    """
    moved_ns = clock.now_ns() - clock.uptime_ns() - (at_ns - uptime_ns)
    return at_ns + moved_ns if abs(moved_ns) > CLOCK_SLACK_NS else at_ns


def _touched(reader: Reader, session: Session) -> set[int]:
    """Read the journal to its end. Returns the inodes that it names."""
    touched: set[int] = set()
    while len(touched) < TOUCHED_MAX:
        touched.update(inode.ino for inode in reader.read(session, READ_INOS))
        if reader.is_at_end:
            break
    return touched


def _last_row(session: Session) -> int:
    row = session.one(_LAST)
    assert row is not None, "a query without a table has one row"
    return int(row[0])
