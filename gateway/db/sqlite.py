"""The SQLite backend, the default: the database is one file and has one writer at a time.

With WAL readers never wait for the writer. The setting synchronous=FULL is needed because NORMAL
loses acknowledged commits in a power cut. The driver begins no transactions of its own
(isolation_level None), because they would begin too late for savepoints.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite_dialect
from sqlalchemy.engine import URL, Dialect

from gateway.db.lineage import Lineage
from gateway.db.lock import Turns
from gateway.errors import NamespaceError, NoSpace, TryAgain

BUSY_TIMEOUT_SECONDS = 30.0
PAGE_BYTES = 1024
"""Page size of new databases. A commit writes every page in which it changed a byte. With pages of
4 KiB, names are made and moved more slowly, and found no faster."""
READ_CACHE_KIB = 4096
WRITE_CACHE_KIB = 65_536
_AT_FDCWD, _STATX_BTIME, _STATX_BYTES, _BTIME_AT = -100, 0x800, 256, 80
"""Constants of statx(2), and where its answer has the time of birth (linux/stat.h)."""


class Sqlite:
    """The backend of a file. Parameters: parsed, the URL."""

    broken = (sqlite3.OperationalError,)
    errors = (sqlite3.Error,)
    readers_max = 256

    def __init__(self, parsed: URL) -> None:
        assert parsed.database is not None
        self.path = Path(parsed.database)
        self.url = f"sqlite:///{self.path}"
        self._turns = Turns(self.path)
        # The driver takes longer to bind parameters by name.
        self.dialect: Dialect = sqlite_dialect(paramstyle="qmark")

    def connect(self, for_writing: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        cache_kib = WRITE_CACHE_KIB if for_writing else READ_CACHE_KIB
        for pragma in (
            f"page_size = {PAGE_BYTES}",
            f"busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            f"cache_size = -{cache_kib}",
            "temp_store = MEMORY",
            "journal_size_limit = 67108864",
        ):
            try:
                connection.execute(f"PRAGMA {pragma}")
            except BaseException:
                connection.close()
                raise
        return connection

    @contextmanager
    def turn(self, first: bool) -> Iterator[None]:
        try:
            turn = self._turns.take(BUSY_TIMEOUT_SECONDS if first else None)
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE):
                raise TryAgain("too many files are open") from None
            raise sqlite3.OperationalError(f"{exc.filename}: {exc.strerror}") from exc
        try:
            yield
        finally:
            self._turns.end(turn)

    def close(self) -> None:
        self._turns.close()

    def begin(self, connection: sqlite3.Connection) -> object:
        connection.execute("BEGIN IMMEDIATE")
        return None

    def answer(self, exc: Exception) -> NamespaceError | None:
        code = getattr(exc, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_FULL:
            return NoSpace("the disk of the namespace database is full")
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return TryAgain("the namespace database is busy")
        return None

    def usable(self, connection: sqlite3.Connection) -> bool:
        return True

    def missing(self) -> str | None:
        return None if self.path.exists() else f"no database at {self.path}: mount its disk"

    # A file belongs to one machine. The lock of the data directory keeps other servers away there,
    # and a COMMIT that did not succeed always reports its failure.

    def serve(self, connection: sqlite3.Connection) -> None:
        pass

    def bind(self, boot: int, on_loss: Callable[[], object]) -> None:
        pass

    def lineage(self, connection: sqlite3.Connection) -> Lineage:
        # A backup in the place of the file may have its inode number again, and is younger.
        return Lineage(f"{self.path.stat().st_ino}/{_born_ns(self.path)}", 0)

    def lock(self, connection: sqlite3.Connection) -> None:
        pass

    def holder(self, connection: sqlite3.Connection) -> None:
        return None

    def begin_serving(self, connection: sqlite3.Connection) -> object:
        return self.begin(connection)

    def wrote(self, token: object) -> None:
        pass

    def committed(self, connection: sqlite3.Connection, token: object) -> bool:
        return False


def _born_ns(path: Path) -> int:
    """Return when a file was made (ns since 1970), or 0 if its file system does not tell.

    The file is not opened: to close it again would drop the locks that SQLite has on it.
    """
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    ctypes.CDLL(None).statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer)
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BTIME_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
