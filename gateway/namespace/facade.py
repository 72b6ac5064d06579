"""Namespace of one gateway, as the NFS server's process opens, recovers, reads and changes it.

Reads use pooled connections. A change is an ``Operation`` of a function of this package (names.py,
rename.py, …). ``run_together`` returns when all its operations are durable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gateway.common.errors import NotFound
from gateway.common.types import GATEWAY_CRED, Attr, Cred, Dirent, SetAttr
from gateway.config.acknowledge import Acknowledge
from gateway.config.settings import Settings
from gateway.db import journal, schema
from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.latest_links import HeldByLatestLink
from gateway.db.writer import Operation, Writer
from gateway.namespace import (
    adopt,
    content,
    identity,
    latest_links,
    lookup,
    names,
    reserved,
    volume,
)
from gateway.namespace.content import CloseAnswer
from gateway.namespace.data_files import DataFiles
from gateway.namespace.reserved import Installed

log = logging.getLogger("spillway.namespace")

NS = 1_000_000_000


class Namespace:
    """Opens and recovers the namespace.

    Raises SchemaError when the database is missing, older or newer; IdentityError when the data
    files are not those of the database."""

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url)
        schema.require_current(self._database)
        self.files = DataFiles(settings.files_dir)
        self._writer = Writer(self._database)
        self._mark = identity.Mark(self._database, self._writer, self.files)
        try:
            # This check comes before any change: recovery would change the files of another disk.
            self.boot = self._mark.begin(volume.boot)
            self._writer.bind(self.boot.boot, self._mark.note_loss)
            if self._mark.is_behind:
                self._compare_files()
            reclaim_ns = (settings.nfs.lease_seconds + settings.nfs.grace_seconds) * NS
            self.recovered = volume.recover(self._writer, self.files, reclaim_ns)
            self._writer.run(reserved.ensure, self.boot.generation)
            with self._database.reading() as session:
                latest_links.load(session, self._writer.named)
            self._install = reserved.Install(self._writer, self.files, self.boot.generation)
            self.files.clear_incoming()
        except BaseException:
            self._release()
            raise
        self.commits = self._writer.counts
        """The counts of the committed transactions."""
        self.settle_ns = int(settings.drain.settle_seconds * NS)
        """The time for which the drain leaves a sealed file alone."""
        self.acknowledge = Acknowledge(
            settings.acknowledge.rule, settings.drain.incomplete_patterns
        )

    def _compare_files(self) -> None:
        """Compare the data files with a database that may lack the last changes."""
        log.warning(
            "the namespace database was failed over and may lack the last changes: the data files "
            "are compared with it before clients are served"
        )
        adoption = adopt.compare_files(self._database, self.files)
        self._writer.forget_numbers()
        self._mark.compared()
        log.warning(
            "%d files were compared with the namespace database: %d have newer bytes and are "
            "drained again, %d are fetched from the bucket, %d are damaged; %d data files were "
            "moved to %s",
            *(adoption.files, adoption.taken, adoption.absent, adoption.damaged, adoption.aside),
            self.files.aside,
        )

    def close(self) -> None:
        """Stop: move the mark, so that no older copy of the database passes for this one, and close
        the database. Changes that come later are TryAgain."""
        self._mark.stop()
        self._release()

    def _release(self) -> None:
        self._writer.close()
        self._database.close()

    def lookup(self, parent: int, name: bytes, *, is_gateway: bool = False) -> Attr:
        with self._database.reader() as connection:
            session = self._session(connection)
            return lookup.lookup(session, parent, name, is_gateway=is_gateway)

    def lookup_parent(self, ino: int) -> Attr:
        with self._database.reader() as connection:
            return lookup.lookup_parent(self._session(connection), ino)

    def getattr(self, ino: int) -> Attr:
        with self._database.reader() as connection:
            return lookup.get(self._session(connection), ino)

    def readdir(self, parent: int, after_cookie: int, most: int) -> list[Dirent]:
        with self._database.reader() as connection:
            return lookup.readdir(self._session(connection), parent, after_cookie, most)

    def readlink(self, ino: int) -> bytes:
        with self._database.reader() as connection:
            return lookup.readlink(self._session(connection), ino)

    def verifier(self, ino: int) -> bytes | None:
        """Return the verifier of the exclusive create that made a file, or None."""
        with self._database.reader() as connection:
            row = self._session(connection).one(sql.VERIFIER, ino=ino)
            return None if row is None else row[0]

    def getxattr(self, cred: Cred, ino: int, name: bytes) -> bytes:
        with self._database.reader() as connection:
            return names.getxattr(self._session(connection), cred, ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        with self._database.reader() as connection:
            return names.listxattr(self._session(connection), ino)

    def run_together(self, operations: Sequence[Operation[Any]]) -> None:
        """Run changes in one transaction. Each operation has its outcome afterwards."""
        self._writer.run_together(operations)

    def change(self, operations: Sequence[Operation[Any]]) -> None:
        """Run changes as ``run_together`` does. Those that a link to a checkpoint stops are run
        again after the link is removed. While clients are served, fsal/native/change.c does that,
        because Ganesha must be told."""
        while operations:
            self.run_together(operations)
            links = {
                operation.error.link
                for operation in operations
                if isinstance(operation.error, HeldByLatestLink)
            }
            operations = [
                operation
                for operation in operations
                if isinstance(operation.error, HeldByLatestLink)
            ]
            for link in links:
                removal = Operation(names.remove, GATEWAY_CRED, *link)
                self.run_together([removal])
                with suppress(NotFound):
                    removal.outcome()

    def install(
        self, cred: Cred, parent: int, name: bytes, prepared: bytes, wanted: SetAttr
    ) -> Installed:
        """Give a name to a prepared file: see ``reserved.Install``. It is durable on return."""
        return self._install.run(cred, parent, name, prepared, wanted)

    def dirty_bytes(self) -> int:
        """Return the allocated bytes of sealed files that the bucket does not have."""
        with self._database.reader() as connection:
            row = self._session(connection).one(sql.DIRTY_BYTES)
            return 0 if row is None else int(row[0])

    def acknowledged(self, ino: int) -> CloseAnswer:
        """Say whether a CLOSE of a file must wait for the bucket."""
        with self._database.reader() as connection:
            return content.answer(self._session(connection), self.acknowledge, ino)

    def keep_mark(self) -> None:
        """Move the mark of database and data files, at most once a minute, and tidy the journal."""
        self._mark.keep(journal.tidy)

    def top_of(self, ino: int) -> tuple[int, bytes]:
        """Return the directory directly below the root that an inode is in (b"": the root)."""
        with self._database.reader() as connection:
            return lookup.top_of(self._session(connection), ino)

    def path_of(self, ino: int) -> bytes:
        """Return the path of an inode below the export, by the first name of it and of each
        directory above it."""
        with self._database.reader() as connection:
            return lookup.path_of(self._session(connection), ino)

    def damages(self, after: int, most: int) -> list[int]:
        """Return the inode numbers of up to ``most`` damaged files above ``after``, in order."""
        with self._database.reader() as connection:
            rows = self._session(connection).all(sql.DAMAGES, after=after, most=most)
            return [row[0] for row in rows]

    def _session(self, connection: object) -> Session:
        return Session(connection, self._database.dialect)
