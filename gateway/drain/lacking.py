"""Finds the files that the bucket does not have as they are here, at their keys, in one
transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import or_, select

from gateway import clock, naming
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.statements import IS_REGULAR, damage, dirent, inode, object_, rekey
from gateway.drain.paths import Parts, Paths
from gateway.namespace.lookup import way_up
from gateway.types import Kind

PAGE = 1024
COUNTED = 1000
"""The files of an index of which so many are looked at."""
_REMOVED = b".nfs"
"""What the name of a file begins with that was removed while a client had it open."""

_INOS = given_numbers("inos")
RENAMED = Statement(
    select(rekey.c.ino).select_from(_INOS.join(rekey, rekey.c.ino == _INOS.c.value))
)
"""Selects those of some inodes whose rename has not reached the bucket."""
_ROWS = select(
    dirent.c.cookie,
    dirent.c.name,
    inode.c.ino,
    inode.c.kind,
    inode.c.content_version,
    inode.c.drained_version,
    inode.c.write_open,
    inode.c.drain_after_ns,
    object_.c.key,
    rekey.c.ino,
    damage.c.ino,
).select_from(
    dirent.join(inode, inode.c.ino == dirent.c.ino)
    .outerjoin(object_, object_.c.ino == inode.c.ino)
    .outerjoin(rekey, rekey.c.ino == inode.c.ino)
    .outerjoin(damage, damage.c.ino == inode.c.ino)
)
_CHILDREN = (
    _ROWS.where(dirent.c.parent == b("parent"), dirent.c.cookie > b("cookie"))
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
CHILDREN = Statement(_CHILDREN)
UNFINISHED = Statement(
    _CHILDREN.where(
        or_(
            inode.c.kind == int(Kind.DIRECTORY),
            inode.c.content_version > inode.c.drained_version,
            rekey.c.ino.is_not(None),
        )
    )
)
"""Selects the directories in a directory, and the files that the bucket may lack."""
NAMED = Statement(_ROWS.where(dirent.c.parent == b("parent"), dirent.c.name == b("name")))
DATA = Statement(
    _CHILDREN.where(IS_REGULAR, dirent.c.name > b("first_name"), dirent.c.name < b("end_name"))
)
"""Selects the files of an index."""


class Row(NamedTuple):
    """A name in a directory, with what is known of its inode."""

    cookie: int
    name: bytes
    ino: int
    kind: int
    content_version: int
    drained_version: int
    write_open: int
    drain_after_ns: int
    key: str | None
    renamed: int | None
    damaged: int | None


class Asker(NamedTuple):
    """The file that waits for others."""

    ino: int
    place: tuple[int, int, Parts] | None
    """Its place among the files that name others. None: it waits for those too."""
    until_ns: int | None = None
    """What was sealed later is not waited for. None: everything is."""


class Missing(NamedTuple):
    """A file that the bucket does not have as it is here."""

    ino: int
    path: Parts
    why: str
    """Why the drain does not send it. Empty: it does."""


class Lacking:
    """Parameters: session; paths."""

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def named(self, directory: int, name: bytes) -> Row | None:
        """Return what a name in a directory leads to."""
        row = self._session.one(NAMED, parent=directory, name=name)
        return None if row is None else _row(row)

    def of_file(self, directory: int, above: Parts, target: Row, asker: Asker) -> Iterator[Missing]:
        """Yield a file that the bucket lacks, and those of which it is the index. Parameters:
        above, the path of the directory."""
        moves = self._moves(directory)
        if (one := self._judge(target, (*above, target.name), asker, moves)) is not None:
            yield one
        if (data := naming.data_of(target.name)) is not None:
            yield from self.of_index(directory, above, data, asker)

    def of_index(
        self, directory: int, above: Parts, data: bytes, asker: Asker
    ) -> Iterator[Missing]:
        """Yield the files of an index that the bucket lacks. Parameters: above, the path of the
        directory; data, what their names begin with."""
        moves = self._moves(directory)
        given = {"parent": directory, "cookie": 0, "first_name": data, "end_name": data + b"\xff"}
        for row in map(_row, self._session.all(DATA, **given, most=COUNTED)):
            if (one := self._judge(row, (*above, row.name), asker, moves)) is not None:
                yield one

    def below(
        self, top: int, above: Parts, asker: Asker, is_deep: bool, most: int | None = None
    ) -> Iterator[Missing]:
        """Yield the files in a directory that the bucket lacks and that an asker waits for.

        Parameters: above, the path of the directory; is_deep, whether those further below count;
        most, names that are looked at.
        """
        waiting, left = [(top, above, self._moves(top))], most
        while waiting:
            directory, path, moves = waiting.pop()
            statement = UNFINISHED if most is None and not moves else CHILDREN
            cookie = 0
            while left is None or left > 0:
                page = PAGE if left is None else min(PAGE, left)
                rows = self._session.all(statement, parent=directory, cookie=cookie, most=page)
                left = None if left is None else left - len(rows) - 1
                if moves:
                    self._paths.read_names(cells[2] for cells in rows)
                for row in map(_row, rows):
                    cookie, inner = row.cookie, (*path, row.name)
                    if row.kind == Kind.DIRECTORY and is_deep:
                        waiting.append((row.ino, inner, moves or row.renamed is not None))
                    elif (one := self._judge(row, inner, asker, moves)) is not None:
                        yield one
                if len(rows) < page:
                    break

    def _moves(self, directory: int) -> bool:
        """Return whether a rename of a directory, or of one above, has not reached the bucket."""
        way = [directory, *(parent for _ino, parent, _name in way_up(self._session, directory))]
        return bool(self._session.all(RENAMED, inos=numbers_of(way)))

    def _judge(self, row: Row, path: Parts, asker: Asker, moves: bool) -> Missing | None:
        """Return a file that the bucket lacks and that an asker waits for, or None.

        Parameters: moves, whether its object may have the key of another path.
        """
        if row.kind != Kind.REGULAR or row.ino == asker.ino or row.name.startswith(_REMOVED):
            return None
        rank = naming.rank_of(row.name)
        if rank is not None and asker.place is not None and place_of(path, rank) > asker.place:
            return None
        is_dirty = row.content_version > row.drained_version
        if not is_dirty:
            if row.key is None or not (moves or row.renamed is not None):
                return None
            key = self._paths.key_of(row.ino)
            return None if key in (None, row.key) else Missing(row.ino, path, "")
        since_ns = clock.now_ns() if row.write_open else row.drain_after_ns
        if asker.until_ns is not None and since_ns > asker.until_ns:
            return None
        why = "open" if row.write_open else "damaged" if row.damaged is not None else ""
        if self._paths.key_of(row.ino) is None:
            # What a pattern holds and no client writes is no part of what is named.
            if not row.write_open and not self._paths.is_held_by_order(row.ino):
                return None
            why = why or "held"
        return Missing(row.ino, path, why)


def place_of(parts: Parts, rank: int) -> tuple[int, int, Parts]:
    """Return the place of a file among those that name others: inner ones go first."""
    return -len(parts), rank, parts


def _row(cells: Sequence[Any]) -> Row:
    cookie, name, *others = cells
    return Row(cookie, bytes(name), *others)
