"""Every inode that an operation changes is in its answer.

The C side keeps attributes until an answer has new ones. Clients would not see a change that is in
no answer for as long as the inode is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.common.errors import AccessDenied, Exists, Stale
from gateway.common.types import ROOT_CRED, Attr, Cred, InodeKind, RemovedName, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.writer import Operation
from gateway.namespace import content, names, rename
from gateway.namespace.attributes import setattr_
from tests.support.namespace import Namespace

ROOT = 2
ANY = SetAttr(mode=0o755)
STRANGER = Cred(1000, 1000)
Answer = Attr | RemovedName | tuple[Attr, RemovedName | None]
Make = Callable[[int, dict[bytes, int]], Operation[Any]]

OPERATIONS: dict[str, Make] = {
    "create": lambda g, at: Operation(names.create, ROOT_CRED, at[b"d"], b"n", ANY, generation=g),
    "mkdir": lambda g, at: Operation(names.mkdir, ROOT_CRED, at[b"d"], b"n", ANY, generation=g),
    "symlink": lambda g, at: Operation(
        names.symlink, ROOT_CRED, at[b"d"], b"n", b"x", ANY, generation=g
    ),
    "mknod": lambda g, at: Operation(
        names.mknod, ROOT_CRED, at[b"d"], b"n", InodeKind.FIFO, 0, ANY, generation=g
    ),
    "link": lambda _, at: Operation(names.link, ROOT_CRED, at[b"f"], at[b"d"], b"n"),
    "remove a file": lambda _, at: Operation(names.remove, ROOT_CRED, ROOT, b"f"),
    "remove one of two names": lambda _, at: Operation(names.remove, ROOT_CRED, ROOT, b"two"),
    "remove a directory": lambda _, at: Operation(names.remove, ROOT_CRED, ROOT, b"e"),
    "rename": lambda _, at: moved(ROOT, b"f", ROOT, b"n"),
    "rename to another directory": lambda _, at: moved(ROOT, b"f", at[b"d"], b"n"),
    "rename of a directory": lambda _, at: moved(ROOT, b"e", at[b"d"], b"n"),
    "rename over a file": lambda _, at: moved(ROOT, b"f", ROOT, b"g"),
    "rename over one of two names": lambda _, at: moved(ROOT, b"f", ROOT, b"two"),
    "rename over a directory": lambda _, at: moved(at[b"d"], b"sub", ROOT, b"e"),
    "setattr": lambda _, at: Operation(setattr_, at[b"f"], SetAttr(mode=0o600)),
    "setxattr": lambda _, at: Operation(names.setxattr, ROOT_CRED, at[b"f"], b"k", b"v", 0),
    "removexattr": lambda _, at: Operation(names.removexattr, ROOT_CRED, at[b"f"], b"old"),
    "open_write": lambda _, at: Operation(content.open_write, at[b"f"]),
    "seal": lambda _, at: Operation(content.seal, at[b"w"], Sealed(5, 4096, 7, 2), 0),
    "seal without a write": lambda _, at: Operation(content.seal, at[b"w"], Sealed(0, 0, 0, 0), 0),
}


def moved(parent: int, name: bytes, new_parent: int, new_name: bytes) -> Operation[Any]:
    return Operation(rename.rename, ROOT_CRED, parent, name, new_parent, new_name, 0)


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
    operation = OPERATIONS[name](namespace.boot.generation, at)
    namespace.run_together([operation])
    answer: Answer = operation.outcome()
    after = rows(database)
    database.close()
    told = {attr.ino: attr for attr in operation.directories}
    gone: dict[int, RemovedName] = {}
    for part in (answer,) if isinstance(answer, Attr | RemovedName) else answer:
        if isinstance(part, Attr):
            told[part.ino] = part
        elif part is not None:
            gone[part.ino] = part
    changed = {ino for ino in before.keys() | after.keys() if before.get(ino) != after.get(ino)}
    assert changed <= told.keys() | gone.keys()
    for ino, attr in told.items():
        assert attr == after[ino]
    for ino, removed in gone.items():
        assert (ino in after) == (removed.kind == InodeKind.REGULAR)
        if ino in after:
            assert (removed.nlink, removed.change) == (after[ino].nlink, after[ino].change)
            assert removed.change > before[ino].change


def rows(database: Database) -> dict[int, Attr]:
    with database.reader() as connection:
        text = f"SELECT {', '.join(Attr._fields)} FROM inode"
        attrs = [Attr(*row) for row in connection.execute(text).fetchall()]
    return {attr.ino: attr for attr in attrs}


def test_each_of_a_batch_has_its_own_outcome(namespace: Namespace) -> None:
    generation = namespace.boot.generation
    attr = namespace.create(ROOT_CRED, ROOT, b"f", ANY)
    sealed = Operation(content.seal, attr.ino, Sealed(5, 4096, 7, 2), 0)
    stale = Operation(content.seal, 999_999, Sealed(1, 1, 1, 1), 0)
    taken = Operation(names.create, ROOT_CRED, ROOT, b"f", ANY, generation=generation)
    # This operation is refused after its first change. Only it is undone, and all others are done
    # once.
    refused = Operation(names.mkdir, STRANGER, ROOT, b"d", ANY, generation=generation)
    made = Operation(names.create, ROOT_CRED, ROOT, b"g", ANY, generation=generation)
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
