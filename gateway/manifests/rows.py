"""Reads what a manifest is made of, in one transaction and page by page.

A directory of any size takes the memory of one page for each level of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gateway.checkpoints.looks import Row
from gateway.checkpoints.record import unpacked
from gateway.checkpoints.rules import Rules
from gateway.checkpoints.statements import RECORD
from gateway.checkpoints.tree import record_of
from gateway.db.compiled import Session
from gateway.manifests import statements as own
from gateway.manifests.document import Member, Stored, Subject, lines
from gateway.types import Extent, Kind

PAGE = 1024


def document(session: Session, row: Row, rules: Rules) -> Iterator[bytes]:
    """Yield the text of a checkpoint's manifest.

    Parameters: session, in a read transaction that ends after the last line; row, as the same
    transaction sees the checkpoint; rules, which say what is left of a killed save.
    """
    found = session.one(own.TOP, ino=row.ino)
    assert found is not None, "the transaction sees the checkpoint"
    subject = Subject(
        row.path,
        row.run,
        row.step,
        row.rule,
        Extent(row.extent).name.lower(),
        row.files,
        row.size,
        row.complete_ns,
        row.durable_ns,
        found[0],
    )
    yield from lines(subject, members(session, row, rules))


def members(session: Session, row: Row, rules: Rules) -> Iterator[Member]:
    """Yield the members of a checkpoint, each directory before what is in it."""
    if row.extent == Extent.FILE:
        yield only(session, row.ino, row.path.rpartition(b"/")[2])
        return
    found = session.one(RECORD, ino=row.ino)
    kept = None if found is None else record_of(found).members
    if kept is None:

        def leaves(path: bytes) -> bool:
            return rules.leaves(row.rule, path.rpartition(b"/")[2])
    else:
        paths = unpacked(kept).keys()

        def leaves(path: bytes) -> bool:
            return path not in paths

    yield from below(session, row.ino, b"", row.extent == Extent.TREE, leaves)


def only(session: Session, ino: int, name: bytes) -> Member:
    """Return the member of what is one file."""
    found = session.one(own.MEMBER, ino=ino)
    assert found is not None, "the transaction sees the file"
    return _member(found, name)


def below(
    session: Session,
    directory: int,
    above: bytes = b"",
    is_deep: bool = True,
    leaves: Callable[[bytes], bool] = lambda _path: False,
) -> Iterator[Member]:
    """Yield what is in a directory, each directory before what is in it.

    Parameters: above, which begins all paths; is_deep, whether directories in it count; leaves,
    which says of the path of a file whether something has left it.
    """
    after = b""
    while rows := session.all(own.MEMBERS, parent=directory, after=after, most=PAGE):
        for row in rows:
            name, kind = bytes(row[0]), row[2]
            path, is_directory = above + name, kind == Kind.DIRECTORY
            if kind == Kind.REGULAR and leaves(path):
                continue
            if is_deep or not is_directory:
                yield _member(row, path)
            if is_deep and is_directory:
                yield from below(session, row[1], path + b"/", is_deep, leaves)
        after = rows[-1][0]


def _member(row: Sequence[Any], path: bytes) -> Member:
    _name, _ino, kind, mode, uid, gid, mtime_ns, size, target, is_stored, *stored = row
    is_file = kind == Kind.REGULAR
    return Member(
        path,
        kind,
        mode,
        uid,
        gid,
        mtime_ns,
        size if is_file else 0,
        None if target is None else bytes(target),
        Stored(*stored) if is_file and is_stored else None,
    )
