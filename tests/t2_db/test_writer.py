"""Group commit answers after the commit, undoes only what failed, and never repeats a number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.common.errors import NotFound
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.writer import Operation, Tx, Writer
from tests.support.namespace import Namespace


@pytest.fixture
def writer(settings: Settings) -> Iterator[Writer]:
    database = Database(settings.database_url)
    made = Writer(database)
    yield made
    made.close()


def test_an_error_undoes_its_own_operation_only(writer: Writer, settings: Settings) -> None:
    def good(tx: Tx) -> None:
        tx.run(sql.REKEY_INSERT, ino=tx.new_ino(), renamed_ns=1)

    def bad(tx: Tx) -> None:
        tx.run(sql.REKEY_INSERT, ino=999_999, renamed_ns=1)
        raise NotFound

    before = writer.counts.commits
    operations = [Operation(function) for function in (good, bad, good)]
    writer.run_together(operations)
    assert writer.counts.commits == before + 1
    assert [type(operation.error) for operation in operations] == [type(None), NotFound, type(None)]
    database = Database(settings.database_url)
    with database.reader() as connection:
        found = {row[0] for row in connection.execute("SELECT ino FROM rekey")}
    database.close()
    assert len(found) == 2
    assert 999_999 not in found


def test_an_answer_is_visible_to_others_at_once(writer: Writer, settings: Settings) -> None:
    database = Database(settings.database_url)
    with database.reader() as connection:
        for count in range(1, 20):
            writer.run(lambda tx: tx.run(sql.REKEY_INSERT, ino=tx.new_ino(), renamed_ns=1))
            assert connection.execute("SELECT count(*) FROM rekey").fetchone() == (count,)
    database.close()


def test_numbers_survive_a_failed_transaction(writer: Writer) -> None:
    seen: set[int] = set()

    def take(tx: Tx) -> int:
        return tx.new_ino()

    def fail(tx: Tx) -> None:
        tx.new_ino()
        raise NotFound

    for _ in range(50):
        seen.add(writer.run(take))
        with pytest.raises(NotFound):
            writer.run(fail)
    assert len(seen) == 50


CRASHING = """
import sys
from pathlib import Path
from tests.support.namespace import Namespace
from gateway.common.types import ROOT_CRED, SetAttr
from tests.support.volumes import make_settings
namespace = Namespace(make_settings(Path(sys.argv[1]), {"namespace": {"url": sys.argv[3]}}))
for count in range(100_000):
    attr = namespace.create(ROOT_CRED, 2, b"%d-%s" % (count, sys.argv[2].encode()), SetAttr())
    print(count, attr.ino, flush=True)
"""


def test_what_was_answered_survives_kill_9(settings: Settings) -> None:
    """A process that creates files is killed after some answers: all answered names are there."""
    inos: list[int] = []
    for run in ("a", "b"):
        with subprocess.Popen(
            [sys.executable, "-c", CRASHING, str(settings.data_dir), run, settings.database_url],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        ) as process:
            assert process.stdout is not None
            answered = [process.stdout.readline().split() for _ in range(200)]
            os.kill(process.pid, signal.SIGKILL)
        reopened = Namespace(settings)
        for count, ino in answered:
            assert reopened.lookup(2, f"{count}-{run}".encode()).ino == int(ino)
        reopened.close()
        inos += [int(ino) for _, ino in answered]
    # The second run does not use numbers of the first run again.
    assert len(set(inos)) == len(inos)


def test_a_removed_inode_number_is_not_used_again(settings: Settings) -> None:
    seen = set()
    for _ in range(3):
        namespace = Namespace(settings)
        attr = namespace.create(ROOT_CRED, 2, b"f", SetAttr())
        seen.add((attr.ino, attr.generation))
        namespace.remove(ROOT_CRED, 2, b"f")
        namespace.close()
    assert len({ino for ino, _ in seen}) == 3
    assert len({generation for _, generation in seen}) == 3
