"""Identity check: nothing starts unless database, data files and bucket belong together.

The row of the volume and the stamp of the data files (``gateway.namespace.data_files``) name the
same namespace and the same gateway, and have the same mark. The mark moves at each start of the NFS
server and in every minute in which something changed. So an older copy of the database, or of the
data files, has an older mark and is refused before anything is read or changed.

A mark moves in three steps. The stamp gets the old and the new number, then the database gets the
new one, then the stamp gets the new one alone. A crash leaves a stamp with the database's number.

A stop moves the mark too, and the stamp says that nothing was committed after it. After a crash the
mark may be a minute old. So another copy of the database with the same mark is refused, and after a
failover of PostgreSQL the start compares the data files with the rows (``gateway.namespace.adopt``)
before anything is served, sealed or evicted: the standby may lack the last changes.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gateway.common import clock
from gateway.common.errors import IdentityError, SpillwayError
from gateway.common.files import replace
from gateway.config.settings import BucketSettings, Settings
from gateway.db import schema, unfinished
from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.engine import Connection, Database
from gateway.db.url import Lineage
from gateway.db.writer import Tx, Writer
from gateway.namespace import data_files
from gateway.namespace.data_files import DataFiles, Stamp

log = logging.getLogger("spillway.identity")

T = TypeVar("T")

MARK_SECONDS = 60.0
STOP_SECONDS = 5.0
READINGS = 3
SAMPLE = 16
"""The number of files whose bytes are looked for if the database names no gateway yet."""


class Identity(NamedTuple):
    """The identity in the row of the volume."""

    fs_id: bytes
    gateway: bytes | None
    mark: int
    bucket: str | None
    prefix: str | None


class Surroundings(NamedTuple):
    """What a namespace and the data files say of each other."""

    identity: Identity
    stamped: Stamp | None
    lineage: Lineage

    @property
    def may_lack_changes(self) -> bool:
        """Whether the database may lack changes that the data files have."""
        stamped, lineage = self.stamped, self.lineage
        return stamped is not None and (
            stamped.is_behind
            or (_is_unsure(stamped) and stamped.lineage != (lineage.origin, lineage.branch))
        )


def of(session: Session) -> Identity:
    """Return the identity of a namespace."""
    row = session.one(sql.IDENTITY)
    assert row is not None, "the volume row is missing"
    return Identity(*row)


def surroundings(database: Database, connection: Connection, files: DataFiles) -> Surroundings:
    """Read what database and data files say of each other. Raises IdentityError, OSError."""
    identity = of(Session(connection, database.dialect))
    return Surroundings(identity, data_files.read(files.root), database.backend.lineage(connection))


def _is_unsure(stamped: Stamp) -> bool:
    """Return whether changes may have been committed after the mark."""
    return stamped.lineage is not None and not stamped.is_stopped


def problem(around: Surroundings, directory: int) -> str | None:
    """Return why data files are not those of a namespace, with the remedy, or None if they are.

    Args:
        directory: the inode number of the directory of the data files.
    """
    identity, stamped, _lineage = around
    if stamped is None:
        return (
            "has no stamp: its disk is not mounted, or it is another directory: mount the disk or "
            "correct gateway.data_dir; if the bytes are lost for good: spillway adopt files"
        )
    if stamped.fs_id != identity.fs_id.hex():
        return (
            "belongs to another namespace: put back gateway.data_dir or namespace.url as they were"
        )
    if identity.gateway is not None and stamped.gateway != identity.gateway.hex():
        return (
            "belongs to another gateway of this namespace: only the gateway that has the bytes "
            "may run; if that one is gone for good: spillway adopt files"
        )
    if stamped.directory != directory:
        return (
            "is a copy of the data files: a gateway may be running on the original; if that one "
            "is gone for good: spillway adopt files"
        )
    return _problem_of_time(around, stamped)


def _problem_of_time(around: Surroundings, stamped: Stamp) -> str | None:
    """Return why data files are of another time than a namespace, or None if they are not."""
    mark = around.identity.mark
    is_same = stamped.lineage is None or stamped.lineage[0] == around.lineage.origin
    if mark in stamped.marks:
        if is_same or not _is_unsure(stamped):
            return None
        return (
            "may be newer than the database, which is a copy or was restored from a backup: the "
            "gateway was not stopped before that: put the database back that it had, or run: "
            "spillway fsck --repair, then: spillway adopt files"
        )
    if mark < max(stamped.marks):
        if stamped.is_behind and is_same:
            return None  # a running server saw the failover that lost the mark
        return (
            "is newer than the database, which was restored from a backup, or failed over while "
            "the gateway did not run: put the newer database back, or run: spillway fsck --repair, "
            "then: spillway adopt files"
        )
    return (
        "is older than the database: it is an old snapshot of the disk: put the newer disk back, "
        "or run: spillway fsck, then: spillway adopt files"
    )


def require_files(database: Database, connection: Connection, files: DataFiles) -> Surroundings:
    """Return the surroundings of a namespace whose data files are there. Raises IdentityError."""
    around = surroundings(database, connection, files)
    identity = around.identity
    if identity.gateway is None and not _is_taken(identity, around.stamped, files):
        _require_bytes(Session(connection, database.dialect), files)
        return around
    directory = data_files.directory_of(files.root) if files.root.is_dir() else 0
    why = problem(around, directory)
    if why is not None:
        raise IdentityError(f"{files.root} {why}")
    return around


def _is_taken(identity: Identity, stamped: Stamp | None, files: DataFiles) -> bool:
    """Return whether a directory has this namespace's stamp, or another's with data files."""
    if stamped is None:
        return False
    return stamped.fs_id == identity.fs_id.hex() or any(True for _ in files.walk())


def owns(session: Session, files: DataFiles) -> bool:
    """Return whether data files are this namespace's, of any time. Unknown counts as no."""
    try:
        identity, stamped = of(session), data_files.read(files.root)
    except IdentityError:
        return False
    if stamped is None:
        return identity.gateway is None
    return stamped.fs_id == identity.fs_id.hex()


