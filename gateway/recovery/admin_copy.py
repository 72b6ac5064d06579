"""Copy of ``admin.db``: the tokens, and what is known of them, as a small database of SQLite.

It has all tables, and rows of those that a person would miss: the tokens, whose secrets are not in
them, and the newest rows of the audit log. Another table's rows are left out: a test holds why.

Nothing here depends on the admin API. The rows are read in one transaction, for which no writer
waits, and each is read: a database that is damaged there gives an error and no copy.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.common import files
from gateway.common.errors import SpillwayError

COPIED = ("alembic_version", "token", "audit")
AUDIT_ROWS = 2000
AUDIT_BYTES = 1 << 20
"""The newest rows of the audit log that are copied, and their size. All of a year may be gigabytes,
in each copy again."""
BUSY_SECONDS = 5.0
SUFFIX = ".restoring"
_USED = "used_ns"
"""The column of a token that changes whenever it is used."""

Row = tuple[Any, ...]


class AdminUnreadable(SpillwayError):
    """The database cannot be copied now. The message says why."""


@dataclass(frozen=True)
class AdminCopy:
    """A copy, and what of it is compared with the next one."""

    body: bytes
    tokens: list[Row]
    """The rows of the tokens, without the times of their use."""
    audited: int
    """The number of the newest row of the audit log."""


def read(path: Path) -> AdminCopy | None:
    """Copy the database of a gateway.

    Args:
        path: of the database.

    Returns:
        The copy, or None if there is no database, or one that is just being made.

    Raises:
        AdminUnreadable: it is damaged, or locked for too long.
    """
    try:
        if not path.exists() or path.stat().st_size == 0:
            return None
        # Without a journal beside it, SQLite must be able to make one.
        where = f"file:{quote(str(path))}?mode=rw"
        with closing(sqlite3.connect(where, uri=True, timeout=BUSY_SECONDS)) as source:
            return _copied(source)
    except (OSError, sqlite3.Error) as exc:
        raise AdminUnreadable(f"{path} cannot be copied: {exc}") from None


def opened(body: bytes) -> AdminCopy:
    """Return the copy that a document has.

    Raises:
        AdminUnreadable: it is damaged.
    """
    try:
        with closing(sqlite3.connect(":memory:")) as kept:
            kept.deserialize(body)
            return AdminCopy(body, _tokens(kept), _audited(kept))
    except sqlite3.Error as exc:
        raise AdminUnreadable(f"the copy of admin.db is damaged: {exc}") from None


def put_in_place(body: bytes, path: Path) -> bool:
    """Make the database of a gateway from a copy, if it has none.

    Args:
        body: the copy.
        path: of the database.

    Returns:
        Whether it is the copy now. False: there is a database, or what is left of one.

    Raises:
        AdminUnreadable: the copy is damaged.
        OSError: the disk does not take it.
    """
    opened(body)
    # SQLite would apply a journal that is left of another database to this one.
    if any(Path(f"{path}{end}").exists() for end in ("", "-wal", "-shm", "-journal")):
        return False
    made = Path(f"{path}{SUFFIX}")
    made.unlink(missing_ok=True)
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(fd)
    try:
        # A rename would replace a database that was made meanwhile.
        os.link(made, path)
    except FileExistsError:
        return False
    finally:
        made.unlink()
    files.sync_directory(path.parent)
    return True


def _copied(source: sqlite3.Connection) -> AdminCopy:
    source.execute("BEGIN")
    with closing(sqlite3.connect(":memory:")) as target:
        for (text,) in source.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*' "
            "ORDER BY rowid"
        ):
            target.execute(text)
        for table in COPIED:
            for row in _rows(source, table):
                marks = ", ".join("?" * len(row))
                target.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        target.commit()
        return AdminCopy(target.serialize(), _tokens(target), _audited(target))


def _rows(source: sqlite3.Connection, table: str) -> Iterator[Row]:
    if table != "audit":
        yield from source.execute(f"SELECT * FROM {table}")
        return
    size = 0
    newest = source.execute(f"SELECT * FROM {table} ORDER BY id DESC LIMIT {AUDIT_ROWS}")
    for row in newest:
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if size > AUDIT_BYTES:
            return
        yield row


def _tokens(database: sqlite3.Connection) -> list[Row]:
    known = [column[1] for column in database.execute("PRAGMA table_info(token)")]
    columns = ", ".join(column for column in known if column != _USED)
    return database.execute(f"SELECT {columns} FROM token ORDER BY id").fetchall()


def _audited(database: sqlite3.Connection) -> int:
    [[newest]] = database.execute("SELECT coalesce(max(id), 0) FROM audit")
    return int(newest)
