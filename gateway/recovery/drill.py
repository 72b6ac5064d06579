"""Drill of a restore: the names in the bucket become a scratch database beside a living gateway,
and are compared with the namespace.

It takes nothing. It reads the bucket, and of the namespace it changes only its reader of the
journal, which says what changes meanwhile. The reader begins before the copy is looked at, and the
drill waits until the copy has what was there by then. Whatever ends it, the reader and the scratch
database end too: with the drill, or with the next one, or with the next start.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import literal_column, select
from sqlalchemy.exc import DBAPIError

from gateway.common import clock, failpoints, files
from gateway.common.errors import (
    NamespaceError,
    ObjectRefused,
    SchemaError,
    SpillwayError,
    StoreError,
    StoreRefused,
    UserError,
)
from gateway.common.failpoints import DRILL
from gateway.common.units import duration, size
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db import upgrade as migration
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.journal import Lost
from gateway.db.statements import names_copy, reader
from gateway.objectstore.objects import MIB
from gateway.objectstore.s3 import S3Store
from gateway.recovery import drill_comparison, drill_record
from gateway.recovery import names_copy as copying
from gateway.recovery.copy_objects import BucketObjects
from gateway.recovery.drill_comparison import NamesComparison, TouchedInodes
from gateway.recovery.drill_record import DrillReport
from gateway.recovery.load import Loader, require_known
from gateway.recovery.names_store import NamesStore
from gateway.recovery.segments import BadSegment
from gateway.recovery.source import NamesSource, choose, later

log = logging.getLogger("recovery")

LOCK = "drill.lock"
NOTE = "drill-scratch"
"""A file in run/ with the path of the scratch directory, so that it goes also after a kill."""
SCRATCH = "spillway-drill-"
"""How the name of the scratch directory begins."""
DATABASE, TOUCHED = "namespace.db", "touched.db"
ROW_BYTES, LOG_FACTOR = 150, 3
"""The most bytes that a row of a base takes, beside its digests, and the most that rows of the log
take, for each byte of their segments: most of them replace others."""
ROOM_MIN_BYTES = 32 * MIB
LISTED_KEYS = 1000
POLL_SECONDS = 1.0
SETTLE_SECONDS = copying.SELDOM_SECONDS + 30.0
"""How long the copy may take until it has what the catalogue wrote before the drill."""

_COPIED = Statement(
    select(names_copy.c.series, names_copy.c.base_after, names_copy.c.copied_ns, reader.c.position)
    .select_from(names_copy)
    .join(reader, reader.c.name == literal_column(f"'{copying.READER}'"))
)

Say = Callable[[str], None]


class DrillStopped(SpillwayError):
    """The drill was told to stop."""


class _Copied(NamedTuple):
    """How far the copy is, as its process recorded it."""

    series: str
    base_after: int | None
    copied_ns: int
    position: int


class Drill:
    """One drill. It is made once, on one thread.

    Args:
        settings: of the gateway.
        database: of the gateway.
        store: of the gateway. Nothing is written to it.
        say: what a person is told while it works.
        stop: ends it early.
        directory: the scratch directory is made in it (default: the data directory).
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        store: S3Store,
        say: Say = lambda _line: None,
        stop: threading.Event | None = None,
        directory: Path | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._names = NamesStore(BucketObjects(settings, store))
        self._say = say
        self._stop = stop or threading.Event()
        # A name that nothing else has: it is removed after a kill too.
        name = f"{SCRATCH}{secrets.token_hex(4)}"
        self._directory = (directory or settings.data_dir).absolute() / name
        self._problems: list[str] = []

    def run(self) -> DrillReport:
        """Make the drill, and record what it found.

        Returns:
            What it found.

        Raises:
            UserError: it cannot be made now. The message says what to do.
            StoreError: the bucket cannot be read.
            NamespaceError: the database cannot be used now.
            DrillStopped: it was told to stop.
            OSError: what it found cannot be recorded.
        """
        if not self._settings.recovery.names_in_bucket:
            raise UserError("the bucket has no names: set recovery.names_in_bucket = true")
        with files.alone(self._settings.run_dir / LOCK, "drill"):
            _tidy(self._settings, self._database)
            try:
                _make_scratch(self._settings, self._directory)
                report = self._made()
            except Lost as exc:
                raise UserError(f"{exc}: the drill cannot say what changed: run it again") from None
            finally:
                _tidy(self._settings, self._database)
            drill_record.ended(self._settings, report)
        return report

    def _made(self) -> DrillReport:
        began_ns = clock.now_ns()
        with (
            _explained(self._directory),
            closing(TouchedInodes(self._database, self._directory / TOUCHED)) as touched,
            closing(Database(f"sqlite:///{self._directory / DATABASE}")) as copy,
        ):
            row = touched.begin()
            failpoints.hit(DRILL.format(when="begun"))
            before = drill_comparison.hashes(self._database)
            until = clock.monotonic_seconds() + self._settle_seconds
            copied = self._wait_for(row)
            comparison = NamesComparison(self._database, copy, touched)
            found = _Found(copied.copied_ns)
            started = clock.monotonic_seconds()
            if copied.position >= row and (source := self._chosen(copied, row)) is not None:
                loader = self._load(source, copy, touched)
                if loader is not None:
                    with closing(loader):
                        found = self._compare(comparison, loader, started)
                        self._settle(comparison, loader, source, until)
                        self._problems += comparison.lists(before)
                    self._require_series(copied.series)
            failpoints.hit(DRILL.format(when="compared"))
        return DrillReport(
            began_ns=began_ns,
            ended_ns=max(began_ns, clock.now_ns()),
            is_ok=not self._problems and not comparison.differing,
            as_of_ns=found.as_of_ns or None,
            files=comparison.files,
            changed=comparison.changed,
            differing=comparison.differing,
            first=comparison.first,
            objects=len(comparison.sample),
            problems=self._problems,
            compare_seconds=found.compare_seconds,
            restore_seconds=found.restore_seconds,
        )

    @property
    def _settle_seconds(self) -> float:
        return SETTLE_SECONDS + 2 * self._settings.recovery.names_seconds

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise DrillStopped("the drill was told to stop")

    def _wait_for(self, row: int) -> _Copied:
        """Wait until the bucket has what the journal had at the beginning. If it takes too long,
        that is a problem."""
        late_seconds = self._settings.recovery.late_seconds
        until = clock.monotonic_seconds() + late_seconds
        while True:
            with self._database.reading() as session:
                copied = _copied(session)
            if copied.position >= row:
                return copied
            if clock.monotonic_seconds() >= until:
                age_seconds = max(0.0, (clock.now_ns() - copied.copied_ns) / clock.NS)
                self._problems.append(
                    f"the names in the bucket are late: {row - copied.position:,} changes that "
                    f"were there {duration(late_seconds)} ago are not in it, and it has all names "
                    f"as they were {duration(age_seconds)} ago"
                )
                return copied
            self._pause(min(POLL_SECONDS, self._settings.recovery.names_seconds))

    def _chosen(self, copied: _Copied, row: int) -> NamesSource | None:
        """Choose as a restore does. What is wrong with the copy is a problem. Returns None if a
        restore would find no copy."""
        try:
            source = choose(self._names)
        except UserError as exc:
            self._problems.append(str(exc))
            return None
        self._problems += source.problems
        if source.gap is not None:
            self._problems.append(source.gap)
        if source.series != copied.series:
            self._problems.append(
                f"a restore would use the names of series {source.series}, because the bucket has "
                f"no whole base of the present one, {copied.series}"
            )
            return None
        end = max((segment.upto for segment in source.log), default=source.base.after)
        if source.gap is None and end < row:
            self._problems.append(
                f"the log in the bucket ends at {end}, although {copied.position} was copied: "
                "segments are gone"
            )
        self._require_room(source)
        return source

    def _require_room(self, source: NamesSource) -> None:
        """Raise UserError if the scratch database would need the space of others."""
        log_bytes = sum(segment.listed.size for segment in source.log)
        need = source.base.rows * ROW_BYTES + source.base.size + LOG_FACTOR * log_bytes
        need += ROOM_MIN_BYTES
        disk = os.statvfs(self._directory)
        free = disk.f_bavail * disk.f_frsize - self._settings.space.reserve_bytes
        if free < need:
            raise UserError(
                f"the drill may need {size(need)} in {self._directory}, where {size(max(0, free))} "
                "are free beside space.reserve_bytes: free space, or name another directory: "
                "spillway restore --drill --dir DIR"
            )

    def _load(self, source: NamesSource, copy: Database, touched: TouchedInodes) -> Loader | None:
        """Load as a restore does. Returns None if one would fail."""
        log_segments = self._names.each_opened(segment.listed for segment in source.log)
        segments = chain(self._names.each_opened(source.parts), log_segments)
        count, loader = len(source.parts) + len(source.log), None
        try:
            for number, segment in enumerate(segments, 1):
                if loader is None:
                    require_known(segment.head.schema)
                    self._migrate(copy, segment.head.schema)
                    loader = Loader(copy)
                loader.use(segment)
                # The journal is not kept for the drill while it loads.
                touched.catch_up()
                self._say(f"{number:,} of {count:,} segments loaded")
                self._pause(0)
            assert loader is not None, "a base has segments"
            loaded = loader.end()
        except BaseException as exc:
            if loader is not None:
                loader.close()
            if isinstance(exc, BadSegment):
                self._problems.append(f"a restore would fail: {exc}")
                return None
            raise
        for name, rows in loaded.broken.items():
            self._problems.append(f"{rows} rows of {name} referred to what is not there")
        self._migrate(copy, "head")
        failpoints.hit(DRILL.format(when="loaded"))
        return loader

    def _migrate(self, copy: Database, revision: str) -> None:
        """Give the scratch database the schema of a revision. Raises UserError."""
        try:
            migration.upgrade(copy, revision=revision)
        except SchemaError:
            # Its text is about the database of the gateway.
            raise _unusable(self._directory, "its schema cannot be made") from None

    def _compare(self, comparison: NamesComparison, loader: Loader, started: float) -> _Found:
        """Compare what belongs to inodes, and ask the bucket for some objects.

        Args:
            started: when the restore of the names began, by the monotonic clock.
        """
        head = loader.loaded.head
        assert head is not None, "a base has segments"
        with self._database.reading() as session:
            identity = session.one(sql.IDENTITY)
        if identity is not None and bytes(identity[0]).hex() != head.namespace:
            self._problems.append(f"the copy is of another namespace, {head.namespace}")
        compared_at = clock.monotonic_seconds()
        for _page in comparison.pages():
            self._say(f"{comparison.files:,} files compared, {comparison.differing:,} differ")
            self._pause(0)
        compare_seconds = clock.monotonic_seconds() - compared_at
        for sampled in comparison.sample:
            self._pause(0)
            try:
                stored = self._store.head(sampled.key)
            except ObjectRefused as exc:
                comparison.add_object(sampled, f"its object cannot be looked at: {exc}")
                continue
            if stored is None:
                comparison.add_object(sampled, "its object is not in the bucket")
            elif (stored.size, stored.etag) != (sampled.size, sampled.etag):
                comparison.add_object(sampled, "its object has another size or ETag")
        listing_at = clock.monotonic_seconds()
        prefix = self._settings.bucket.prefix
        next(self._store.pages(f"{prefix}/" if prefix else ""), None)
        page_seconds = clock.monotonic_seconds() - listing_at
        # A restore lists the whole bucket after it has loaded the names.
        listing_seconds = page_seconds * -(-comparison.objects // LISTED_KEYS)
        return _Found(head.at_ns, compare_seconds, compared_at - started + listing_seconds)

    def _settle(
        self, comparison: NamesComparison, loader: Loader, source: NamesSource, until: float
    ) -> None:
        """Load later segments until the lists are equal, which are copied less often, or until the
        copy has had enough time."""
        while not comparison.has_equal_lists() and clock.monotonic_seconds() < until:
            self._pause(max(POLL_SECONDS, self._settings.recovery.names_seconds))
            found = list(later(source, self._names))
            for segment in self._names.each_opened(one.listed for one in found):
                loader.use(segment)
            source = replace(source, log=[*source.log, *found])

    def _require_series(self, series: str) -> None:
        """Raise UserError if the copy has begun another series meanwhile."""
        with self._database.reading() as session:
            if _copied(session).series != series:
                raise UserError("the copy of the names began again meanwhile: run the drill again")


class _Found(NamedTuple):
    """What was found beside the differences."""

    as_of_ns: int
    compare_seconds: float = 0.0
    restore_seconds: float | None = None


def _copied(session: Session) -> _Copied:
    """Return how far the copy is. Raises UserError if a drill cannot be made yet."""
    row = session.one(_COPIED)
    copied = None if row is None else _Copied(*row)
    if copied is None or copied.position < 0:
        raise UserError("the names are not copied yet: is the recovery process up? spillway status")
    if copied.base_after is None:
        raise UserError(
            "the first base of the names is not whole yet: wait until spillway status shows one"
        )
    return copied


def tidy(settings: Settings, database: Database) -> None:
    """Remove what a drill left that was killed, unless one runs. Raises NamespaceError."""
    with files.if_free(settings.run_dir / LOCK) as is_free:
        if is_free:
            _tidy(settings, database)


def _tidy(settings: Settings, database: Database) -> None:
    """Remove the reader of the journal and the scratch directory, if they are there."""
    note = settings.run_dir / NOTE
    try:
        directory = Path(os.fsdecode(note.read_bytes().rstrip(b"\n")))
        # The path comes from a file: nothing else is removed.
        if directory.name.startswith(SCRATCH):
            shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as exc:
        log.warning("the scratch directory of a drill is left: %s", exc)
    note.unlink(missing_ok=True)
    drill_comparison.forget(database)


def _make_scratch(settings: Settings, directory: Path) -> None:
    """Make the scratch directory, after a note of it. Raises UserError."""
    try:
        files.replace(settings.run_dir / NOTE, f"{directory}\n", 0o600)
        directory.mkdir(0o700)
    except OSError as exc:
        raise UserError(
            f"cannot make {exc.filename}: {exc.strerror}: free space, or name another directory: "
            "spillway restore --drill --dir DIR"
        ) from None


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Explain that the scratch database cannot be written."""
    try:
        yield
    except (sqlite3.Error, DBAPIError) as exc:
        raise _unusable(directory, str(exc)) from None


def _unusable(directory: Path, reason: str) -> UserError:
    return UserError(
        f"the scratch database in {directory} cannot be used: {reason}: see that there is space, "
        "or name another directory: spillway restore --drill --dir DIR"
    )


IDLE_SECONDS = 60.0
RETRY_SECONDS = 3600.0


class DrillTimer:
    """Makes drills when they are due. Not safe to use from several threads.

    Args:
        settings: of the gateway.
        database: of the gateway.
        store: of the gateway.
        stop: ends a drill early.
    """

    def __init__(
        self, settings: Settings, database: Database, store: S3Store, stop: threading.Event
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._stop = stop

    def begin(self) -> None:
        """Remove what a drill left that was killed. What cannot be removed is left to the next
        drill."""
        try:
            tidy(self._settings, self._database)
        except Exception:
            # What is not foreseen must not end the drills.
            log.exception("what a drill left stays for now")

    def step(self) -> float:
        """Make a drill if one is due. Returns the seconds until the next look."""
        days = self._settings.recovery.drill_days
        if not days or not self._settings.recovery.names_in_bucket:
            return IDLE_SECONDS
        if not drill_record.is_due(days, drill_record.begun(self._settings).last):
            return IDLE_SECONDS
        try:
            drill = Drill(self._settings, self._database, self._store, stop=self._stop)
            report = drill.run()
        except DrillStopped:
            return 0.0
        except (UserError, StoreError, NamespaceError) as exc:
            if isinstance(exc, StoreRefused):
                self._store.reload()
            log.warning("no drill: %s", exc)
            drill_record.failed(self._settings, str(exc))
            return RETRY_SECONDS
        for problem in report.problems:
            log.warning("drill: %s", problem)
        for difference in report.first:
            log.warning("drill: %s: %s", difference.path, difference.what)
        log.info(
            "drill: %d files compared in %.1f s, %d differ, %d changed meanwhile",
            *(report.files, report.seconds, report.differing, report.changed),
        )
        return IDLE_SECONDS
