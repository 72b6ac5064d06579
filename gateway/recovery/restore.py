"""Restore of a namespace from the copy of its names in the bucket.

Steps, each of which may be killed: a restore that is begun again does them all again.

1. The bucket is taken: its former gateway, if it lives, stops to write when it looks next.
2. A new database gets the base and the log, and what the log has got since. Nothing is there under
   the database's own name before it is whole.
3. Every file whose bytes the bucket has is absent: they come when they are read. A file whose last
   version was only on the lost disk is as the bucket has it, or damaged if the bucket has none. If
   only the database was lost, the data files are adopted instead (``gateway.namespace.adopt``).
4. The names follow the bucket (``gateway.recovery.reconcile``), which may have got objects since
   the last segment.

Nothing in the bucket is changed but its owner. Policies delete nothing before a person has approved
it again.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import (
    MetaData,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    update,
)

from gateway.common import clock, failpoints, files
from gateway.common.errors import NamespaceError, StoreUnavailable, UserError
from gateway.common.types import Residency
from gateway.common.units import duration
from gateway.config.settings import Settings
from gateway.db import schema, unfinished
from gateway.db import statements as sql
from gateway.db import upgrade as migration
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.models import RESERVED_INO, ROOT_INO
from gateway.db.statements import (
    damage,
    dirent,
    indeterminate_write,
    inode,
    object_,
    volume,
)
from gateway.db.unfinished import NAMES
from gateway.drain import verify
from gateway.lifecycle.retention import store as policies
from gateway.namespace import adopt, data_files, usage
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import path_of
from gateway.namespace.residency import HAS_CONTENT
from gateway.objectstore import ownership
from gateway.objectstore.owner_object import REQUEST_SECONDS, OwnerStore, SeenOwner
from gateway.objectstore.ownership import LOOK_SECONDS, OwnerClaim, Ownership
from gateway.objectstore.s3 import S3Store
from gateway.recovery import import_rows, tables
from gateway.recovery import reconcile_rules as rules
from gateway.recovery.copy_objects import BucketObjects, CopyObjects
from gateway.recovery.load import Loaded, Loader, require_known
from gateway.recovery.names_store import NamesStore
from gateway.recovery.reconcile import compare, reconcile
from gateway.recovery.reconcile_report import BucketReport
from gateway.recovery.segments import SegmentReader
from gateway.recovery.source import NamesSource, choose, later

AUTHOR = "spillway restore"
"""Whose the versions of policies are that ask before they delete."""
SUFFIX = ".restoring"

Say = Callable[[str], None]

_unfinished = unfinished.TABLE
_STORED = object_.alias("stored")
_IS_OLDER = (
    sql.IS_REGULAR,
    inode.c.content_version > inode.c.drained_version,
    exists().where(_STORED.c.ino == inode.c.ino),
    ~exists().where(damage.c.ino == inode.c.ino),
)
"""The bucket has another version of the file than the one that was only on the lost disk."""
_OBJECT = {
    name: select(object_.c[name]).where(object_.c.ino == inode.c.ino).scalar_subquery()
    for name in ("size", "content_version")
}
_NOTE_NAMES = Statement(insert(_unfinished))
_NOTE_UNSAVED = Statement(
    insert(_unfinished).from_select(
        ["ino", "version"],
        select(inode.c.ino, inode.c.content_version).where(
            sql.IS_REGULAR,
            inode.c.nlink > 0,
            inode.c.content_version > inode.c.drained_version,
            ~exists().where(damage.c.ino == inode.c.ino),
        ),
    )
)
_AS_OF = Statement(
    select(_unfinished.c.version).where(_unfinished.c.ino == literal_column(f"{NAMES}"))
)
_OLDER = Statement(
    select(inode.c.ino)
    .select_from(_unfinished.join(inode, inode.c.ino == _unfinished.c.ino))
    .where(
        inode.c.nlink > 0,
        inode.c.content_version < _unfinished.c.version,
        ~exists().where(damage.c.ino == inode.c.ino),
    )
    .order_by(inode.c.ino)
)
_OLDER_KEYS = Statement(
    insert(indeterminate_write).from_select(
        ["key", "ino", "noted_ns", "check_after_ns"],
        select(object_.c.key, object_.c.ino, b("now_ns"), literal_column("0"))
        .select_from(object_.join(inode, inode.c.ino == object_.c.ino))
        .where(*_IS_OLDER),
    )
)
"""The lost version may still reach the key: the drain looks at it once more."""
_AS_STORED = {
    "size": _OBJECT["size"],
    "used": literal_column("0"),
    "content_version": _OBJECT["content_version"],
    "drained_version": _OBJECT["content_version"],
    "write_open": literal_column("0"),
    # A file without bytes needs none from the bucket.
    "residency": case(
        (_OBJECT["size"] > literal_column("0"), literal_column(f"{Residency.ABSENT:d}")),
        else_=literal_column(f"{Residency.RESIDENT:d}"),
    ),
    "epoch": inode.c.epoch + 1,
    "ctime_ns": b("now_ns"),
}
_TAKE_OLDER = Statement(update(inode).where(*_IS_OLDER).values(_AS_STORED))
_IS_FOUND_SINCE = (
    inode.c.nlink > 0,
    inode.c.content_version > inode.c.drained_version,
    inode.c.ino.in_(select(_unfinished.c.ino)),
    exists().where(_STORED.c.ino == inode.c.ino),
    exists().where(damage.c.ino == inode.c.ino, damage.c.reason.not_like(f"{rules.DAMAGE}%")),
)
"""Neither the disk nor the names had a version of the file, and the comparison with the bucket
found an older one."""
_TAKE_FOUND = Statement(update(inode).where(*_IS_FOUND_SINCE).values(_AS_STORED))
_HEAL_FOUND = Statement(
    delete(damage).where(
        damage.c.ino.in_(select(_unfinished.c.ino)),
        damage.c.ino.in_(
            select(inode.c.ino).where(inode.c.content_version == inode.c.drained_version)
        ),
        damage.c.reason.not_like(f"{rules.DAMAGE}%"),
    )
)
_TAKE_ABSENT = Statement(
    update(inode)
    .where(
        sql.IS_REGULAR,
        sql.IS_RESIDENT,
        inode.c.size > 0,
        inode.c.content_version == inode.c.drained_version,
        or_(
            # Bytes without digests to verify them by are better than none. They get them when they
            # are read.
            exists().where(object_.c.ino == inode.c.ino, *HAS_CONTENT),
            sql.IS_IMPORTED,
        ),
        ~exists().where(damage.c.ino == inode.c.ino),
    )
    .values(residency=Residency.ABSENT, epoch=inode.c.epoch + 1)
)
_NAMELESS = Statement(
    select(func.count())
    .select_from(inode)
    .where(
        inode.c.nlink > 0,
        inode.c.ino.not_in([literal_column(f"{ino}") for ino in (ROOT_INO, RESERVED_INO)]),
        ~exists().where(dirent.c.ino == inode.c.ino),
    )
)
_FILES = Statement(
    select(func.count()).select_from(inode).where(sql.IS_REGULAR, sql.IS_CLIENTS, inode.c.nlink > 0)
)
_DAMAGED = Statement(
    select(inode.c.ino, inode.c.size)
    .select_from(inode.join(damage, damage.c.ino == inode.c.ino))
    .where(inode.c.nlink > 0)
    .order_by(inode.c.ino)
)
_WHOSE = Statement(update(volume).values(gateway=null(), bucket=b("bucket"), prefix=b("prefix")))


_NO_FILES = {
    **{"id": 1, "boot": 0, "next_ino": 0, "next_cookie": 0, "mark": 0},
    **{"bucket": None, "prefix": None, "gateway": None},
}
"""The other columns of the row of a volume that is only there for a claim."""


class LostFile(NamedTuple):
    """A file whose last version was only on the lost disk."""

    path: str
    size: int
    """Bytes that it had."""


@dataclass
class Restored:
    """What a restore brought back."""

    as_of_ns: int
    """The names are those of this time."""
    files: int = 0
    older: list[str] = field(default_factory=list)
    """Paths of files that are as the bucket has them, older than they were saved."""
    lost: list[LostFile] = field(default_factory=list)
    """Files of which the bucket has nothing. Their names stay, and they are damaged."""
    segments: int = 0
    rows: int = 0
    problems: list[str] = field(default_factory=list)
    """What was wrong with the copy, for people."""
    bucket: BucketReport | None = None
    """What the comparison with the bucket changed. None: the bucket did not answer."""


class NamespaceRestore:
    """A restore to one gateway, which does not run.

    Args:
        settings: of the gateway. Its directories are made, and it has credentials.
        say: what a person is told while it works.
        objects: the copy (default: that in the bucket). With another one, the bucket need not
            answer.
        progress: is told how far it is, often (default: ``say``).
    """

    def __init__(
        self,
        settings: Settings,
        say: Say,
        objects: CopyObjects | None = None,
        progress: Say | None = None,
    ) -> None:
        self._settings = settings
        self._say = say
        self._progress = progress or say
        self._names = NamesStore(objects or BucketObjects(settings, S3Store(settings)))
        self._has_disk = False
        """Whether the data files are those of the namespace: only its database was lost."""
        self._needs_bucket = objects is None or isinstance(objects, BucketObjects)

    def run(
        self,
        at_ns: int | None = None,
        is_gone: bool = False,
        wait: Callable[[float], object] = time.sleep,
    ) -> Restored:
        """Restore the newest names, or those of a time.

        Args:
            at_ns: the time (default: the newest).
            is_gone: whether a person says that the former gateway is gone for good.
            wait: waits for so many seconds.

        Returns:
            What it brought back.

        Raises:
            UserError: there is a namespace already, or no copy of one.
            StoreError, BadSegment: the bucket does not give the copy.
        """
        if self._require_none():
            restored = Restored(0)
            with closing(Database(self._settings.database_url)) as database:
                self._adopt(database, restored, at_ns is None)
            return restored
        source = choose(self._names, at_ns)
        self._say(
            f"base of {clock.iso(source.base.ended_ns)}, {source.base.inodes:,} inodes; "
            f"{len(source.log):,} segments of the log after it"
        )
        self._require_disk(source.base.namespace, at_ns)
        claim, alive_seconds = self._taken(bytes.fromhex(source.base.namespace))
        failpoints.hit_counted(failpoints.RESTORE)
        parts = self._names.each_opened(source.parts)
        first = next(parts)
        with (
            self._new_database(first.head.schema) as database,
            closing(Loader(database)) as loader,
        ):
            self._load(loader, chain([first], parts), source, at_ns)
            if at_ns is None:
                self._load_later(loader, source, 0.0 if is_gone else alive_seconds, wait)
            loaded = loader.end()
            failpoints.hit_counted(failpoints.RESTORE)
            restored = self._settle(database, claim, loaded)
            failpoints.hit_counted(failpoints.RESTORE)
        self._keep()
        failpoints.hit_counted(failpoints.RESTORE)
        with closing(Database(self._settings.database_url)) as database:
            self._adopt(database, restored, at_ns is None)
        restored.problems[:0] = [*source.problems, *([source.gap] if source.gap else [])]
        return restored

    def _require_none(self) -> bool:
        """Raise UserError if there is a namespace already. What a killed restore left goes.

        Returns:
            Whether an earlier restore has loaded the names, and only the last step is missing.
        """
        is_loaded = require_none(self._settings)
        if is_loaded:
            return True
        with closing(Database(self._settings.database_url)) as database:
            if database.path is not None and not database.path.exists():
                for name in _files_of(Path(f"{database.path}{SUFFIX}")):
                    name.unlink(missing_ok=True)
            elif unfinished.is_there(database):
                _empty(database)
        return False

    def _require_disk(self, namespace: str, at_ns: int | None) -> None:
        """Find out whether the disk was lost. Raises UserError if it does not fit."""
        files_dir = self._settings.files_dir
        stamped = data_files.read(files_dir)
        if stamped is None:
            return
        if stamped.fs_id != namespace:
            raise UserError(
                f"{files_dir} has the data files of another namespace: correct gateway.data_dir, "
                "or move them away"
            )
        if at_ns is not None:
            raise UserError(
                f"{files_dir} has the data files of today, which are not those of an earlier time: "
                "give another gateway.data_dir"
            )
        self._has_disk = True

    def _taken(self, fs_id: bytes) -> tuple[OwnerClaim | None, float]:
        """Take the bucket, if it answers. One that is needed must. Otherwise as ``_take``."""
        try:
            return self._take(fs_id)
        except StoreUnavailable as exc:
            if self._needs_bucket:
                raise
            self._say(f"the bucket does not answer, and is neither taken nor compared: {exc}")
            return None, 0.0

    def _take(self, fs_id: bytes) -> tuple[OwnerClaim, float]:
        """Take the bucket. Returns the claim, and for how many seconds its former gateway may
        still write."""
        settings = self._settings
        seen = OwnerStore(settings).look()
        with tempfile.TemporaryDirectory() as directory:
            # The claim is made before the database is: it only needs to know whose it is.
            scratch = Database(f"sqlite:///{directory}/namespace.db")
            with closing(scratch):
                migration.upgrade(scratch)
                with scratch.writing() as session:
                    session.run(sql.VOLUME_INSERT, fs_id=fs_id, **_NO_FILES)
                Ownership(settings, scratch).take()
                with scratch.reading() as session:
                    claim = ownership.read(session, settings)
        return claim, _alive_seconds(seen)

    @contextmanager
    def _new_database(self, revision: str) -> Iterator[Database]:
        """Make an empty database with the schema of the copy."""
        database = Database(self._settings.database_url)
        if database.path is not None:
            database.close()
            database = Database(f"sqlite:///{database.path}{SUFFIX}")
        require_known(revision)
        with closing(database):
            unfinished.begin(database)
            migration.upgrade(database, revision=revision)
            yield database

    def _load(
        self,
        loader: Loader,
        parts: Iterable[SegmentReader],
        source: NamesSource,
        at_ns: int | None,
    ) -> None:
        """Load the base and its log."""
        count, began = len(source.parts) + len(source.log), clock.monotonic_seconds()
        log = self._names.each_opened(found.listed for found in source.log)
        until = takewhile(lambda segment: at_ns is None or segment.head.at_ns <= at_ns, log)
        for number, segment in enumerate(chain(parts, until), 1):
            loader.use(segment)
            failpoints.hit_counted(failpoints.RESTORE)
            seconds = clock.monotonic_seconds() - began
            self._progress(
                f"{number:,} of {count:,} segments of the names loaded, "
                f"{duration(seconds / number * (count - number))} left"
            )

    def _load_later(
        self, loader: Loader, source: NamesSource, seconds: float, wait: Callable[[float], object]
    ) -> None:
        """Load what the former gateway has copied since, which may still run."""
        if seconds > 0:
            self._say(
                f"the former gateway may still run: it stops within {duration(seconds)}, which is "
                "waited for (--is-gone: it is known to be off)"
            )
            wait(seconds)
        found = later(source, self._names)
        for segment in self._names.each_opened(one.listed for one in found):
            loader.use(segment)

    def _settle(self, database: Database, claim: OwnerClaim | None, loaded: Loaded) -> Restored:
        """Make the rows those of this gateway, whose disk is empty."""
        head = loaded.head
        assert head is not None, "a base has segments"
        migration.upgrade(database)
        bucket = self._settings.bucket
        restored = Restored(head.at_ns, segments=loaded.segments, rows=loaded.rows)
        now_ns = clock.now_ns()
        with database.writing() as session:
            session.run(_WHOSE, bucket=bucket.name, prefix=bucket.prefix)
            if claim is not None:
                ownership.write(session, self._settings, claim)
            session.run(_NOTE_NAMES, ino=NAMES, version=head.at_ns)
            if not self._has_disk:
                session.run(_NOTE_UNSAVED)
                session.run(_OLDER_KEYS, now_ns=now_ns)
                session.run(_TAKE_OLDER, now_ns=now_ns)
                session.run(_TAKE_ABSENT)
            import_rows.list_again(session)
            usage.count_again(session)
            policies.ask_again(session, AUTHOR)
            nameless = _count(session, _NAMELESS)
        # What is compared seldom is older than the names: what it was about may be gone since.
        behind = {table.name for table in tables.COMPARED_SELDOM}
        for table, count in loaded.broken.items():
            if table in behind:
                continue
            restored.problems.append(f"{count} rows of {table} referred to what is not there")
        if nameless:
            restored.problems.append(f"{nameless} files have no name: spillway fsck --repair")
        return restored

    def _keep(self) -> None:
        """Give the new database its name, now that it is whole."""
        path = Database(self._settings.database_url).path
        if path is None:
            return
        made = Path(f"{path}{SUFFIX}")
        for name in _files_of(made):
            if name != made and name.exists() and name.stat().st_size:
                raise UserError(f"{name} is not empty: another program uses the database")
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.rename(path)
        files.sync_directory(path.parent)

    def _adopt(self, database: Database, restored: Restored, is_newest: bool) -> None:
        """Bind the disk to the namespace, and name what is lost."""
        disk = DataFiles(self._settings.files_dir)
        disk.create()
        adopt.adopt_files(database, disk, partial(verify.is_unchanged, database, disk))
        failpoints.hit_counted(failpoints.RESTORE)
        with database.reading() as session:
            is_taken = ownership.read(session, self._settings).token is not None
        if is_taken and is_newest:
            restored.bucket = reconcile(self._settings, database, disk, progress=self._progress)
        elif is_taken:
            # The names of an earlier time must not become those of today.
            restored.bucket = compare(self._settings, database, progress=self._progress)
        failpoints.hit_counted(failpoints.RESTORE)
        with database.writing() as session:
            if session.run(_TAKE_FOUND, now_ns=clock.now_ns()):
                session.run(_HEAL_FOUND)
            _report(session, restored)
            session.run(unfinished.END)


class Found(Enum):
    """What a gateway has before a restore."""

    NOTHING = auto()
    """There is no namespace, but for what a killed restore left."""
    NAMES = auto()
    """An earlier restore has loaded the names, and only the last step is missing."""
    NAMESPACE = auto()


def look(settings: Settings) -> Found:
    """Return what a gateway has. It changes nothing. Raises SchemaError, NamespaceError."""
    with closing(Database(settings.database_url)) as database:
        if database.path is not None and not database.path.exists():
            return Found.NOTHING
        if unfinished.is_there(database):
            with database.reading() as session:
                return Found.NOTHING if session.one(_AS_OF) is None else Found.NAMES
        return Found.NOTHING if schema.current(database) is None else Found.NAMESPACE


def require_none(settings: Settings) -> bool:
    """Raise UserError if there is a namespace already. It changes nothing.

    Returns:
        Whether an earlier restore has loaded the names, and only the last step is missing.
    """
    found = look(settings)
    if found is Found.NAMESPACE:
        where = Database(settings.database_url).url
        raise UserError(
            f"the database {where} has a namespace: a restore makes a new one. If that one is not "
            "wanted, move it away, or correct namespace.url"
        )
    return found is Found.NAMES


def _report(session: Session, restored: Restored) -> None:
    """Say what is there, and what is lost."""
    row = session.one(_AS_OF)
    assert row is not None, "the names were loaded"
    restored.as_of_ns = int(row[0])
    restored.files = _count(session, _FILES)
    restored.older = [_path(session, ino) for (ino,) in session.all(_OLDER)]
    for ino, size in session.all(_DAMAGED):
        restored.lost.append(LostFile(_path(session, ino), size))


def _empty(database: Database) -> None:
    """Drop all tables of a restore that has not ended."""
    engine = database.engine()
    found = MetaData()
    found.reflect(engine)
    found.drop_all(engine)
    engine.dispose()


def _alive_seconds(seen: SeenOwner | None) -> float:
    """Return for how many seconds the gateway that had the bucket may still write to it."""
    if seen is None or seen.owner.released:
        return 0.0
    age_seconds = (clock.now_ns() - seen.owner.time_ns) / clock.NS
    # It writes the time each minute. A clock that is wrong must not make it look dead.
    return 0.0 if age_seconds > 3 * LOOK_SECONDS else LOOK_SECONDS + REQUEST_SECONDS


def _files_of(path: Path) -> list[Path]:
    """Return the files of a database of SQLite."""
    return [path, *(Path(f"{path}{suffix}") for suffix in ("-wal", "-shm", "-journal"))]


def _count(session: Session, statement: Statement) -> int:
    row = session.one(statement)
    assert row is not None, "a query that counts has one row"
    return int(row[0])


def _path(session: Session, ino: int) -> str:
    try:
        return path_of(session, ino).decode("utf-8", "surrogateescape")
    except NamespaceError:
        return f"inode {ino}, which has no name"
