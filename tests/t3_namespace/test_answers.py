"""Every inode that an operation changes is in its answer.

The C side keeps attributes and believes them until an answer says otherwise: a change that no
answer tells of would be invisible to clients for as long as the inode is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.writer import Operation
from gateway.errors import AccessDenied, Exists, Stale
from gateway.namespace.changes import Changes
from gateway.namespace.facade import Namespace
from gateway.settings import Settings
from gateway.types import ROOT_CRED, Attr, Cred, Kind, Removed, Sealed, SetAttr

ROOT = 2
ANY = SetAttr(mode=0o755)
STRANGER = Cred(1000, 1000)
Answer = Attr | Removed | tuple[Attr, Removed | None]
Make = Callable[[Changes, dict[bytes, int]], Operation[Any]]

OPERATIONS: dict[str, Make] = {
    "create": lambda do, at: do.create(ROOT_CRED, at[b"d"], b"n", ANY),
    "mkdir": lambda do, at: do.mkdir(ROOT_CRED, at[b"d"], b"n", ANY),
    "symlink": lambda do, at: do.symlink(ROOT_CRED, at[b"d"], b"n", b"x", ANY),
    "mknod": lambda do, at: do.mknod(ROOT_CRED, at[b"d"], b"n", Kind.FIFO, 0, ANY),
    "link": lambda do, at: do.link(ROOT_CRED, at[b"f"], at[b"d"], b"n"),
    "remove a file": lambda do, at: do.remove(ROOT_CRED, ROOT, b"f"),
    "remove one of two names": lambda do, at: do.remove(ROOT_CRED, ROOT, b"two"),
    "remove a directory": lambda do, at: do.remove(ROOT_CRED, ROOT, b"e"),
    "rename": lambda do, at: do.rename(ROOT_CRED, ROOT, b"f", ROOT, b"n"),
    "rename to another directory": lambda do, at: do.rename(ROOT_CRED, ROOT, b"f", at[b"d"], b"n"),
    "rename of a directory": lambda do, at: do.rename(ROOT_CRED, ROOT, b"e", at[b"d"], b"n"),
    "rename over a file": lambda do, at: do.rename(ROOT_CRED, ROOT, b"f", ROOT, b"g"),
    "rename over one of two names": lambda do, at: do.rename(ROOT_CRED, ROOT, b"f", ROOT, b"two"),
    "rename over a directory": lambda do, at: do.rename(ROOT_CRED, at[b"d"], b"sub", ROOT, b"e"),
    "setattr": lambda do, at: do.setattr(at[b"f"], SetAttr(mode=0o600)),
    "setxattr": lambda do, at: do.setxattr(ROOT_CRED, at[b"f"], b"k", b"v"),
    "removexattr": lambda do, at: do.removexattr(ROOT_CRED, at[b"f"], b"old"),
    "open_write": lambda do, at: do.open_write(at[b"f"]),
    "seal": lambda do, at: do.seal(at[b"w"], Sealed(5, 4096, 7, 2)),
    "seal without a write": lambda do, at: do.seal(at[b"w"], Sealed(0, 0, 0, 0)),
}


def make(namespace: Namespace) -> dict[bytes, int]:
    at = {}
    for name in (b"d", b"e"):
        at[name] = namespace.mkdir(ROOT_CRED, ROOT, name, ANY).ino
    at[b"sub"] = namespace.mkdir(ROOT_CRED, at[b"d"], b"sub", ANY).ino
    for name in (b"f", b"g", b"one", b"w"):
        at[name] = namespace.create(ROOT_CRED, ROOT, name, ANY, for_writing=name == b"w").ino
    namespace.link(ROOT_CRED, at[b"one"], ROOT, b"two")
    namespace.setxattr(ROOT_CRED, at[b"f"], b"old", b"v")
    return at


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_inode_that_changed_is_in_the_answer(
    namespace: Namespace, settings: Settings, name: str
) -> None:
    at = make(namespace)
    database = Database(settings.database_url)
    before = rows(database)
    operation = OPERATIONS[name](namespace.changes, at)
    namespace.run_together([operation])
    answer: Answer = operation.outcome()
    after = rows(database)
    database.close()
    told = {attr.ino: attr for attr in operation.directories}
    gone: dict[int, Removed] = {}
    for part in (answer,) if isinstance(answer, Attr | Removed) else answer:
        if isinstance(part, Attr):
            told[part.ino] = part
        elif part is not None:
            gone[part.ino] = part
    changed = {ino for ino in before.keys() | after.keys() if before.get(ino) != after.get(ino)}
    assert changed <= told.keys() | gone.keys()
    for ino, attr in told.items():
        assert attr == after[ino]
    for ino, removed in gone.items():
        assert (ino in after) == (removed.kind == Kind.REGULAR)
        if ino in after:
            assert (removed.nlink, removed.change) == (after[ino].nlink, after[ino].change)
            assert removed.change > before[ino].change


def rows(database: Database) -> dict[int, Attr]:
    with database.reader() as connection:
        text = f"SELECT {', '.join(Attr._fields)} FROM inode"
        found = [Attr(*row) for row in connection.execute(text).fetchall()]
    return {attr.ino: attr for attr in found}


def test_each_of_a_batch_has_its_own_outcome(namespace: Namespace) -> None:
    do = namespace.changes
    attr = namespace.create(ROOT_CRED, ROOT, b"f", ANY)
    sealed = do.seal(attr.ino, Sealed(5, 4096, 7, 2))
    stale = do.seal(999_999, Sealed(1, 1, 1, 1))
    taken = do.create(ROOT_CRED, ROOT, b"f", ANY)
    # Refused after its first change: it alone is undone, and all others are done once.
    refused = do.mkdir(STRANGER, ROOT, b"d", ANY)
    made = do.create(ROOT_CRED, ROOT, b"g", ANY)
    namespace.run_together([sealed, stale, taken, refused, made])
    assert sealed.outcome() == namespace.getattr(attr.ino)
    for operation, error in ((stale, Stale), (taken, Exists), (refused, AccessDenied)):
        with pytest.raises(error):
            operation.outcome()
    assert made.outcome() == namespace.lookup(ROOT, b"g")
    root = namespace.getattr(ROOT)
    assert made.directories == [root]
    assert (root.change, root.nlink) == (3, 2)
    assert [entry.name for entry in namespace.readdir(ROOT, 0, 9)] == [b"f", b"g"]


def test_statements_return_all_attributes() -> None:
    assert [column.name for column in sql.ATTR] == list(Attr._fields)
