"""If the database ends or refuses a transaction, the caller gets the fitting error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.common.errors import NoSpace, TryAgain
from gateway.config.settings import Settings
from gateway.db import sqlite
from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.writer import Tx, Writer
from tests.support.postgres import PostgresServer
from tests.support.tools import run_as_root
from tests.support.volumes import make_settings, make_volume, query
from tests.support.waiting import until

WAIT_SECONDS = 0.3


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path / "data")
    make_volume(made)
    return made


@contextmanager
def another_process(source: str, settings: Settings) -> Iterator[subprocess.Popen[str]]:
    """Run a process until the end of the block. It has printed one line at the beginning."""
    with subprocess.Popen(
        [sys.executable, "-c", source, settings.database_url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def note(tx: Tx) -> None:
    tx.run(sql.REKEY_INSERT, ino=tx.new_ino(), renamed_ns=1)


def change(database: Database, rows: int) -> None:
    """Make changes as the drain does."""
    with database.reader() as connection, database.transaction(connection):
        session = Session(connection, database.dialect)
        for ino in range(rows):
            session.run(sql.REKEY_INSERT, ino=ino, renamed_ns=1)


STRANGER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1].removeprefix("sqlite:///"), isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("begun", flush=True)
time.sleep(600)
"""
WRITER = """
import sys, time
from gateway.db.engine import Database
database = Database(sys.argv[1])
with database.transaction(database.connect()):
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("holder", [STRANGER, WRITER])
def test_a_change_while_another_process_writes_is_to_be_tried_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", WAIT_SECONDS)
    database = Database(settings.database_url)
    writer = Writer(database)
    with another_process(holder, settings) as process:
        for _ in range(2):
            with pytest.raises(TryAgain):
                writer.run(note)
            if holder == STRANGER:  # behind our own writers, a change waits without a limit
                with pytest.raises(TryAgain):
                    change(database, 1)
        process.kill()
        process.wait()
        writer.run(note)
        with database.reader() as connection, database.transaction(connection):
            assert connection.execute("SELECT count(*) FROM rekey").fetchone() == (1,)
    writer.close()
    database.close()


def test_a_transaction_that_finds_the_database_full_says_so_and_leaves_nothing(
    settings: Settings,
) -> None:
    database = Database(settings.database_url)
    with database.reader() as connection:
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    for _ in range(2):
        with pytest.raises(NoSpace):
            change(database, 10_000)
    with database.reader() as connection:
        assert not connection.in_transaction
        assert connection.execute("SELECT count(*) FROM rekey").fetchone() == (0,)
    database.close()


def test_changes_on_a_full_disk_are_told_so_and_go_on_when_there_is_room(tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    ours = f"size=2m,uid={os.geteuid()},gid={os.getegid()}"
    run_as_root("mount", "-t", "tmpfs", "-o", ours, "none", directory)
    try:
        settings = make_settings(
            tmp_path / "data", {"namespace": {"url": f"sqlite:///{directory}/n"}}
        )
        make_volume(settings)
        ballast = directory / "ballast"
        writer = Writer(Database(settings.database_url))
        writer.run(note)
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(1024))
        done = 1
        with pytest.raises(NoSpace):
            for _ in range(2000):
                writer.run(note)
                done += 1
        with pytest.raises(NoSpace):
            writer.run(note)
        ballast.unlink()
        writer.run(note)
        writer.close()
        assert query(settings, "SELECT count(*) FROM rekey") == [(done + 1,)]
    finally:
        run_as_root("umount", "-l", directory)


def test_a_transaction_that_postgres_ended_is_to_be_tried_again(postgres: PostgresServer) -> None:
    """A virtual machine that stands still for a minute comes back to such a transaction."""
    database = Database(postgres.create_database())
    with pytest.raises(TryAgain, match="idle-in-transaction"), _writing(database) as connection:
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = '1ms'")
        until(partial(_has_ended, database, connection.info.backend_pid), "the end of the session")
        connection.execute("SELECT 1")
    with database.writing():
        pass
    database.close()


@contextmanager
def _writing(database: Database) -> Iterator[Any]:
    with database.reader() as connection, database.transaction(connection):
        yield connection


def _has_ended(database: Database, pid: int) -> bool:
    with database.reader() as connection:
        asked = connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,))
        return asked.fetchone() is None
