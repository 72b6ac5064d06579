"""Backup: a whole copy of names and settings in a directory, beside a gateway that runs.

It is made as the copy in the bucket is: a base that is read page by page, and the log of what
changed meanwhile, for which the journal is kept by a reader of its own. So no writer waits for it,
and a restore uses it as it uses the bucket.

The directory has another name until everything in it is durable. After a kill, the next backup
removes what is left of it, and the reader ends with the next backup or within a minute.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import select

from gateway.common import clock, files
from gateway.common.errors import NamespaceError, UserError
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.journal import READER_DELETE
from gateway.db.statements import reader
from gateway.recovery.copy_objects import DirectoryObjects
from gateway.recovery.names_copy import CopyStanding, CopyState, NamesCopy
from gateway.recovery.names_store import NamesStore
from gateway.recovery.settings_copy import SettingsCopy
from gateway.recovery.settings_store import SettingsStore
from gateway.recovery.source import choose

LOCK = "backup.lock"
UNFINISHED = ".unfinished"
"""The end of the name of a backup that is not whole."""
LOG_SECONDS = 1.0
PAUSE_SECONDS = 0.02
"""The rest between two pages: clients go first."""
TRIES = 30
RETRY_SECONDS = 2.0

_FIND = Statement(select(reader.c.position).where(reader.c.name == b("reader")))


class BackupStanding(CopyStanding):
    """The reader of the journal of a backup. Nothing else is remembered: each begins at its
    start."""

    reader = "backup"

    def is_there(self, session: Session) -> bool:
        """Return whether the journal is kept for a backup."""
        return session.one(_FIND, reader=self.reader) is not None

    def state(self, session: Session) -> CopyState | None:
        """Return nothing: no backup is continued."""

    def save(self, session: Session, state: CopyState) -> None:
        """Remember nothing."""

    def forget(self, session: Session) -> None:
        """End the reader."""
        session.run(READER_DELETE, reader=self.reader)


@dataclass(frozen=True)
class BackupReport:
    """A backup that is whole."""

    directory: Path
    as_of_ns: int
    inodes: int
    size: int
    """Bytes of all of its files."""
    problems: list[str]
    """What could not be copied beside the names, for people."""


class Backup:
    """One backup.

    Args:
        settings: of the gateway.
        database: of the gateway.
        parent: where its directory is made.
        wait: waits for so many seconds.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        parent: Path,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        recovery = replace(settings.recovery, names_seconds=LOG_SECONDS)
        self._settings = replace(settings, recovery=recovery)
        self._database = database
        self._parent = parent
        self._wait = wait

    def run(self) -> BackupReport:
        """Make it.

        Returns:
            What was made.

        Raises:
            UserError: another one is being made, or the database does not answer.
            OSError: the disk does not take it. Nothing is left of it then.
        """
        with files.alone(self._settings.run_dir / LOCK, "backup"):
            with self._database.reading() as session:
                identity = session.one(sql.IDENTITY)
            assert identity is not None, "the volume row is missing"
            namespace = bytes(identity[0]).hex()
            for left in self._parent.glob(f"{namespace}-*{UNFINISHED}"):
                shutil.rmtree(left)
            moment = datetime.fromtimestamp(clock.now_ns() // clock.NS, UTC)
            whole = self._parent / f"{namespace}-{moment:%Y%m%dT%H%M%SZ}"
            if whole.exists():
                raise UserError(f"{whole} is there already: run this again")
            made = whole.with_name(f"{whole.name}{UNFINISHED}")
            made.mkdir(mode=0o700)
            try:
                report = self._filled(DirectoryObjects(made), whole)
                made.rename(whole)
                files.sync_directory(self._parent)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
        return report

    def _filled(self, objects: DirectoryObjects, whole: Path) -> BackupReport:
        names = NamesStore(objects)
        self._copy_names(names)
        beside = SettingsCopy(self._settings, self._database, SettingsStore(objects))
        beside.step()
        error = beside.progress().error
        # This raises if it is not whole.
        base = choose(names).base
        objects.sync()
        size = sum(listed.size for listed in objects.listing(objects.below))
        return BackupReport(whole, base.ended_ns, base.inodes, size, [error] if error else [])

    def _copy_names(self, names: NamesStore) -> None:
        copy = NamesCopy(self._settings, self._database, names, BackupStanding())
        tries = 0
        try:
            while not copy.progress().base_ns:
                try:
                    seconds = copy.step()
                    tries = 0
                except NamespaceError as exc:
                    tries += 1
                    if tries == TRIES:
                        raise UserError(
                            f"the database does not answer: {exc}: run this again when it does"
                        ) from None
                    seconds = RETRY_SECONDS
                self._wait(max(seconds, PAUSE_SECONDS))
        finally:
            copy.leave()


def end_left_reader(settings: Settings, database: Database) -> None:
    """End the reader of a backup that was killed: the journal would be kept for it.

    Args:
        settings: of the gateway.
        database: of the gateway.

    Raises:
        NamespaceError: the database cannot be used now.
        OSError: the lock file cannot be opened.
    """
    standing = BackupStanding()
    with database.reading() as session:
        if not standing.is_there(session):
            return
    with files.if_free(settings.run_dir / LOCK) as is_free:
        if is_free:
            with database.writing() as session:
                standing.forget(session)