def require_surroundings(settings: Settings) -> None:
    """Check that schema, data files and bucket are those of the namespace.

    Raises SchemaError, IdentityError, TryAgain.
    """
    database = Database(settings.database_url)
    try:
        schema.require_current(database)
        if unfinished.is_there(database):
            raise IdentityError(
                f"database {database.url} is of a restore that has not ended: run it again: "
                f"spillway restore --config {settings.source}"
            )
        _require(database, DataFiles(settings.files_dir))
        require_bucket(database, settings.bucket)
    finally:
        database.close()


def _require(database: Database, files: DataFiles) -> None:
    """Do ``require_files`` in other processes than the NFS server. Raises IdentityError, TryAgain.

    It reads both again before it refuses: the server may move the mark between the two reads.
    """
    for attempt in range(READINGS):
        try:
            with database.reader() as connection:
                require_files(database, connection, files)
            return
        except IdentityError:
            if attempt == READINGS - 1:
                raise


def _require_bytes(session: Session, files: DataFiles) -> None:
    """Require that some files of the namespace are there, if its database is older than stamps."""
    rows = session.all(sql.FILES_WITH_BYTES, most=SAMPLE)
    if rows and not any(files.path(ino, epoch).exists() for ino, epoch in rows):
        raise IdentityError(
            f"{files.root} has none of the files of this namespace: mount its disk or correct "
            "gateway.data_dir; if the bytes are lost for good: spillway adopt files"
        )


def id_file(settings: Settings) -> Path:
    """Return the file beside the configuration with the id of the namespace that was made with it.

    Without the file, a gateway whose data disk has the database and is not mounted would look like
    a new one. Its new namespace would replace objects of the present one.
    """
    return settings.source.with_suffix(".id")


def require_database(settings: Settings) -> None:
    """Raise SchemaError if a namespace was made with this configuration and its database is
    gone."""
    path = id_file(settings)
    if path.exists():
        maker = f"spillway init --new ({path} has the id of the present one)"
        schema.require_made(Database(settings.database_url), maker)


def remember(settings: Settings) -> str:
    """Write the id of the namespace beside the configuration. Returns what was done."""
    database, path = Database(settings.database_url), id_file(settings)
    where = f"id of the namespace {path}"
    try:
        with database.reader() as connection:
            fs_id = of(Session(connection, database.dialect)).fs_id.hex()
        is_new = replace(path, f"{fs_id}\n", 0o600)
        return f"{where}: {'written' if is_new else 'current'}"
    except OSError as exc:
        return (
            f"{where}: cannot be written ({exc.strerror}): without it, spillway init takes this "
            "gateway for a new one while the disk of its database is not mounted"
        )
    finally:
        database.close()


