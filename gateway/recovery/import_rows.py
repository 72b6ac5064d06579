"""Rows of imports: which prefixes are imported, and which object each of their files is.

A file whose object changed becomes another file: the new one is made in the trash, where clients
do not find it, and the NFS server renames it over the old one. So who has the old one open reads
its version, or an error, and never bytes of both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import delete, func, insert, literal_column, select, update

from gateway.db.compiled import Session, Statement, b, given, numbers_in, numbers_of, rows_of
from gateway.db.models import TRASH_INO
from gateway.db.statements import dirent, imported_object, imported_prefix, inode

EXAMPLES_MAX = 100
"""The keys that are left out and are shown."""


class ImportState(StrEnum):
    """What is done with an import."""

    PLACING = "placing"
    """Its directory was made, and perhaps has its name already."""
    LISTING = "listing"
    WHOLE = "whole"
    """A listing has ended, and no other one was asked for."""
    REMOVING = "removing"


class ImportRow(NamedTuple):
    """A row of ``imported_prefix``."""

    top: int
    bucket: str
    prefix: str
    state: str
    last_key: str | None
    untold: str
    asked_ns: int
    ended_ns: int | None
    files: int
    size: int
    gone: int
    left_out: int
    examples: str
    error: str | None

    @property
    def untold_inos(self) -> list[int]:
        """The directories of which the NFS server may not know what they have."""
        return numbers_in(self.untold)

    @property
    def left_out_first(self) -> list[tuple[str, str]]:
        """The first keys that were left out, each with the reason."""
        return [(key, why) for key, why in json.loads(self.examples)]

    @property
    def url(self) -> str:
        """The source, as a person writes it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


class ImportedRow(NamedTuple):
    """A file of an import, and its name."""

    key: str
    ino: int
    size: int
    etag: str
    gone_ns: int | None
    parent: int
    name: bytes

    @property
    def is_staged(self) -> bool:
        """Whether it has not its place yet: it is to replace an older file."""
        return self.parent == TRASH_INO


def staged_name(ino: int) -> bytes:
    """Return the name that a directory or file of an import has in the trash."""
    return b"import-%d" % ino


_COLUMNS = [imported_prefix.c[name] for name in ImportRow._fields]
_EVERY = Statement(select(*_COLUMNS).order_by(imported_prefix.c.asked_ns, imported_prefix.c.top))
_ONE = Statement(select(*_COLUMNS).where(imported_prefix.c.top == b("top")))
INSERT = Statement(insert(imported_prefix))
OBJECT_INSERT = Statement(insert(imported_object))
_KEYS = given("keys", key=str)
_ROWS_AT = Statement(
    select(
        *(imported_object.c[name] for name in ("key", "ino", "size", "etag", "gone_ns")),
        dirent.c.parent,
        dirent.c.name,
    )
    .select_from(imported_object.join(dirent, dirent.c.ino == imported_object.c.ino))
    # With a join, SQLite would read all rows of the import.
    .where(imported_object.c.top == b("top"), imported_object.c.key.in_(select(_KEYS.c.key)))
)
_ROWS_AFTER = Statement(
    select(imported_object.c.ino, imported_object.c.gone_ns)
    .where(imported_object.c.top == b("top"), imported_object.c.ino > b("after"))
    .order_by(imported_object.c.ino)
    .limit(b("most"))
)
_INOS = given("inos", ino=int)
_GONE = Statement(
    update(imported_object)
    .where(imported_object.c.ino.in_(select(_INOS.c.ino)), imported_object.c.gone_ns.is_(None))
    .values(gone_ns=b("now_ns"))
)
_BACK = Statement(
    update(imported_object)
    .where(imported_object.c.ino.in_(select(_INOS.c.ino)))
    .values(gone_ns=literal_column("NULL"))
)
_COUNTS = Statement(
    select(
        func.count(),
        func.coalesce(func.sum(inode.c.size), 0),
        func.count(imported_object.c.gone_ns),
    )
    .select_from(imported_object.join(inode, inode.c.ino == imported_object.c.ino))
    .where(imported_object.c.top == b("top"), inode.c.nlink > 0)
)
_ADVANCE = Statement(
    update(imported_prefix)
    .where(
        imported_prefix.c.top == b("the_top"),
        imported_prefix.c.state == literal_column(f"'{ImportState.LISTING}'"),
    )
    .values(
        last_key=b("new_last_key"),
        untold=b("new_untold"),
        files=imported_prefix.c.files + b("more_files"),
        size=imported_prefix.c.size + b("more_bytes"),
        left_out=b("new_left_out"),
        examples=b("new_examples"),
        error=literal_column("NULL"),
    )
)
_END = Statement(
    update(imported_prefix)
    .where(
        imported_prefix.c.top == b("the_top"),
        imported_prefix.c.asked_ns == b("asked"),
        imported_prefix.c.state == literal_column(f"'{ImportState.LISTING}'"),
    )
    .values(state=b("new_state"))
)
_ENDED = Statement(
    update(imported_prefix)
    .where(imported_prefix.c.top == b("the_top"))
    .values(
        last_key=literal_column("NULL"),
        untold=literal_column("'[]'"),
        ended_ns=b("now_ns"),
        files=b("new_files"),
        size=b("new_size"),
        gone=b("new_gone"),
        left_out=b("new_left_out"),
        examples=b("new_examples"),
        error=literal_column("NULL"),
    )
)
_SET_ERROR = Statement(
    update(imported_prefix)
    .where(imported_prefix.c.top == b("the_top"))
    .values(error=b("new_error"))
)
_SET_STATE = Statement(
    update(imported_prefix)
    .where(imported_prefix.c.top == b("the_top"))
    .values(state=b("new_state"), asked_ns=b("now_ns"), error=literal_column("NULL"))
)
_ENTRY_OF = Statement(select(dirent.c.parent, dirent.c.name).where(dirent.c.ino == b("ino")))
_STAGED_NAMES_DELETE = Statement(delete(dirent).where(dirent.c.ino.in_(select(_INOS.c.ino))))
_STAGED_DELETE = Statement(delete(inode).where(inode.c.ino.in_(select(_INOS.c.ino))))
_LIST_AGAIN = Statement(
    update(imported_prefix)
    .where(
        imported_prefix.c.state.in_(
            [literal_column(f"'{state}'") for state in (ImportState.WHOLE, ImportState.LISTING)]
        )
    )
    .values(
        state=ImportState.LISTING.value,
        last_key=literal_column("NULL"),
        untold=literal_column("'[]'"),
    )
)


