"""Processes that write take turns, so a process that never pauses does not lock out another."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gateway.common.errors import TryAgain
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.sqlite import WriteTurns
from gateway.db.writer import Tx, Writer
from tests.support.waiting import until

CHANGES = 40
OTHERS_FOR_EACH = 4
"""The limit for each change: one transaction is under way and one is next, and twice that for a
busy machine."""

GREEDY = """
import itertools, sys, threading, time
from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.engine import Database
database = Database(sys.argv[1])
numbers = itertools.count(1_000_000)
turn = threading.Lock()
def work():
    while True:
        with turn, database.reader() as connection, database.transaction(connection):
            session = Session(connection, database.dialect)
            session.run(sql.REKEY_INSERT, ino=next(numbers), renamed_ns=1)
            time.sleep(0.005)
for _ in range(4):
    threading.Thread(target=work).start()
print("begun", flush=True)
"""


def test_a_writer_waits_for_few_transactions_of_another_process(settings: Settings) -> None:
    database = Database(settings.database_url)
    writer = Writer(database)

    def note(tx: Tx) -> None:
        tx.run(sql.REKEY_INSERT, ino=tx.new_ino(), renamed_ns=1)

    def commits_of_the_other() -> int:
        with database.reader() as connection:
            statement = "SELECT count(*) FROM rekey WHERE ino >= 1000000"
            return int(connection.execute(statement).fetchone()[0])

    with subprocess.Popen(
        [sys.executable, "-c", GREEDY, settings.database_url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            until(lambda: commits_of_the_other() > 4, "the other process")
            before = commits_of_the_other()
            for _ in range(CHANGES):
                writer.run(note)
                # The client does one thing after the other.
                commits_of_the_other()
            others = commits_of_the_other() - before
        finally:
            process.kill()
    writer.close()
    database.close()
    assert 0 < others <= CHANGES * OTHERS_FOR_EACH


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    turns = WriteTurns(tmp_path / "a.db")
    for _ in range(2):
        turn = turns.take(1.0)
        with pytest.raises(TryAgain, match="too long"):
            turns.take(0.01)
        turns.end(turn)
    turns.close()


def test_a_turn_that_did_not_come_holds_nobody_up(tmp_path: Path) -> None:
    turns, others = WriteTurns(tmp_path / "a.db"), WriteTurns(tmp_path / "a.db")
    turn = others.take(None)
    with pytest.raises(TryAgain):
        turns.take(0.01)
    others.end(turn)
    taken = threading.Thread(target=lambda: others.end(others.take(None)), daemon=True)
    taken.start()
    taken.join(10.0)
    assert not taken.is_alive()
    others.close()
    turns.close()


@pytest.mark.parametrize("name", ["next", "turn"])
def test_files_of_locks_that_were_removed_are_opened_again(tmp_path: Path, name: str) -> None:
    turns = WriteTurns(tmp_path / "a.db")
    turns.end(turns.take(1.0))
    (tmp_path / f"a.db-{name}").unlink()
    turn = turns.take(1.0)
    assert [os.fstat(fd).st_nlink for fd in turn] == [1, 1]
    turns.end(turn)
    turns.close()


def test_turns_open_no_files_but_their_first(tmp_path: Path) -> None:
    turns = WriteTurns(tmp_path / "a.db")
    first = turns.take(None)
    turns.end(first)
    assert turns.take(1.0) == first
    turns.end(first)
    turns.close()
    with pytest.raises(FileNotFoundError):
        WriteTurns(tmp_path / "none" / "a.db").take(None)


def test_turns_that_are_given_up_keep_no_files(tmp_path: Path) -> None:
    """Not every command closes its database."""

    def used() -> list[int]:
        turns = WriteTurns(tmp_path / "a.db")
        turn = turns.take(None)
        turns.end(turn)
        return list(turn)

    for fd in used():
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
