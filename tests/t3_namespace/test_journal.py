"""Tests that the journal names everything that changes: readers that follow it miss nothing.

A process makes changes and is killed again and again. Two readers keep a copy of every inode, which
they renew only where the journal tells them to. The readers are killed too, and the rows are
pruned.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

from gateway.common.types import ROOT_CRED, Attr, InodeKind, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db import journal
from gateway.db.compiled import Session, Statement, numbers_in, rows_of
from gateway.db.engine import Database
from gateway.db.journal import STORED, Reader
from gateway.db.writer import Operation
from gateway.drain import statements as drain_statements
from gateway.namespace import adopt, content, fsck, names, rename
from gateway.namespace.attributes import setattr_
from gateway.namespace.data_files import DataFiles
from tests.support.forking import context
from tests.support.namespace import Namespace
from tests.support.volumes import query

SEED = os.environ.get("SEED", "journal")
LIVES = int(os.environ.get("SPILLWAY_JOURNAL_LIVES", "3"))
ROWS_OF_A_LIFE = 1500
ROOT = 2
NAMES = [b"a", b"b", b"c", b"d"]

_FILES = Statement(
    text("SELECT ino, content_version FROM inode WHERE kind = 1 AND nlink > 0 ORDER BY ino")
)

Image = tuple[tuple[Any, ...], ...]
"""Everything that the database has of an inode."""

_COLUMNS = {"inode": "ino", "dirent": "parent", "dirent ": "ino", "xattr": "ino", "damage": "ino"}
_ALL = [
    Statement(text(f"SELECT {column}, '{table}', {table}.* FROM {table}"))
    for table, column in _COLUMNS.items()
]
_ONE = [
    Statement(text(f"SELECT {column}, '{table}', {table}.* FROM {table} WHERE {column} = :ino"))
    for table, column in _COLUMNS.items()
]


def images(session: Session, ino: int | None = None) -> dict[int, Image]:
    """Return the images of one inode, or of all."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for every, statement in zip(_ALL, _ONE, strict=True):
        for row in session.all(every) if ino is None else session.all(statement, ino=ino):
            found.setdefault(row[0], []).append(tuple(row[1:]))
    return {ino: tuple(sorted(rows, key=repr)) for ino, rows in found.items()}


