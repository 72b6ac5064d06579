"""Every inode that an operation changes is in its answer.

The C side keeps attributes and believes them until an answer says otherwise: a change that no
answer tells of would be invisible to clients for as long as the inode is cached.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.config import Settings
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.namespace.facade import Namespace
from gateway.types import ROOT_CRED, Attr, Kind, Removed, Sealed, SetAttr

ROOT = 2
ANY = SetAttr(mode=0o755)
Answer = Attr | Removed | tuple[Attr, Removed | None]
Operation = Callable[[Namespace, dict[bytes, int], list[Attr]], Answer]

OPERATIONS: dict[str, Operation] = {
    "create": lambda ns, at, dirs: ns.create(ROOT_CRED, at[b"d"], b"n", ANY, directories=dirs),
    "mkdir": lambda ns, at, dirs: ns.mkdir(ROOT_CRED, at[b"d"], b"n", ANY, directories=dirs),
    "symlink": lambda ns, at, dirs: ns.symlink(
        ROOT_CRED, at[b"d"], b"n", b"x", ANY, directories=dirs
    ),
    "mknod": lambda ns, at, dirs: ns.mknod(
        ROOT_CRED, at[b"d"], b"n", Kind.FIFO, 0, ANY, directories=dirs
    ),
    "link": lambda ns, at, dirs: ns.link(ROOT_CRED, at[b"f"], at[b"d"], b"n", directories=dirs),
    "remove a file": lambda ns, at, dirs: ns.remove(ROOT_CRED, ROOT, b"f", directories=dirs),
    "remove one of two names": lambda ns, at, dirs: ns.remove(
        ROOT_CRED, ROOT, b"two", directories=dirs
    ),
    "remove a directory": lambda ns, at, dirs: ns.remove(ROOT_CRED, ROOT, b"e", directories=dirs),
    "rename": lambda ns, at, dirs: ns.rename(ROOT_CRED, ROOT, b"f", ROOT, b"n", directories=dirs),
    "rename to another directory": lambda ns, at, dirs: ns.rename(
        ROOT_CRED, ROOT, b"f", at[b"d"], b"n", directories=dirs
    ),
    "rename of a directory": lambda ns, at, dirs: ns.rename(
        ROOT_CRED, ROOT, b"e", at[b"d"], b"n", directories=dirs
    ),
    "rename over a file": lambda ns, at, dirs: ns.rename(
        ROOT_CRED, ROOT, b"f", ROOT, b"g", directories=dirs
    ),
    "rename over one of two names": lambda ns, at, dirs: ns.rename(
        ROOT_CRED, ROOT, b"f", ROOT, b"two", directories=dirs
    ),
    "rename over a directory": lambda ns, at, dirs: ns.rename(
        ROOT_CRED, at[b"d"], b"sub", ROOT, b"e", directories=dirs
    ),
    "setattr": lambda ns, at, dirs: ns.setattr(at[b"f"], SetAttr(mode=0o600)),
    "setxattr": lambda ns, at, dirs: ns.setxattr(ROOT_CRED, at[b"f"], b"k", b"v"),
    "removexattr": lambda ns, at, dirs: ns.removexattr(ROOT_CRED, at[b"f"], b"old"),
    "open_write": lambda ns, at, dirs: ns.open_write(at[b"f"]),
    "seal": lambda ns, at, dirs: ns.seal(at[b"w"], Sealed(5, 4096, 7, 2)),
    "seal without a write": lambda ns, at, dirs: ns.seal(at[b"w"], Sealed(0, 0, 0, 0)),
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
    directories: list[Attr] = []
    answer = OPERATIONS[name](namespace, at, directories)
    after = rows(database)
    database.close()
    told = {attr.ino: attr for attr in directories}
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


def test_each_seal_of_a_batch_has_its_own_outcome(namespace: Namespace) -> None:
    attr = namespace.create(ROOT_CRED, ROOT, b"f", ANY)
    done, failed = namespace.seal_all(
        [(attr.ino, Sealed(5, 4096, 7, 2)), (999_999, Sealed(1, 1, 1, 1))]
    )
    assert isinstance(done, Attr)
    assert done == namespace.getattr(attr.ino)
    assert isinstance(failed, Exception)
    assert failed.__class__.__name__ == "Stale"


def test_statements_return_all_attributes() -> None:
    assert [column.name for column in sql.ATTR] == list(Attr._fields)
