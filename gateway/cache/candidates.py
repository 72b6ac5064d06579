"""Finds the files whose bytes may leave the local disk, in the order in which they should.

Such a file is clean, named and not open, and its object is at the key of one of its paths, with
block digests to verify it by. First come files in the trash, and then the blocks of absent files
that were not used for a while. Then come whole directories, the one whose newest use is the longest
ago first.

Nothing here is kept up to date. ``survey`` reads all rows of clean files, so it is used only above
a watermark: a million files in 1,000 directories take 1.5 s of one processor (SQLite), up to 12 s
if the files of a directory were not made together. 1,000 candidates then take 0.07 s.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import case, exists, func, or_, select, tuple_

from gateway import clock
from gateway.data.layout import DataFiles
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, given
from gateway.db.statements import (
    IS_ABSENT,
    IS_REGULAR,
    IS_RESIDENT,
    TRASH_TREE,
    dirent,
    inode,
    last_read,
    object_,
    presence,
    warming,
)
from gateway.keymapper import KeyMapper
from gateway.namespace.pins import Pins
from gateway.namespace.residency import HAS_VERSION, IS_CERTAIN, IS_CLEAN
from gateway.objectstore import keys
from gateway.settings import Settings

PAGE = 4096
UNUSED_SECONDS = 600.0
"""The blocks of an absent file that was not read, and not fetched, for so long are given up."""

_read_ns = func.coalesce(last_read.c.read_ns, 0)
_used_ns = case((_read_ns > object_.c.stored_ns, _read_ns), else_=object_.c.stored_ns)
_FILES = inode.join(object_, object_.c.ino == inode.c.ino).outerjoin(
    last_read, last_read.c.ino == inode.c.ino
)
_MAY_LEAVE = (*IS_CLEAN, *HAS_VERSION, *IS_CERTAIN)
"""The conditions of ``EVICT`` (gateway.namespace.residency), which decides."""
_COLUMNS = (
    inode.c.ino,
    inode.c.content_version,
    inode.c.epoch,
    inode.c.used,
    object_.c.key,
    object_.c.size,
    object_.c.etag,
    _used_ns,
)
SURVEY = Statement(
    select(dirent.c.parent, func.max(_used_ns), func.sum(inode.c.used))
    .select_from(_FILES.join(dirent, dirent.c.ino == inode.c.ino))
    .where(
        IS_REGULAR,
        IS_RESIDENT,
        inode.c.used > 0,
        inode.c.drained_version == inode.c.content_version,
    )
    .group_by(dirent.c.parent)
)
"""Selects the directories with clean files: newest use, and bytes on the disk. The other conditions
would double its time, and hold for nearly all of these files."""
INSIDE = Statement(
    select(*_COLUMNS)
    .select_from(_FILES.join(dirent, dirent.c.ino == inode.c.ino))
    .where(
        dirent.c.parent == b("parent"),
        IS_RESIDENT,
        inode.c.used > 0,
        *_MAY_LEAVE,
        tuple_(_used_ns, inode.c.ino) > tuple_(b("after_ns"), b("after_ino")),
    )
    .order_by(_used_ns, inode.c.ino)
    .limit(b("most"))
)
PARTIAL = Statement(
    select(*_COLUMNS)
    .select_from(_FILES.join(presence, presence.c.ino == inode.c.ino))
    .where(
        IS_ABSENT,
        *_MAY_LEAVE,
        presence.c.epoch == inode.c.epoch,
        ~exists().where(warming.c.ino == inode.c.ino),
        _used_ns < b("before_ns"),
        tuple_(_used_ns, inode.c.ino) > tuple_(b("after_ns"), b("after_ino")),
    )
    .order_by(_used_ns, inode.c.ino)
    .limit(b("most"))
)
"""Selects absent files that have some of their blocks on the disk."""
TRASHED = Statement(
    select(*_COLUMNS)
    .select_from(_FILES)
    .where(
        # A join with what is below would let newer releases of SQLite scan the inodes.
        inode.c.ino.in_(select(TRASH_TREE.c.ino)),
        IS_RESIDENT,
        inode.c.used > 0,
        *_MAY_LEAVE,
        tuple_(_used_ns, inode.c.ino) > tuple_(b("after_ns"), b("after_ino")),
    )
    .order_by(_used_ns, inode.c.ino)
    .limit(b("most"))
)
"""Selects the clean files in the trash."""
_INOS = given("inos", ino=int)
GIVEN = Statement(
    select(*_COLUMNS)
    .select_from(
        _INOS.join(_FILES, inode.c.ino == _INOS.c.ino).outerjoin(
            presence, presence.c.ino == inode.c.ino
        )
    )
    .where(or_(IS_RESIDENT, presence.c.ino.is_not(None)), *_MAY_LEAVE)
)
"""Selects those of some files that may be evicted now."""


class Candidate(NamedTuple):
    """A file that may be evicted, as it was when it was looked at."""

    ino: int
    content_version: int
    epoch: int
    used: int
    """Bytes on the local disk."""
    key: str
    """Key of its object."""
    size: int
    """Bytes of its object."""
    etag: str
    used_ns: int
    """The time of its last use: the last read, the arrival or the upload."""


class Directory(NamedTuple):
    """A directory with clean files."""

    ino: int
    newest_ns: int
    """The time of the newest use of one of them."""
    used: int
    """Bytes of them on the local disk."""


def survey(session: Session) -> list[Directory]:
    """Return the directories with clean files, the longest unused first."""
    found = [Directory(ino, newest_ns, int(used)) for ino, newest_ns, used in session.all(SURVEY)]
    return sorted(found, key=lambda one: (one.newest_ns, one.ino))


class Keep:
    """The patterns of ``cache.keep``. Parameters: patterns, of whole paths below the export."""

    def __init__(self, patterns: Iterable[str]) -> None:
        alternatives = [fnmatch.translate(pattern.strip("/")) for pattern in patterns]
        self._match = re.compile("|".join(alternatives)).match if alternatives else None

    def keeps(self, parts: Sequence[bytes]) -> bool:
        """Return whether a path is one that stays on the disk."""
        path = b"/".join(parts).decode("utf-8", "surrogateescape")
        return self._match is not None and self._match(path) is not None


class Candidates:
    """The files that may be evicted. It remembers the paths of directories, so it serves one look
    at the tables.

    Parameters: session, without a transaction; settings.
    """

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._keep = Keep(settings.cache.keep)
        self._keep_ns = int(settings.cache.keep_seconds * clock.NS)
        self._files = DataFiles(settings.files_dir)
        self._keys = KeyMapper(session, settings.bucket.prefix)
        self._pins = Pins(session)
        self._seen: set[int] = set()

    def partial(self) -> Iterator[Candidate]:
        """Yield absent files with blocks on the disk that were not used for UNUSED_SECONDS."""
        before_ns = clock.now_ns() - int(UNUSED_SECONDS * clock.NS)
        for one in self._pages(PARTIAL, before_ns=before_ns):
            try:
                found = self._files.path(one.ino, one.epoch).stat()
            except FileNotFoundError:
                continue
            if found.st_mtime_ns < before_ns and self.why_not(one) is None:
                yield one._replace(used=found.st_blocks * 512)

    def trashed(self) -> Iterator[Candidate]:
        """Yield the candidates in the trash."""
        for one in self._pages(TRASHED):
            if self.why_not(one, by_time=False) is None:
                self._seen.add(one.ino)
                yield one

    def inside(self, directories: Iterable[Directory]) -> Iterator[Candidate]:
        """Yield the candidates in directories, one directory after the other."""
        for directory in directories:
            for one in self._pages(INSIDE, parent=directory.ino):
                # A file with several names is found in several directories.
                if one.ino not in self._seen and self.why_not(one) is None:
                    self._seen.add(one.ino)
                    yield one

    def given(self, inos: str) -> dict[int, Candidate]:
        """Return those of some files that are clean and on the disk, by inode, kept or not.

        Parameters: inos, of ``rows_of``.
        """
        return {row[0]: Candidate(*row) for row in self._session.all(GIVEN, inos=inos)}

    def top_of(self, directory: int) -> bytes | None:
        """Return the name of the top directory that a directory is or is below, or None."""
        parts = self._keys.settled_path(directory)
        return parts[0] if parts else None

    def why_not(self, one: Candidate, by_time: bool = True) -> str | None:
        """Return why a candidate stays, or None.

        Parameters: by_time, whether files stay that were used within ``cache.keep_seconds``.
        """
        if self._pins.cover(one.ino):
            return "pinned (spillway pins shows it, spillway unpin ends it)"
        if by_time and self._keep_ns and one.used_ns > clock.now_ns() - self._keep_ns:
            return "used a short time ago (cache.keep_seconds)"
        # No move of an object waits for a file that is in the trash alone.
        is_at_home, is_trashed = False, True
        for parent, name in self._session.all(sql.NAMES, ino=one.ino):
            above = self._keys.settled_path(parent)
            if above is None:
                is_trashed = False
                continue
            if above[: len(keys.TRASH)] == keys.TRASH:
                continue
            is_trashed = False
            if self._keep.keeps((*above, name)):
                return "kept (cache.keep)"
            is_at_home |= self._keys.key_of((*above, name)) == one.key
        return None if is_at_home or is_trashed else "renamed, and its object is not moved yet"

    def _pages(self, statement: Statement, **given: Any) -> Iterator[Candidate]:
        after_ns, after_ino = -1, 0
        while True:
            rows = self._session.all(
                statement, after_ns=after_ns, after_ino=after_ino, most=PAGE, **given
            )
            yield from (Candidate(*row) for row in rows)
            if len(rows) < PAGE:
                return
            after_ino, after_ns = rows[-1][0], rows[-1][-1]
