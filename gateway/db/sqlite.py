"""SQLite backend, the default: the database is one file and has one writer at a time.

With WAL readers never wait for the writer. The setting synchronous=FULL is needed because NORMAL
loses acknowledged commits in a power cut. The driver begins no transactions of its own
(isolation_level None), because they would begin too late for savepoints.

``WriteTurns`` decides which process writes next; the NFS server goes first. SQLite makes a writer
that finds another writer at work sleep and look again, up to 100 ms later. A process that commits
again and again takes the write lock in between, so the sleeper may wait for seconds. SQLite's own
lock still keeps writers apart.

Two files are locked with flock, which ends with its process. ``turn`` is held for a write
transaction. ``next`` is a turnstile: the writers pass it on their way to ``turn``. The NFS server
takes a ``turn`` that is free. Otherwise it keeps the turnstile until it has its turn, so it waits
for no more than the transaction that is under way, and the others cannot overtake it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sqlite3
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite_dialect
from sqlalchemy.engine import URL, Dialect

from gateway.common.errors import NamespaceError, NoSpace, TryAgain
from gateway.common.files import try_lock
from gateway.db.url import Lineage

POLL_SECONDS = 50e-6
POLL_FACTOR = 0.1
"""A poll sleeps for this share of the time waited so far, so that a long wait costs little."""


class WriteTurn(NamedTuple):
    """The descriptors of one turn. No two turns share them at the same time, so that threads of one
    process exclude each other too."""

    gate: int
    mine: int

    def close(self) -> None:
        for fd in self:
            os.close(fd)


class WriteTurns:
    """The turns of one process to write to one database.

    Args:
        database: the path of its file, beside which the files of the locks are made.
    """

    def __init__(self, database: Path) -> None:
        self._gate, self._mine = f"{database}-next", f"{database}-turn"
        # Opening the files for each turn would take a tenth of the processor time of a transaction
        # with one change.
        self._kept: deque[WriteTurn] = deque()
        weakref.finalize(self, _close, self._kept)

    def take(self, first_seconds: float | None) -> WriteTurn:
        """Wait for the turn to write. The caller gives it back with ``end``.

        None means to wait behind the server for as long as it takes. Raises TryAgain, OSError.

        Args:
            first_seconds: the time-out of the NFS server, which goes first.
        """
        turn = self._opened()
        try:
            if first_seconds is None:
                fcntl.flock(turn.gate, fcntl.LOCK_EX)
                fcntl.flock(turn.gate, fcntl.LOCK_UN)
                fcntl.flock(turn.mine, fcntl.LOCK_EX)
            elif not try_lock(turn.mine):
                until = time.monotonic() + first_seconds
                _poll(turn.gate, until)
                _poll(turn.mine, until)
                fcntl.flock(turn.gate, fcntl.LOCK_UN)
        except BaseException:
            turn.close()
            raise
        return turn

    def end(self, turn: WriteTurn) -> None:
        """End a turn of ``take``."""
        # A close alone would leave the lock to a child that was forked meanwhile.
        fcntl.flock(turn.mine, fcntl.LOCK_UN)
        self._kept.append(turn)

    def close(self) -> None:
        """Close the files. A later turn opens them again."""
        _close(self._kept)

    def _opened(self) -> WriteTurn:
        """Return descriptors that no turn has. Raises OSError."""
        try:
            turn = self._kept.pop()
        except IndexError:
            return self._open()
        # Other processes lock the files that have the names now.
        if all(os.fstat(fd).st_nlink for fd in turn):
            return turn
        turn.close()
        return self._open()

    def _open(self) -> WriteTurn:
        gate = _open(self._gate)
        try:
            return WriteTurn(gate, _open(self._mine))
        except BaseException:
            os.close(gate)
            raise


def _close(kept: deque[WriteTurn]) -> None:
    while kept:
        kept.pop().close()


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _poll(fd: int, until: float) -> None:
    """Lock a file. It polls because flock has no time-out. No other process overtakes the poll."""
    started = time.monotonic()
    while not try_lock(fd):
        now = time.monotonic()
        if now > until:
            raise TryAgain("another process has been writing to the namespace for too long")
        time.sleep(max(POLL_SECONDS, POLL_FACTOR * (now - started)))


BUSY_TIMEOUT_SECONDS = 30.0
PAGE_BYTES = 1024
"""Page size of new databases. A commit writes every page in which it changed a byte. With pages of
4 KiB, names are made and moved more slowly, and found no faster."""
READ_CACHE_KIB = 4096
WRITE_CACHE_KIB = 65_536
_AT_FDCWD, _STATX_BTIME, _STATX_BYTES, _BTIME_AT = -100, 0x800, 256, 80
"""Constants of statx(2), and where its answer has the time of birth (linux/stat.h)."""


class Sqlite:
    """The backend of a file.

    Args:
        parsed: the URL.
    """

    broken = (sqlite3.OperationalError,)
    errors = (sqlite3.Error,)
    readers_max = 256

    def __init__(self, parsed: URL) -> None:
        assert parsed.database is not None
        self.path = Path(parsed.database)
        self.url = f"sqlite:///{self.path}"
        self._turns = WriteTurns(self.path)
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