class Mark:
    """Moves the mark of a namespace, in its database and in the stamp of its data files.

    Nothing is read or changed before ``begin``."""

    def __init__(self, database: Database, writer: Writer, files: DataFiles) -> None:
        self._database = database
        self._writer = writer
        self._files = files
        self._stamped: Stamp | None = None
        self._stamping = threading.Lock()
        self._moving: threading.Thread | None = None
        self._gateway = b""
        self._mark = 0
        self._lineage: Lineage
        self._commits = 0
        self._moved_seconds = 0.0
        self.is_behind = False
        """Whether the database may lack changes: the data files must be compared with it."""

    def begin(self, start: Callable[[Tx], T]) -> T:
        """Check that the data files are the namespace's, then run a start and move the mark.

        The first start makes the gateway's id. Raises IdentityError, OSError.

        Args:
            start: runs in one transaction with the mark.
        """
        with self._database.reader() as connection:
            around = require_files(self._database, connection, self._files)
        identity, stamped, self._lineage = around
        self.is_behind = around.may_lack_changes
        # After a failover that lost a mark, its number is not given again.
        self._mark = max((identity.mark, *(stamped.marks if stamped and self.is_behind else ())))
        gateway = identity.gateway
        if gateway is None:
            # An interrupted first start may have written the stamp already.
            gateway = secrets.token_bytes(16)
            if stamped is not None and stamped.fs_id == identity.fs_id.hex():
                gateway = bytes.fromhex(stamped.gateway)
        self._gateway = gateway
        self._stamped = Stamp(
            identity.fs_id.hex(),
            gateway.hex(),
            (self._mark,),
            data_files.directory_of(self._files.root),
            self._lineage,
            is_behind=self.is_behind,
        )
        return self._move(start)

    def compared(self) -> None:
        """Note that the data files were compared with the rows. Raises OSError."""
        self.is_behind = False
        self._stamp(is_behind=False)

    def note_loss(self) -> None:
        """Have the next start compare the data files with a database that lacks changes.

        The caller ends the process: nothing else writes the stamp any more. Raises OSError.
        """
        self._stamping.acquire()
        if self._stamped is not None:
            data_files.write(self._files.root, self._stamped._replace(is_behind=True))

    def keep(self, beside: Callable[[Tx], object]) -> None:
        """Move the mark if something was committed and the last move is a minute ago.

        Returns at once: the caller watches over the disk, and a commit may be indeterminate for as
        long as the database is away.

        Args:
            beside: what is done in the same transaction.
        """
        if self._writer.counts.commits == self._commits:
            return
        if clock.monotonic_seconds() - self._moved_seconds < MARK_SECONDS:
            return
        if self._moving is None or not self._moving.is_alive():
            self._moving = threading.Thread(
                target=self._try_to_move, args=(beside,), name="mark", daemon=True
            )
            self._moving.start()

    def _try_to_move(self, beside: Callable[[Tx], object]) -> None:
        try:
            self._move(beside)
        except (OSError, SpillwayError) as exc:
            # The next minute tries again. Until then a restored database may look like this one.
            log.warning("cannot move the mark of database and data files: %s", exc)

    def stop(self) -> None:
        """Move the mark for the last time. After this the writer commits nothing."""
        if self._stamped is None or self._stamped.is_stopped or self.is_behind:
            return
        if self._moving is not None:
            self._moving.join(STOP_SECONDS)
        try:
            self._move(lambda _tx: None, self._writer.run_last)
            self._stamp(is_stopped=True)
        except (OSError, SpillwayError) as exc:
            log.warning("stopped as after a crash: cannot move the mark: %s", exc)

    def _move(self, beside: Callable[[Tx], T], run: Any = None) -> T:
        before = self._mark

        def move_mark(tx: Tx) -> T:
            tx.run(sql.MARK, gateway=self._gateway, mark=before + 1)
            return beside(tx)

        # The stamp has both numbers until the commit is known: its answer may be lost.
        self._stamp(marks=(before, before + 1))
        result: T = (run or self._writer.run)(move_mark)
        self._mark = before + 1
        self._stamp(marks=(before + 1,))
        self._commits = self._writer.counts.commits
        self._moved_seconds = clock.monotonic_seconds()
        return result

    def _stamp(self, **values: Any) -> None:
        with self._stamping:
            assert self._stamped is not None
            self._stamped = self._stamped._replace(**values)
            data_files.write(self._files.root, self._stamped)


def require_bucket(database: Database, bucket: BucketSettings) -> None:
    """Check that the configured bucket and prefix are those that have the namespace's objects.

    As long as nothing was drained, they are only recorded. Raises IdentityError, TryAgain.
    """
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        identity = of(session)
        if (identity.bucket, identity.prefix) == (bucket.name, bucket.prefix):
            return
        with database.transaction(connection):
            if identity.bucket is not None and session.one(sql.ANYTHING_DRAINED) is not None:
                raise IdentityError(
                    f"this namespace's objects are in bucket {identity.bucket!r} with prefix "
                    f"{identity.prefix!r}, the configuration has {bucket.name!r} and "
                    f"{bucket.prefix!r}: put bucket.name and bucket.prefix back; to send "
                    "everything to the new place: spillway adopt bucket"
                )
            session.run(sql.BUCKET, bucket=bucket.name, prefix=bucket.prefix)


def has_bucket(database: Database, bucket: BucketSettings) -> bool:
    """Return whether the namespace's objects are in the configured bucket and prefix."""
    with database.reading() as session:
        identity = of(session)
    return (identity.bucket, identity.prefix) == (bucket.name, bucket.prefix)


def claim(database: Database, files: DataFiles, make_directory: Callable[[], object]) -> bool:
    """Stamp the data files of a namespace that no gateway was started on.

    It is not called if the data files are another namespace's. Returns False if they have this
    namespace's stamp already. Raises IdentityError, OSError, NamespaceError.

    Args:
        make_directory: makes the directory of the data files if it is missing.
    """
    with database.reader() as connection:
        identity = require_files(database, connection, files).identity
    make_directory()
    if identity.gateway is not None:
        return False
    writer = Writer(database)
    try:
        mark = Mark(database, writer, files)
        mark.begin(lambda _tx: None)
        mark.stop()
    finally:
        writer.close()
    return True
