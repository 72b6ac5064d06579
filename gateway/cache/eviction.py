"""Eviction of files: disk watermarks, the order of candidates, and the checks before each eviction.

Missing evidence evicts nothing. The object must be there with the recorded size and ETag right
before the request over the control socket, and the NFS server decides by the rows as they are then
(``namespace.residency``). Two processes may evict the same files at once: the second one gets
EBUSY.

A candidate is clean, named and not open, and its object is at the key of one of its paths, with
block digests to verify it by. First come files in the trash, and then the blocks of absent files
that were not used for a while. Then come whole directories, the one whose newest use is the longest
ago first.

No order is kept up to date between evictions. ``survey`` reads all rows of clean files, so it is
used only above a watermark: a million files in 1,000 directories take 1.5 s of one processor
(SQLite), up to 12 s if the files of a directory were not made together. 1,000 candidates then take
0.07 s.
"""

from __future__ import annotations

import errno
import fnmatch
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sqlalchemy import case, exists, func, literal_column, or_, select, tuple_

from gateway.common import clock
from gateway.common.errors import ObjectRefused, StoreRefused
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, given
from gateway.db.engine import Database
from gateway.db.statements import (
    IS_ABSENT,
    IS_REGULAR,
    IS_RESIDENT,
    TRASH_TREE,
    dirent,
    imported_object,
    imported_prefix,
    inode,
    last_read,
    object_,
    present_blocks,
    warm_request,
)
from gateway.namespace import residency
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import PinLookup
from gateway.namespace.residency import HAS_VERSION, IS_CERTAIN, IS_CLEAN
from gateway.objectstore import key_mapper
from gateway.objectstore.key_mapper import KeyMapper
from gateway.rpc.frames import Op, RpcReply, RpcRequest

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store

BEFORE_SLOW = 0.95
"""The watermark is at most this share of the mark at which writers are slowed."""
MARGIN = 0.02
"""The share of the disk that is evicted at least, so that not every second evicts a little."""
NEVER = 1.0
"""The value of cache.evict_from with which a full disk evicts nothing."""


class DiskSpace(NamedTuple):
    """The disk of the data files. All values are bytes."""

    total: int
    used: int
    """All that writers cannot have, as the NFS server counts it."""
    high: int
    """The use from which on files are evicted."""
    slow: int
    """The use from which on writers are slowed."""

    @property
    def is_short(self) -> bool:
        """Whether bytes that no client waits for should stay in the bucket."""
        return self.used > min(self.high, int(BEFORE_SLOW * self.slow))

    @property
    def is_nearly_slow(self) -> bool:
        """Whether also bytes that clients wait for should wait for an eviction. They would take the
        room from writers, who must not wait for evictions."""
        return self.high < self.slow and self.used > (self.high + self.slow) // 2


class Marks(NamedTuple):
    """The uses of the disk between which files are evicted, in bytes."""

    target: int
    """The use down to which files are evicted."""
    start: int
    """The use above which files are evicted."""