def every(session: Session) -> list[ImportRow]:
    """Return all imports, the oldest first."""
    return [ImportRow(*row) for row in session.all(_EVERY)]


def one(session: Session, top: int) -> ImportRow | None:
    """Return the import of a directory, or None."""
    row = session.one(_ONE, top=top)
    return None if row is None else ImportRow(*row)


def entry_of(session: Session, ino: int) -> tuple[int, bytes] | None:
    """Return the directory that an inode is in, and its name there, or None."""
    row = session.one(_ENTRY_OF, ino=ino)
    return None if row is None else (row[0], bytes(row[1]))


def rows_at(session: Session, top: int, keys: Sequence[str]) -> dict[str, list[ImportedRow]]:
    """Return the files of keys that have names: up to two of each."""
    found: dict[str, list[ImportedRow]] = {}
    for row in session.all(_ROWS_AT, top=top, keys=rows_of([(key,) for key in keys])):
        found.setdefault(row[0], []).append(ImportedRow(*row)._replace(name=bytes(row[-1])))
    return found


def rows_after(session: Session, top: int, after: int, most: int) -> list[tuple[int, int | None]]:
    """Return files of an import in the order of their inodes, and since when each is gone."""
    rows = session.all(_ROWS_AFTER, top=top, after=after, most=most)
    return [(ino, gone_ns) for ino, gone_ns in rows]


def mark_gone(session: Session, inos: Collection[int], now_ns: int) -> None:
    """Note that a listing lacked the objects of some files."""
    session.run(_GONE, inos=rows_of([(ino,) for ino in inos]), now_ns=now_ns)


def mark_back(session: Session, inos: Collection[int]) -> None:
    """Note that a listing had the objects of some files again."""
    session.run(_BACK, inos=rows_of([(ino,) for ino in inos]))


def delete_staged(session: Session, inos: Collection[int]) -> None:
    """Delete files, or the directory of an import, that are in the trash only. No client has ever
    found them."""
    given_inos = rows_of([(ino,) for ino in inos])
    session.run(_STAGED_NAMES_DELETE, inos=given_inos)
    session.run(_STAGED_DELETE, inos=given_inos)


class Advance(NamedTuple):
    """What a transaction of a listing adds to its row."""

    last_key: str | None
    untold: Collection[int]
    files: int
    size: int
    left_out: int
    examples: Sequence[tuple[str, str]]


def advance(session: Session, top: int, made: Advance) -> bool:
    """Save how far a listing is. Returns whether the import is still to be listed."""
    return bool(
        session.run(
            _ADVANCE,
            the_top=top,
            new_last_key=made.last_key,
            new_untold=numbers_of(made.untold),
            more_files=made.files,
            more_bytes=made.size,
            new_left_out=made.left_out,
            new_examples=json.dumps(list(made.examples)),
        )
    )


def end(
    session: Session,
    row: ImportRow,
    now_ns: int,
    left_out: int,
    examples: Sequence[tuple[str, str]],
) -> None:
    """Record the end of a listing. If another one was asked for meanwhile, it follows.

    Args:
        row: as it was when the listing began.
        now_ns: the time.
        left_out: the keys that cannot be names.
        examples: the first of them.
    """
    found = session.one(_COUNTS, top=row.top)
    assert found is not None, "a query that counts has one row"
    session.run(
        _ENDED,
        the_top=row.top,
        now_ns=now_ns,
        new_files=found[0],
        new_size=int(found[1]),
        new_gone=found[2],
        new_left_out=left_out,
        new_examples=json.dumps(list(examples)),
    )
    session.run(_END, the_top=row.top, asked=row.asked_ns, new_state=ImportState.WHOLE.value)


def set_error(session: Session, top: int, error: str) -> None:
    """Record why an import waits."""
    session.run(_SET_ERROR, the_top=top, new_error=error)


def set_state(session: Session, top: int, state: ImportState, now_ns: int) -> None:
    """Have something else be done with an import."""
    session.run(_SET_STATE, the_top=top, new_state=state.value, now_ns=now_ns)


def list_again(session: Session) -> None:
    """Have everything be listed again, because names of an earlier time were put back."""
    session.run(_LIST_AGAIN)
