"""Gives block digests to objects that an earlier Spillway uploaded without them.

The local bytes are read once, slowly, while nothing waits to be uploaded. They count only if they
are still those of the object: the version is the same before and after the reading, and the
checksum is the one that was recorded at the upload. Otherwise the object gets no digests.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import select

from gateway import clock
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import block_digest, inode, object_
from gateway.drain.context import Context
from gateway.drain.job import Job, JobId, Lane, Outcome, Page, Work
from gateway.drain.rows import File
from gateway.drain.send import blockrows, checksum, source
from gateway.errors import DataFileError
from gateway.objectstore.crc64 import BlockDigests
from gateway.objectstore.objects import MIB

log = logging.getLogger("drain")

BYTES_PER_SECOND = 64 * MIB
BATCH_FILES = 64
BATCH_BYTES = 256 * MIB
SCAN_PAGE = 2048
PASS_SECONDS = 3600.0
"""The time from the end of a look at all objects to the next. Uploads record digests, so there is
rarely new work."""
HANDED_OUT_SECONDS = 10.0
"""The time that a job which was handed out has to begin, before it is planned again."""
NO_INODE = 0
"""The claim of the job: there is one such job at a time, in all drains, and no other job needs the
claim."""

_OBJECT = (
    select(
        *[inode.c[name] for name in File._fields],
        object_.c.content_version,
        object_.c.checksum,
        block_digest.c.ino,
    )
    .select_from(
        object_.join(inode, inode.c.ino == object_.c.ino).outerjoin(
            block_digest, block_digest.c.ino == object_.c.ino
        )
    )
    .order_by(object_.c.ino)
)
OBJECTS_AFTER = Statement(_OBJECT.where(object_.c.ino > b("after_ino")).limit(b("most")))
OBJECT_NOW = Statement(_OBJECT.where(object_.c.ino == b("ino")))
"""Selects objects with their files, the checksum, and the inode again if the blocks have
digests."""


class Lacking(NamedTuple):
    """A clean file whose object has no block digests."""

    file: File
    checksum: str
    """The checksum of the object."""

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.file.ino, self.file.content_version, self.file.epoch


class Backfill:
    """Plans the readings of one drain, and remembers how far they are.

    Parameters: is_busy, which returns whether files wait to be uploaded.
    """

    def __init__(self, is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self._at = 0
        self._again_at = 0.0
        self._is_running = False
        self._unlike: set[tuple[int, int, int]] = set()
        """Inode, version and epoch of files whose bytes are not those of the object. They are not
        read again by this drain: a file of a terabyte takes hours."""

    def restart(self) -> None:
        """Look at all objects again, now."""
        self._at, self._again_at = 0, 0.0

    def plan(self, context: Context, _after: int | str | None) -> Page:
        """Plan one job for the next files. The position moves when the job is done."""
        is_due = clock.monotonic_seconds() >= self._again_at
        if self._is_busy() or self._is_running or not is_due:
            return Page([], None)
        with context.reading() as view:
            rows = view.session.all(OBJECTS_AFTER, after_ino=self._at, most=SCAN_PAGE)
        batch = _first(
            [
                one
                for row in rows
                if (one := _lacking(row)) is not None and one.identity not in self._unlike
            ]
        )
        if batch:
            # Another drain may be at it. Then this plan would be made again at each poll.
            self._again_at = clock.monotonic_seconds() + HANDED_OUT_SECONDS
            job = Job(
                JobId(Work.BLOCK_DIGEST, NO_INODE, ""),
                Lane.DISK,
                frozenset((NO_INODE,)),
                partial(self._run, context, batch),
            )
            return Page([job], None)
        if len(rows) == SCAN_PAGE:
            self._at = rows[-1][0]
            return Page([], 0)
        self._at, self._again_at = 0, clock.monotonic_seconds() + PASS_SECONDS
        return Page([], None)

    def _run(self, context: Context, batch: Sequence[Lacking]) -> Outcome:
        self._is_running = True
        try:
            return self._give_digests(context, batch)
        finally:
            self._is_running, self._again_at = False, 0.0

    def _give_digests(self, context: Context, batch: Sequence[Lacking]) -> Outcome:
        pace = _Pace(context.stop)
        found = []
        for one in batch:
            blocks = _read(context, one, pace.passed)
            if context.stop.is_set():
                return Outcome.OUTDATED
            if blocks is None:
                self._unlike.add(one.identity)
            else:
                found.append((one, blocks))
        with context.writing() as view:
            still = [(one.file.ino, blocks) for one, blocks in found if _is_so(view.session, one)]
            blockrows.insert_many(view.session, still)
        self._at = batch[-1].file.ino
        return Outcome.DONE if still else Outcome.OUTDATED


def _lacking(row: Sequence[object]) -> Lacking | None:
    *cells, version, recorded, has_digests = row
    file = File(*cells)  # type: ignore[arg-type]
    if has_digests is not None or not isinstance(recorded, str):
        return None
    is_clean = file.content_version == file.drained_version == version and not file.write_open
    return Lacking(file, recorded) if is_clean and file.nlink > 0 and file.is_resident else None


def _is_so(session: Session, planned: Lacking) -> bool:
    """Return whether the object has no digests yet, and is still of the version that was read."""
    row = session.one(OBJECT_NOW, ino=planned.file.ino)
    now = None if row is None else _lacking(row)
    return (
        now is not None
        and now.checksum == planned.checksum
        and now.file.content_version == planned.file.content_version
        and now.file.epoch == planned.file.epoch
    )


def _first(files: Sequence[Lacking]) -> list[Lacking]:
    """Return as many of the files as one job reads, at least one."""
    size = 0
    for count, one in enumerate(files[:BATCH_FILES]):
        size += one.file.size
        if count and size > BATCH_BYTES:
            return list(files[:count])
    return list(files[:BATCH_FILES])


def _read(context: Context, one: Lacking, on_read: Callable[[int], object]) -> BlockDigests | None:
    """Read a file for its block digests. Returns None if told to stop, or if these are not the
    bytes that were uploaded."""
    file, path = one.file, context.files.path(one.file.ino, one.file.epoch)
    form = checksum.form_of(one.checksum)
    try:
        with source.open_data(context.files, file) as data:
            read = checksum.of_file(data, file.size, form, context.stop.is_set, on_read)
    except (DataFileError, OSError) as exc:
        log.warning("no block digests of inode %d: %s", file.ino, exc)
        return None
    if read is not None and read.checksum != one.checksum:
        # The file was written meanwhile, or the disk changed it: spillway fsck --checksums tells.
        log.warning("no block digests of inode %d: %s is not what was uploaded", file.ino, path)
        return None
    return None if read is None else read.blocks


class _Pace:
    """Limits a reading to its rate. Parameters: stop, which ends the waiting."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._began = clock.monotonic_seconds()
        self._bytes = 0

    def passed(self, read_bytes: int) -> None:
        """Note that so many more bytes were read, and wait if the reading is too fast."""
        self._bytes += read_bytes
        ahead_seconds = self._began + self._bytes / BYTES_PER_SECOND - clock.monotonic_seconds()
        if ahead_seconds > 0:
            self._stop.wait(ahead_seconds)