def marks(settings: Settings, disk: DiskSpace, saved_bytes: int) -> Marks:
    """Return the marks that are in force.

    Space for a save never takes more than half of what the watermark leaves to files. A save as
    large as the disk would otherwise have everything evicted for a day, and still not fit.

    Args:
        saved_bytes: the largest save of the last day: the next one is as large.
    """
    if disk.high >= disk.total:
        return Marks(disk.total, disk.total)
    margin = int(MARGIN * disk.total)
    low = min(int(settings.cache.evict_to * disk.total), disk.high - margin)
    saved = max(disk.slow - saved_bytes, disk.high // 2)
    start = min(disk.high, saved)
    is_early = start < disk.high and disk.used <= disk.high
    target = saved - margin if is_early else min(low, saved - margin)
    return Marks(max(0, target), max(0, start))


def look(settings: Settings) -> DiskSpace:
    """Return the use of the disk. Raises OSError."""
    disk = os.statvfs(settings.files_dir)
    total, used = disk.f_blocks, disk.f_blocks - disk.f_bavail
    total, used = total * disk.f_frsize, used * disk.f_frsize
    slow = max(0, int(settings.space.slow_from * total) - settings.space.reserve_bytes)
    high = int(min(settings.cache.evict_from * total, BEFORE_SLOW * slow))
    if settings.cache.evict_from >= NEVER:
        high = total
    return DiskSpace(total, used, high, slow)


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
_COLUMNS: tuple[Any, ...] = (
    inode.c.ino,
    inode.c.content_version,
    inode.c.epoch,
    inode.c.used,
    object_.c.key,
    object_.c.size,
    object_.c.etag,
    literal_column("NULL"),
    _used_ns,
)


def _survey(used_ns: Any, files: Any) -> Statement:
    return Statement(
        select(dirent.c.parent, func.max(used_ns), func.sum(inode.c.used))
        .select_from(files.join(dirent, dirent.c.ino == inode.c.ino))
        .where(
            IS_REGULAR,
            IS_RESIDENT,
            inode.c.used > 0,
            inode.c.drained_version == inode.c.content_version,
        )
        .group_by(dirent.c.parent)
    )


SURVEY = _survey(_used_ns, _FILES)
"""Selects the directories with clean files: newest use, and bytes on the disk. The other conditions
would double its time, and hold for nearly all of these files."""


def _inside(columns: Any, used_ns: Any, files: Any, may_leave: Any) -> Statement:
    return Statement(
        select(*columns)
        .select_from(files.join(dirent, dirent.c.ino == inode.c.ino))
        .where(
            dirent.c.parent == b("parent"),
            IS_RESIDENT,
            inode.c.used > 0,
            *may_leave,
            tuple_(used_ns, inode.c.ino) > tuple_(b("after_ns"), b("after_ino")),
        )
        .order_by(used_ns, inode.c.ino)
        .limit(b("most"))
    )


def _partial(columns: Any, used_ns: Any, files: Any, may_leave: Any) -> Statement:
    return Statement(
        select(*columns)
        .select_from(files.join(present_blocks, present_blocks.c.ino == inode.c.ino))
        .where(
            IS_ABSENT,
            *may_leave,
            present_blocks.c.epoch == inode.c.epoch,
            ~exists().where(warm_request.c.ino == inode.c.ino),
            used_ns < b("before_ns"),
            tuple_(used_ns, inode.c.ino) > tuple_(b("after_ns"), b("after_ino")),
        )
        .order_by(used_ns, inode.c.ino)
        .limit(b("most"))
    )


INSIDE = _inside(_COLUMNS, _used_ns, _FILES, _MAY_LEAVE)
PARTIAL = _partial(_COLUMNS, _used_ns, _FILES, _MAY_LEAVE)
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


def _given(columns: Any, files: Any, may_leave: Any) -> Statement:
    return Statement(
        select(*columns)
        .select_from(
            _INOS.join(files, inode.c.ino == _INOS.c.ino).outerjoin(
                present_blocks, present_blocks.c.ino == inode.c.ino
            )
        )
        .where(or_(IS_RESIDENT, present_blocks.c.ino.is_not(None)), *may_leave)
    )


GIVEN = _given(_COLUMNS, _FILES, _MAY_LEAVE)
"""Selects those of some files that may be evicted now."""

# The same of imported files, whose objects are in other buckets.
_IMPORTED_FILES = (
    inode.join(imported_object, imported_object.c.ino == inode.c.ino)
    .join(imported_prefix, imported_prefix.c.top == imported_object.c.top)
    .outerjoin(last_read, last_read.c.ino == inode.c.ino)
)
_IMPORTED_MAY_LEAVE = (*IS_CLEAN, imported_object.c.size == inode.c.size)
_IMPORTED_COLUMNS = (
    *(inode.c[name] for name in ("ino", "content_version", "epoch", "used")),
    *(imported_object.c[name] for name in ("key", "size", "etag")),
    imported_prefix.c.bucket,
    _read_ns,
)
_OF_IMPORTS = (_IMPORTED_COLUMNS, _read_ns, _IMPORTED_FILES, _IMPORTED_MAY_LEAVE)
IMPORTED_SURVEY = _survey(_read_ns, _IMPORTED_FILES)
IMPORTED_INSIDE = _inside(*_OF_IMPORTS)
IMPORTED_PARTIAL = _partial(*_OF_IMPORTS)
IMPORTED_GIVEN = _given(_IMPORTED_COLUMNS, _IMPORTED_FILES, _IMPORTED_MAY_LEAVE)


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
    bucket: str | None
    """The bucket of an import. None: the gateway's own one."""
    used_ns: int
    """The time of its last use: the last read, the arrival or the upload."""


class Directory(NamedTuple):
    """A directory with clean files."""

    ino: int
    newest_ns: int
    """The time of the newest use of one of them."""
    used: int
    """Bytes of them on the local disk."""
    is_imported: bool = False
    """Whether they are of an import."""


def survey(session: Session) -> list[Directory]:
    """Return the directories with clean files, the longest unused first."""
    directories = [
        Directory(ino, newest_ns, int(used), is_imported)
        for statement, is_imported in ((SURVEY, False), (IMPORTED_SURVEY, True))
        for ino, newest_ns, used in session.all(statement)
    ]
    return sorted(directories, key=lambda directory: (directory.newest_ns, directory.ino))


class KeepPatterns:
    """The patterns of ``cache.keep``.

    Args:
        patterns: patterns of whole paths below the export.
    """

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

    Args:
        session: session without a transaction.
    """

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._keep = KeepPatterns(settings.cache.keep)
        self._keep_ns = int(settings.cache.keep_seconds * clock.NS)
        self._files = DataFiles(settings.files_dir)
        self._keys = KeyMapper(session, settings.bucket.prefix)
        self._pins = PinLookup(session)
        self._seen: set[int] = set()

    def partial(self) -> Iterator[Candidate]:
        """Yield absent files with blocks on the disk that were not used for UNUSED_SECONDS."""
        before_ns = clock.now_ns() - int(UNUSED_SECONDS * clock.NS)
        pages = (self._pages(one, before_ns=before_ns) for one in (PARTIAL, IMPORTED_PARTIAL))
        for page in chain.from_iterable(pages):
            try:
                stat = self._files.path(page.ino, page.epoch).stat()
            except FileNotFoundError:
                continue
            if stat.st_mtime_ns < before_ns and self.reason_against(page) is None:
                yield page._replace(used=stat.st_blocks * 512)

    def trashed(self) -> Iterator[Candidate]:
        """Yield the candidates in the trash."""
        for page in self._pages(TRASHED):
            if self.reason_against(page, by_time=False) is None:
                self._seen.add(page.ino)
                yield page

    def inside(self, directories: Iterable[Directory]) -> Iterator[Candidate]:
        """Yield the candidates in directories, one directory after the other."""
        for directory in directories:
            statement = IMPORTED_INSIDE if directory.is_imported else INSIDE
            for candidate in self._pages(statement, parent=directory.ino):
                # A file with several names is found in several directories.
                if candidate.ino not in self._seen and self.reason_against(candidate) is None:
                    self._seen.add(candidate.ino)
                    yield candidate

    def given(self, inos: str) -> dict[int, Candidate]:
        """Return those of some files that are clean and on the disk, by inode, kept or not.

        Args:
            inos: inos of ``rows_of``.
        """
        rows = [row for one in (GIVEN, IMPORTED_GIVEN) for row in self._session.all(one, inos=inos)]
        return {row[0]: Candidate(*row) for row in rows}

    def top_of(self, directory: int) -> bytes | None:
        """Return the name of the top directory that a directory is or is below, or None."""
        parts = self._keys.settled_path(directory)
        return parts[0] if parts else None

    def reason_against(self, one: Candidate, by_time: bool = True) -> str | None:
        """Return why a candidate stays, or None.

        Args:
            by_time: whether files stay that were used within ``cache.keep_seconds``.
        """
        if self._pins.cover(one.ino):
            return "pinned (spillway checkpoint pins shows it, spillway checkpoint unpin ends it)"
        if by_time and self._keep_ns and one.used_ns > clock.now_ns() - self._keep_ns:
            return "used a short time ago (cache.keep_seconds)"
        # No move of an object waits for a file that is in the trash alone.
        # Neither do those of imports, which stay where they are.
        is_at_home, is_trashed = one.bucket is not None, True
        for parent, name in self._session.all(sql.NAMES, ino=one.ino):
            above = self._keys.settled_path(parent)
            if above is None:
                is_trashed = False
                continue
            if above[: len(key_mapper.TRASH)] == key_mapper.TRASH:
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


log = logging.getLogger("cache")

TOGETHER = 64
"""The requests over the control socket at a time: as many as the server takes from one peer."""
HEADS = 8
"""The objects that are looked at at a time."""
LEFT_MAX = 1024

Ask = Callable[[Sequence[RpcRequest]], list[RpcReply]]
"""Has requests answered over the control socket, as ``ControlSocket.run`` does."""


class EvictionVerdict(StrEnum):
    """What became of a candidate, as people see it."""

    EVICTED = "evicted"
    BUSY = "open, or changed a moment ago"
    DIFFERS = "the bucket does not have the object that was recorded"
    REFUSED = "the bucket does not let us look at the object"
    LATER = "the NFS server has no time now"
    PINNED = "pinned a moment ago"
    GONE = "deleted meanwhile"


_VERDICTS = {
    0: EvictionVerdict.EVICTED,
    errno.EBUSY: EvictionVerdict.BUSY,
    errno.EPERM: EvictionVerdict.PINNED,
    errno.ESTALE: EvictionVerdict.GONE,
}


@contextmanager
def eviction_of(settings: Settings, database: Database) -> Iterator[Eviction]:
    """Open the bucket and what evicts files. Raises StoreError."""
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.ownership import guarded
    from gateway.objectstore.s3 import S3Store

    store = guarded(S3Store(settings), settings, database)
    with Eviction(settings, database, store) as eviction:
        yield eviction


class Eviction:
    """Evicts files. A context manager that ends its threads.

    Args:
        store: answers HEAD.
    """

    def __init__(self, settings: Settings, database: Database, store: S3Store) -> None:
        self._files = DataFiles(settings.files_dir)
        self._database = database
        self._settings = settings
        self._store = store
        self._imported: dict[str, S3Store] = {}
        """The buckets of imports that were asked, by name."""
        self._making = threading.Lock()
        self._pool = ThreadPoolExecutor(HEADS, "cache-head")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(self, ask: Ask, candidates: Sequence[Candidate]) -> list[EvictionVerdict]:
        """Evict up to TOGETHER files. Returns what became of each, in order.

        Raises ControlSocketClosed; StoreUnavailable, StoreRefused before anything was requested;
        OSError, NamespaceError after the evictions, whose rows are left then.
        """
        # What another gateway may replace is no copy of what is on the disk.
        self._store.require_permit()
        seen = list(self._pool.map(self._look, candidates))
        if seen and not any(verdict is None for verdict, _what in seen):
            # Answers to HEAD have no reason. With a wrong key, or without the bucket, all objects
            # seem to be at fault.
            self._store.check()
        verdicts: dict[int, EvictionVerdict] = {}
        wanted = []
        refused = []
        for candidate, (verdict, exc_info) in zip(candidates, seen, strict=True):
            if verdict is None:
                wanted.append(candidate)
                continue
            verdicts[candidate.ino] = verdict
            if verdict is EvictionVerdict.REFUSED:
                refused.append(exc_info)
            else:
                log.warning("inode %d stays on the disk: %s", candidate.ino, exc_info)
        if refused:
            log.warning("%d files stay on the disk: %s", len(refused), refused[0])
        answers = ask(
            [
                RpcRequest(Op.EVICT, candidate.ino, change=candidate.content_version)
                for candidate in wanted
            ]
        )
        evicted = []
        for candidate, answer in zip(wanted, answers, strict=True):
            verdicts[candidate.ino] = _VERDICTS.get(answer.errno, EvictionVerdict.LATER)
            if answer.errno == 0 and answer.attr is not None:
                evicted.append((candidate.ino, answer.attr.epoch - 1))
            elif verdicts[candidate.ino] is EvictionVerdict.LATER:
                log.info("inode %d: not evicted now: errno %d", candidate.ino, answer.errno)
        self._forget(evicted)
        return [verdicts[candidate.ino] for candidate in candidates]

    def forget_left(self) -> None:
        """Delete the rows that an evictor left which was killed, or whose answers were lost."""
        with self._database.reader() as connection:
            rows = residency.evictions(Session(connection, self._database.dialect), LEFT_MAX)
        self._forget((ino, epoch) for ino, epoch in rows)

    def _look(self, candidate: Candidate) -> tuple[EvictionVerdict | None, str]:
        """Return why a candidate stays, and the same for people. None: the bucket has the object as
        it was recorded."""
        try:
            head = self._store_of(candidate).head(candidate.key)
        except ObjectRefused as exc:
            return EvictionVerdict.REFUSED, str(exc)
        except StoreRefused as exc:
            if candidate.bucket is None:
                raise
            return EvictionVerdict.REFUSED, str(exc)
        if head is None:
            return EvictionVerdict.DIFFERS, f"the object {candidate.key} is missing"
        if (head.size, head.etag) != (candidate.size, candidate.etag):
            return EvictionVerdict.DIFFERS, f"the object {candidate.key} is not what was recorded"
        return None, ""

    def _store_of(self, candidate: Candidate) -> S3Store:
        if candidate.bucket is None:
            return self._store
        with self._making:
            if candidate.bucket not in self._imported:
                # The import is here because boto3 takes half a second to import.
                from gateway.objectstore.imported import ImportedStore, settings_of

                settings = settings_of(self._settings, candidate.bucket)
                self._imported[candidate.bucket] = ImportedStore(settings)
            return self._imported[candidate.bucket]

    def _forget(self, evicted: Iterable[tuple[int, int]]) -> None:
        """Delete the rows of evictions whose data files are gone, for good.

        Without the fsync a power cut could bring a data file back that no row names any more.
        """
        gone = [(ino, epoch) for ino, epoch in evicted if not self._files.path(ino, epoch).exists()]
        if not gone:
            return
        self._files.sync_shards(ino for ino, _epoch in gone)
        with self._database.writing() as session:
            residency.forget_evictions(session, gone)
