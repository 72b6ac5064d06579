"""Tests the journal's rows: they are in the order of the commits, and kept only for readers."""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gateway.config.settings import Settings
from gateway.db import journal
from gateway.db.compiled import Session, numbers_in
from gateway.db.engine import Database
from gateway.db.journal import CHANGED, STORED, Lost, Reader
from gateway.db.writer import Tx, Writer
from tests.support.volumes import query

ROWS = int(os.environ.get("SPILLWAY_JOURNAL_ROWS", "20000"))
"""The rows by which the reader that was away is behind."""
PAGE = 1000
MANY_ROWS = """
INSERT INTO journal (what, inos)
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
SELECT :what, '[' || n || ']' FROM numbers ORDER BY n
"""
"""Adds at once the rows that ``note`` adds one by one."""
MEMORY_BYTES = 2 << 20
BLOCKED_SECONDS = 0.5


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    opened = Database(settings.database_url)
    yield opened
    opened.close()


@contextmanager
def writing(database: Database) -> Iterator[Session]:
    with database.reader() as connection, database.transaction(connection):
        yield Session(connection, database.dialect)


def note(database: Database, *inos: int) -> None:
    """Add one row for each inode."""
    with writing(database) as session:
        for ino in inos:
            journal.note(session, {ino: CHANGED})


def begun(database: Database, name: str) -> Reader:
    reader = Reader(name)
    with writing(database) as session:
        reader.begin(session)
    return reader


def read(database: Database, reader: Reader, most: int = PAGE) -> list[int]:
    with database.reader() as connection:
        return [row.ino for row in reader.read(Session(connection, database.dialect), most)]


def save(database: Database, reader: Reader) -> None:
    with writing(database) as session:
        reader.save(session)


def kept(settings: Settings) -> list[int]:
    """Return the inodes of all rows."""
    rows = query(settings, "SELECT inos FROM journal ORDER BY seq")
    return [ino for (inos,) in rows for ino in numbers_in(inos)]


def test_without_a_reader_no_row_is_kept(database: Database, settings: Settings) -> None:
    note(database, 1, 2, 3)
    assert kept(settings) == []
    begun(database, "one")
    note(database, 4)
    assert kept(settings) == [4]


def test_a_reader_is_told_all_that_happened(database: Database) -> None:
    reader = begun(database, "one")
    with writing(database) as session:
        journal.note(session, {5: CHANGED, 6: CHANGED | STORED, 7: STORED})
    with database.reader() as connection:
        rows = reader.read(Session(connection, database.dialect), PAGE)
    assert sorted(rows) == [(5, CHANGED), (6, CHANGED | STORED), (7, STORED)]


def test_a_transaction_that_is_undone_leaves_no_row(database: Database, settings: Settings) -> None:
    reader = begun(database, "one")
    with pytest.raises(ZeroDivisionError), writing(database) as session:
        journal.note(session, {5: CHANGED})
        raise ZeroDivisionError
    note(database, 6)
    assert read(database, reader) == kept(settings) == [6]


@pytest.mark.parametrize("second", ["the NFS server", "another drain"])
def test_no_row_is_seen_before_an_earlier_one(
    database: Database, settings: Settings, second: str
) -> None:
    """Two connections write: the one with the lower number commits first."""
    reader = begun(database, "one")
    writer = Writer(database)
    others = Database(settings.database_url)

    def touch(tx: Tx) -> None:
        tx.touch(2)

    def work() -> None:
        if second == "the NFS server":
            writer.run(touch)
        else:
            note(others, 2)

    thread = threading.Thread(target=work)
    with writing(database) as session:
        journal.note(session, {1: CHANGED})
        thread.start()
        thread.join(BLOCKED_SECONDS)
        assert read(others, reader) == []
        assert thread.is_alive(), "it committed a later row before an earlier one was there"
    thread.join(30)
    assert read(database, reader) == [1, 2]
    writer.close()
    others.close()


def test_what_all_have_read_is_pruned(database: Database, settings: Settings) -> None:
    fast, slow = begun(database, "fast"), begun(database, "slow")
    for ino in range(1, 11):
        note(database, ino)
    assert read(database, fast) == list(range(1, 11))
    save(database, fast)
    assert kept(settings) == list(range(1, 11))
    assert read(database, slow, 4) == [1, 2, 3, 4]
    save(database, slow)
    # The row at which a reader is stays: it shows that this is the journal that was read.
    assert kept(settings) == list(range(4, 11))
    assert read(database, slow) == list(range(5, 11))
    save(database, slow)
    assert kept(settings) == [10]
    note(database, 11)
    assert read(database, fast) == read(database, slow) == [11]


