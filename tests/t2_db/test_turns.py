"""Processes that write take turns, so a process that never pauses does not lock out another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.writer import Tx, Writer
from gateway.settings import Settings
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
