"""The namespace of one gateway: every verb a client can send, each one call.

Reads go to pooled connections; changes go to the writer and return when they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway import failpoints
from gateway.config import Settings
from gateway.data.layout import DataFiles
from gateway.db import schema
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.writer import Tx, Writer
from gateway.namespace import content, create, lookup, remove, rename, setattr, volume, xattr
from gateway.types import Attr, Cred, Dirent, Removed, Sealed, SetAttr

NS = 1_000_000_000

Changed = list[Attr] | None
"""What a verb adds the directories to whose entries it changed, as it left them."""


class Namespace:
    """Opens and recovers the namespace.

    Parameters: settings. Raises SchemaError when the database is missing, older or newer.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url)
        schema.require_current(self._database)
        self.files = DataFiles(settings.files_dir)
        self._writer = Writer(self._database)
        self._settle_ns = int(settings.drain.settle_seconds * NS)
        self.boot = volume.boot(self._writer)
        reclaim_ns = (settings.nfs.lease_seconds + settings.nfs.grace_seconds) * NS
        self.recovered = volume.recover(self._writer, self.files, reclaim_ns)

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
        *,
        directories: Changed = None,
    ) -> Attr:
        generation = self.boot.generation
        return self._writer.run(
            "create",
            lambda tx: create.create_file(
                tx,
                cred,
                parent,
                name,
                wanted,
                generation=generation,
                verifier=verifier,
                for_writing=for_writing,
            ),
            directories,
        )

    def mkdir(
        self,
        cred: Cred,
        parent: int,
        name: bytes,
        wanted: SetAttr,
        *,
        directories: Changed = None,
    ) -> Attr:
        generation = self.boot.generation
        return self._writer.run(
            "mkdir",
            lambda tx: create.mkdir(tx, cred, parent, name, wanted, generation=generation),
            directories,
        )

    def symlink(
        self,
        cred: Cred,
        parent: int,
        name: bytes,
        target: bytes,
        wanted: SetAttr,
        *,
        directories: Changed = None,
    ) -> Attr:
        generation = self.boot.generation
        return self._writer.run(
            "symlink",
            lambda tx: create.symlink(
                tx, cred, parent, name, target, wanted, generation=generation
            ),
            directories,
        )

    def mknod(
        self,
        cred: Cred,
        parent: int,
        name: bytes,
        kind: int,
        rdev: int,
        wanted: SetAttr,
        *,
        directories: Changed = None,
    ) -> Attr:
        generation = self.boot.generation
        return self._writer.run(
            "mknod",
            lambda tx: create.mknod(
                tx, cred, parent, name, kind, rdev, wanted, generation=generation
            ),
            directories,
        )

    def link(
        self, cred: Cred, ino: int, parent: int, name: bytes, *, directories: Changed = None
    ) -> Attr:
        return self._writer.run(
            "link", lambda tx: create.link(tx, cred, ino, parent, name), directories
        )

    def rename(
        self,
        cred: Cred,
        old_parent: int,
        old_name: bytes,
        new_parent: int,
        new_name: bytes,
        *,
        directories: Changed = None,
    ) -> tuple[Attr, Removed | None]:
        return self._writer.run(
            "rename",
            lambda tx: rename.rename(tx, cred, old_parent, old_name, new_parent, new_name),
            directories,
        )

    def remove(
        self, cred: Cred, parent: int, name: bytes, *, directories: Changed = None
    ) -> Removed:
        return self._writer.run(
            "remove", lambda tx: remove.remove(tx, cred, parent, name), directories
        )

    def setattr(self, ino: int, wanted: SetAttr) -> Attr:
        return self._writer.run("setattr", lambda tx: setattr.setattr_(tx, ino, wanted))

    def getxattr(self, cred: Cred, ino: int, name: bytes) -> bytes:
        with self._database.reader() as connection:
            return xattr.get_value(self._session(connection), cred, ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        with self._database.reader() as connection:
            return xattr.list_names(self._session(connection), ino)

    def setxattr(self, cred: Cred, ino: int, name: bytes, value: bytes, how: int = 0) -> Attr:
        return self._writer.run(
            "setxattr", lambda tx: xattr.set_value(tx, cred, ino, name, value, how)
        )

    def removexattr(self, cred: Cred, ino: int, name: bytes) -> Attr:
        return self._writer.run("removexattr", lambda tx: xattr.remove_value(tx, cred, ino, name))

    def open_write(self, ino: int) -> Attr:
        attr = self._writer.run("open_write", lambda tx: content.open_write(tx, ino))
        # From here on the data file's mtime counts, also after a crash without a write.
        self.files.set_mtime(ino, attr.epoch, attr.mtime_ns)
        return attr

    def seal(self, ino: int, data: Sealed) -> Attr:
        return self._writer.run("seal", self._sealing(ino, data))

    def seal_all(self, wanted: Sequence[tuple[int, Sealed]]) -> list[Attr | BaseException]:
        """Seal many files; the new attributes of each, or why it failed."""
        return self._writer.run_all("seal", [self._sealing(ino, data) for ino, data in wanted])

    def _sealing(self, ino: int, data: Sealed) -> Callable[[Tx], Attr]:
        return lambda tx: content.seal(tx, ino, data, self._settle_ns)

    def dirty_bytes(self) -> int:
        """What the bucket does not have, as far as files are sealed; allocated bytes."""
        with self._database.reader() as connection:
            row = self._session(connection).one(sql.DIRTY_BYTES)
            return 0 if row is None else int(row[0])

    def top_of(self, ino: int) -> tuple[int, bytes]:
        """The directory directly below the root that an inode is in (the root itself: b"")."""
        with self._database.reader() as connection:
            return lookup.top_of(self._session(connection), ino)

    def reclaim(self, ino: int, epoch: int) -> None:
        """End an orphan that nobody has open any more; returns at once."""
        self._writer.post(
            "reclaim", lambda tx: remove.reclaim(tx, ino), lambda: self._unlink(ino, epoch)
        )

    def _unlink(self, ino: int, epoch: int) -> None:
        failpoints.hit(failpoints.RECLAIM_BEFORE_UNLINK)
        self.files.remove(ino, epoch)

    def _session(self, connection: object) -> sql.Session:
        return sql.Session(connection, self._database.dialect)