class Copy:
    """A reader, what it made of the rows, and what of that is durable."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self.reader = Reader(name)
        with self._writing() as session:
            self.reader.begin(session)
        with database.reader() as connection:
            self.found = images(Session(connection, database.dialect))
        self._saved = dict(self.found)

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with self._database.reader() as connection, self._database.transaction(connection):
            yield Session(connection, self._database.dialect)

    def read(self, most: int) -> int:
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            rows = self.reader.read(session, most)
            for ino in {row.ino for row in rows}:
                self.found.pop(ino, None)
                self.found |= images(session, ino)
        return len(rows)

    def save(self) -> None:
        with self._writing() as session:
            self.reader.save(session)
        self._saved = dict(self.found)

    def kill(self) -> None:
        """Lose everything that is not durable, and continue from there."""
        self.reader = Reader(self.reader.name)
        with self._database.reader() as connection:
            self.reader.resume(Session(connection, self._database.dialect))
        self.found = dict(self._saved)


class Client:
    """Makes changes at random, some of which are refused."""

    def __init__(self, namespace: Namespace, draw: random.Random) -> None:
        self._ns = namespace
        self._draw = draw
        self._directories = [ROOT]
        self._files: list[int] = []
        self._look(ROOT)

    def _look(self, parent: int) -> None:
        for entry in self._ns.readdir(parent, 0, 10_000):
            self._learn(entry.attr)
            if entry.attr.kind == InodeKind.DIRECTORY:
                self._look(entry.attr.ino)

    def _learn(self, attr: Attr) -> None:
        known = self._directories if attr.kind == InodeKind.DIRECTORY else self._files
        if attr.ino not in known:
            known.append(attr.ino)

    def step(self) -> None:
        """Make some changes in one transaction."""
        operations = [self._operation() for _ in range(self._draw.randrange(1, 9))]
        self._ns.run_together(operations)
        for operation in operations:
            if operation.error is None and isinstance(operation.result, Attr):
                self._learn(operation.result)

    def _operation(self) -> Operation[Any]:
        draw = self._draw
        cred, generation = ROOT_CRED, self._ns.boot.generation
        parent, there = draw.choice(self._directories), draw.choice(self._directories)
        name, other = draw.choice(NAMES), draw.choice(NAMES)
        file = draw.choice(self._files or [ROOT])
        anything = draw.choice([parent, file])
        makers: list[Callable[[], Operation[Any]]] = [
            lambda: Operation(names.create, cred, parent, name, SetAttr(), generation=generation),
            lambda: Operation(
                names.mkdir, cred, parent, name, SetAttr(mode=0o755), generation=generation
            ),
            lambda: Operation(
                names.symlink, cred, parent, name, b"target", SetAttr(), generation=generation
            ),
            lambda: Operation(names.link, cred, file, parent, name),
            lambda: Operation(rename.rename, cred, parent, name, there, other, 0),
            lambda: Operation(rename.rename, cred, parent, name, parent, other, 0),
            lambda: Operation(names.remove, cred, parent, name),
            lambda: Operation(setattr_, anything, SetAttr(mode=draw.randrange(0o1000))),
            lambda: Operation(names.setxattr, cred, anything, name, other, 0),
            lambda: Operation(names.removexattr, cred, anything, name),
            lambda: Operation(content.open_write, file),
            lambda: Operation(content.seal, file, Sealed(0, 0, 5, draw.randrange(2)), 0),
            lambda: Operation(content.damaged, file, "test"),
            lambda: Operation(content.whole, file),
            lambda: Operation(names.reclaim, file),
        ]
        return draw.choice(makers)()


def make_changes(settings: Settings, seed: str) -> None:
    """Make changes until the process is killed."""
    client = Client(Namespace(settings), random.Random(seed))
    while True:
        client.step()


def publish(session: Session, draw: random.Random) -> None:
    """Do what a drain does beside the clients."""
    files = session.all(_FILES)
    for ino, version in draw.sample(files, min(3, len(files))):
        session.run(drain_statements.DRAINED, files=rows_of([(ino, version)]))
        journal.note(session, {ino: STORED})


def test_two_readers_miss_nothing(settings: Settings) -> None:
    draw = random.Random(SEED)
    database = Database(settings.database_url)
    copies = [Copy(database, "one"), Copy(database, "two")]
    for life in range(LIVES):
        process = context.Process(target=make_changes, args=(settings, f"{SEED} {life}"))
        process.start()
        try:
            seen = 0
            while seen < ROWS_OF_A_LIFE:
                assert process.is_alive()
                copy = draw.choice(copies)
                seen += copy.read(draw.randrange(1, 100))
                if draw.random() < 0.3:
                    copy.save()
                if draw.random() < 0.1:
                    copy.kill()
                if draw.random() < 0.1:
                    with database.reader() as connection, database.transaction(connection):
                        publish(Session(connection, database.dialect), draw)
        finally:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        require_complete(database, copies)
        # The next start also notes what it corrects.
        Namespace(settings).close()
        require_complete(database, copies)
    assert query(settings, "SELECT min(seq) FROM journal")[0][0] > 1
    database.close()


def require_complete(database: Database, copies: list[Copy]) -> None:
    for copy in copies:
        while copy.read(500):
            pass
        with database.reader() as connection:
            assert copy.found == images(Session(connection, database.dialect))


def with_reader(settings: Settings) -> Database:
    database = Database(settings.database_url)
    with database.reader() as connection, database.transaction(connection):
        Reader("one").begin(Session(connection, database.dialect))
    return database


def noted(settings: Settings) -> list[tuple[int, set[int]]]:
    """Return the rows of the journal."""
    rows = query(settings, "SELECT what, inos FROM journal")
    return sorted(((what, set(numbers_in(inos))) for what, inos in rows), key=repr)


def test_a_batch_notes_a_directory_once(namespace: Namespace, settings: Settings) -> None:
    with_reader(settings).close()
    operations = [
        Operation(names.create, ROOT_CRED, ROOT, b"f%d" % number, SetAttr(), generation=1)
        for number in range(64)
    ]
    namespace.run_together(operations)
    inos = [operation.outcome().ino for operation in operations]
    assert noted(settings) == [(journal.CHANGED, {ROOT, *inos})]


def test_a_renamed_directory_concerns_what_is_below(
    namespace: Namespace, settings: Settings
) -> None:
    made = namespace.mkdir(ROOT_CRED, ROOT, b"tmp-1", SetAttr()).ino
    file = namespace.create(ROOT_CRED, made, b"f", SetAttr()).ino
    with_reader(settings).close()
    namespace.rename(ROOT_CRED, ROOT, b"tmp-1", ROOT, b"1")
    rows = [(journal.CHANGED, {ROOT}), (journal.CHANGED | journal.BELOW, {made})]
    assert noted(settings) == sorted(rows, key=repr)
    namespace.rename(ROOT_CRED, made, b"f", made, b"g")
    assert noted(settings) == sorted([*rows, (journal.CHANGED, {made, file})], key=repr)


def test_the_nfs_server_tidies(
    namespace: Namespace, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "KEPT_MAX", 5)
    monkeypatch.setattr("gateway.namespace.identity.MARK_SECONDS", 0.0)
    with_reader(settings).close()
    for number in range(9):
        namespace.mkdir(ROOT_CRED, ROOT, b"d%d" % number, SetAttr())
    namespace.keep_mark_now()
    assert query(settings, "SELECT position FROM reader") == [(journal.DROPPED,)]
    assert len(query(settings, "SELECT * FROM journal")) == 1


def readers(settings: Settings) -> list[tuple[Any, ...]]:
    return query(settings, "SELECT name FROM reader")


def test_adoption_makes_readers_read_everything(settings: Settings) -> None:
    Namespace(settings).close()
    database = with_reader(settings)
    adopt.adopt_files(database, DataFiles(settings.files_dir))
    assert readers(settings) == []
    with_reader(settings).close()
    adopt.adopt_bucket(database, settings.bucket)
    assert readers(settings) == []
    database.close()


@pytest.mark.parametrize("damage", ["DELETE FROM dirent", "UPDATE inode SET nlink = 9"])
def test_a_repair_makes_readers_read_everything(settings: Settings, damage: str) -> None:
    namespace = Namespace(settings)
    namespace.create(ROOT_CRED, ROOT, b"f", SetAttr(), for_writing=False)
    namespace.close()
    database = with_reader(settings)
    query(settings, damage)
    assert fsck.check(database, namespace.files) != []
    assert readers(settings) == [("one",)]
    assert fsck.check(database, namespace.files, repair=True) != []
    assert readers(settings) == []
    database.close()