def test_numbers_never_start_again(database: Database, settings: Settings) -> None:
    """This holds although the reader is gone, and all rows with it that may go."""
    reader = begun(database, "one")
    note(database, 1, 2, 3)
    read(database, reader)
    save(database, reader)
    query(settings, "DELETE FROM reader")
    with writing(database) as session:
        journal.tidy(session)
    begun(database, "two")
    note(database, 4)
    numbers = [seq for (seq,) in query(settings, "SELECT seq FROM journal ORDER BY seq")]
    assert len(numbers) == 2
    assert numbers[0] >= 3
    assert numbers[1] > numbers[0]


def test_a_transaction_prunes_a_bounded_number(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PRUNED_BY_SAVE", 10)
    monkeypatch.setattr(journal, "PRUNED_BY_TIDY", 20)
    reader = begun(database, "one")
    note(database, *range(100))
    assert read(database, reader) == list(range(100))
    save(database, reader)
    assert len(kept(settings)) == 90
    with writing(database) as session:
        journal.tidy(session)
    assert len(kept(settings)) == 70


def test_a_reader_that_stays_away_is_dropped(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "KEPT_MAX", 50)
    gone, reader = begun(database, "gone"), begun(database, "here")
    for _ in range(3):
        note(database, *range(20))
        read(database, reader)
        save(database, reader)
        with writing(database) as session:
            journal.tidy(session)
    # Its row stays for people, and keeps no rows of the journal.
    assert query(settings, "SELECT name, position FROM reader ORDER BY name")[0] == ("gone", -1)
    assert dropped(database) == ["gone"]
    assert len(kept(settings)) == 1
    with pytest.raises(Lost):
        read(database, gone)
    with pytest.raises(Lost):
        save(database, gone)
    with database.reader() as connection, pytest.raises(Lost):
        gone.resume(Session(connection, database.dialect))
    assert dropped(database) == ["gone"]
    note(database, 77)
    assert read(database, reader) == [77]
    # A journal without a reader is not kept.
    query(settings, "DELETE FROM reader WHERE name = 'here'")
    note(database, 78)
    assert 78 not in kept(settings)
    begun(database, "gone")
    assert dropped(database) == []
    note(database, 79)
    assert kept(settings)[-1] == 79


def dropped(database: Database) -> list[str]:
    with database.reader() as connection:
        return journal.dropped(Session(connection, database.dialect))


RESTORED: dict[str, str] = {
    "it has no such reader": "DELETE FROM reader",
    "the reader is elsewhere in it": "UPDATE reader SET position = position - 1",
    "it ends before the reader": "DELETE FROM journal WHERE seq > 4",
    "other rows followed since": "UPDATE journal SET inos = '[99]' WHERE seq >= 5",
}


@pytest.mark.parametrize("how", RESTORED)
def test_a_restored_database_is_recognised(
    database: Database, settings: Settings, how: str
) -> None:
    reader = begun(database, "one")
    note(database, 1, 2, 3)
    read(database, reader)
    save(database, reader)
    note(database, 4, 5, 6)
    assert read(database, reader, 2) == [4, 5]
    query(settings, RESTORED[how])
    note(database, 7)
    with pytest.raises(Lost):
        read(database, reader)


def test_a_reader_continues_where_it_saved(database: Database, settings: Settings) -> None:
    reader = begun(database, "one")
    note(database, *range(10))
    assert read(database, reader, 5) == [0, 1, 2, 3, 4]
    save(database, reader)
    assert read(database, reader, 2) == [5, 6]
    again = Reader("one")
    with database.reader() as connection:
        again.resume(Session(connection, database.dialect))
    assert read(database, again) == [5, 6, 7, 8, 9]
    with database.reader() as connection, pytest.raises(Lost):
        Reader("nobody").resume(Session(connection, database.dialect))
    query(settings, "DELETE FROM journal")
    with database.reader() as connection, pytest.raises(Lost):
        Reader("one").resume(Session(connection, database.dialect))


def test_a_reader_that_was_away_catches_up_in_bounded_memory(
    database: Database, settings: Settings
) -> None:
    reader = begun(database, "one")
    query(settings, MANY_ROWS, last=ROWS - 1, what=CHANGED)
    peak = measured(lambda: catch_up(database, reader))
    assert peak < MEMORY_BYTES
    assert kept(settings) == [ROWS - 1]


def catch_up(database: Database, reader: Reader) -> None:
    expected = 0
    while rows := read(database, reader, PAGE):
        assert rows == list(range(expected, expected + len(rows)))
        expected += len(rows)
        save(database, reader)
    assert expected == ROWS


def measured(run: Callable[[], None]) -> int:
    """Return the most memory that Python's objects took meanwhile, in bytes."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
