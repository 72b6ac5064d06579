"""The namespace of one gateway: every verb a client can send, each one call.

Reads go to pooled connections; changes go to the writer and return when they are durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gateway import failpoints
from gateway.data.layout import DataFiles
from gateway.db import schema
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.writer import Operation, Writer
from gateway.namespace import identity, lookup, volume, xattr
from gateway.namespace.changes import Changes
from gateway.settings import Settings
from gateway.types import Attr, Cred, Dirent, Removed, Sealed, SetAttr

NS = 1_000_000_000

T = TypeVar("T")


class Namespace:
    """Opens and recovers the namespace.

    Parameters: settings. Raises SchemaError when the database is missing, older or newer;
    IdentityError when the data files are not those of the database.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url)
        schema.require_current(self._database)
        self.files = DataFiles(settings.files_dir)
        self._writer = Writer(self._database)
        self._mark = identity.Mark(self._database, self._writer, self.files)
        try:
            # Before anything is changed: recovery would take the files of another disk for its own.
            self.boot = self._mark.begin(volume.boot)
            self._writer.bind(self.boot.boot)
            reclaim_ns = (settings.nfs.lease_seconds + settings.nfs.grace_seconds) * NS
            self.recovered = volume.recover(self._writer, self.files, reclaim_ns)
        except BaseException:
            self.close()
            raise
        self.changes = Changes(self.boot.generation, int(settings.drain.settle_seconds * NS))

    def close(self) -> None:
        """Commit what is queued and close the database."""
        self._writer.close()
        self._database.close()

    def lookup(self, parent: int, name: bytes) -> Attr:
        with self._database.reader() as connection:
            return lookup.lookup(self._session(connection), parent, name)

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
        """Of the exclusive create that made a file; None when it was made otherwise."""
        with self._database.reader() as connection:
            row = self._session(connection).one(sql.VERIFIER, ino=ino)
            return None if row is None else row[0]

    def create(
        self,
        cred: Cred,
        parent: int,
        name: bytes,
        wanted: SetAttr,
        verifier: bytes | None = None,
        for_writing: bool = True,
    ) -> Attr:
        return self._run(
            self.changes.create(cred, parent, name, wanted, verifier, for_writing=for_writing)
        )

    def mkdir(self, cred: Cred, parent: int, name: bytes, wanted: SetAttr) -> Attr:
        return self._run(self.changes.mkdir(cred, parent, name, wanted))

    def symlink(self, cred: Cred, parent: int, name: bytes, target: bytes, wanted: SetAttr) -> Attr:
        return self._run(self.changes.symlink(cred, parent, name, target, wanted))

    def mknod(
        self, cred: Cred, parent: int, name: bytes, kind: int, rdev: int, wanted: SetAttr
    ) -> Attr:
        return self._run(self.changes.mknod(cred, parent, name, kind, rdev, wanted))

    def link(self, cred: Cred, ino: int, parent: int, name: bytes) -> Attr:
        return self._run(self.changes.link(cred, ino, parent, name))

    def rename(
        self, cred: Cred, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes
    ) -> tuple[Attr, Removed | None]:
        return self._run(self.changes.rename(cred, old_parent, old_name, new_parent, new_name))

    def remove(self, cred: Cred, parent: int, name: bytes) -> Removed:
        return self._run(self.changes.remove(cred, parent, name))

    def setattr(self, ino: int, wanted: SetAttr) -> Attr:
        return self._run(self.changes.setattr(ino, wanted))

    def getxattr(self, cred: Cred, ino: int, name: bytes) -> bytes:
        with self._database.reader() as connection:
            return xattr.get_value(self._session(connection), cred, ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        with self._database.reader() as connection:
            return xattr.list_names(self._session(connection), ino)

    def setxattr(self, cred: Cred, ino: int, name: bytes, value: bytes, how: int = 0) -> Attr:
        return self._run(self.changes.setxattr(cred, ino, name, value, how))

    def removexattr(self, cred: Cred, ino: int, name: bytes) -> Attr:
        return self._run(self.changes.removexattr(cred, ino, name))

    def open_write(self, ino: int) -> Attr:
        attr = self._run(self.changes.open_write(ino))
        self.opened(attr)
        return attr

    def opened(self, attr: Attr) -> None:
        """After open_write: from here on the data file's mtime counts, also after a crash."""
        self.files.set_mtime(attr.ino, attr.epoch, attr.mtime_ns)

    def seal(self, ino: int, data: Sealed) -> Attr:
        return self._run(self.changes.seal(ino, data))

    def run_together(self, operations: Sequence[Operation[Any]]) -> None:
        """Run changes in one transaction; each has its own outcome then."""
        self._writer.run_together(operations)

    def _run(self, operation: Operation[T]) -> T:
        return self._writer.run(operation.name, operation.run)

    def dirty_bytes(self) -> int:
        """What the bucket does not have, as far as files are sealed; allocated bytes."""
        with self._database.reader() as connection:
            row = self._session(connection).one(sql.DIRTY_BYTES)
            return 0 if row is None else int(row[0])

    def keep_mark(self) -> None:
        """Move the mark of database and data files, at most once a minute."""
        self._mark.keep()

    def top_of(self, ino: int) -> tuple[int, bytes]:
        """The directory directly below the root that an inode is in (the root itself: b"")."""
        with self._database.reader() as connection:
            return lookup.top_of(self._session(connection), ino)

    def damaged(self, ino: int, reason: str) -> None:
        self._run(self.changes.damaged(ino, reason))

    def whole(self, ino: int) -> None:
        self._run(self.changes.whole(ino))

    def damages(self, after: int, most: int) -> list[int]:
        """The next damaged files, by inode number."""
        with self._database.reader() as connection:
            rows = self._session(connection).all(sql.DAMAGES, after=after, most=most)
            return [row[0] for row in rows]

    def reclaim(self, ino: int, epoch: int) -> None:
        """End an orphan that nobody has open any more. What has a name is spared."""
        if self._run(self.changes.reclaim(ino)):
            failpoints.hit(failpoints.RECLAIM_BEFORE_UNLINK)
            self.files.remove(ino, epoch)

    def _session(self, connection: object) -> sql.Session:
        return sql.Session(connection, self._database.dialect)
