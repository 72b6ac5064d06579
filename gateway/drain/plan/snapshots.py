"""Uploads of files that stay open for long (logs), each as it was at one moment.

The copy is made by consistent_copy.py. It has no name on the local disk, so it is gone with the
process, however the process ends. The object is at the file's key and is recorded, but the file
stays dirty: its version is complete only when it is sealed, and is uploaded then.

Only memory keeps how long a file has been open, and how often it was written during a look. After a
start of the drain, a file counts as opened at that start.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.common import clock
from gateway.common.errors import NoSpace
from gateway.config.settings import Settings
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import DrainJob, JobId, JobOutcome, JobPage, WorkKind, upload_lane
from gateway.drain.plan.sweeps import make_way
from gateway.drain.rows import File
from gateway.drain.send import consistent_copy, upload

log = logging.getLogger("drain")

PAGE = 2048
TRIES = 10
"""The looks at a file in motion before it is left alone for another age."""


@dataclass
class _Open:
    """A file that is open for writing."""

    version: int
    due_at: float
    """Monotonic seconds from which on a snapshot is wanted."""
    reading: int = 0
    """The number of the reading that last found it."""
    tries: int = 0
    is_restless: bool = False
    """Whether a snapshot was due and could not be taken."""


class Snapshots:
    """The open files of one drain.

    Args:
        on_missed: called when a file was never still enough for a snapshot.
    """

    def __init__(self, settings: Settings, on_missed: Callable[[], None]) -> None:
        self._age_seconds = settings.drain.max_open_age_seconds
        self._reserve_bytes = settings.space.reserve_bytes
        self._on_missed = on_missed
        self._open: dict[int, _Open] = {}
        self._reading = 0

    def restless(self) -> int:
        """Return how many open files have no snapshot because they were written without a pause."""
        return sum(open_file.is_restless for open_file in list(self._open.values()))

    def plan(self, context: Context, after: int | str | None) -> JobPage:
        """Plan the snapshots that are due, or what stands in their way."""
        if after is None:
            self._reading += 1
        with context.reading() as view:
            rows = view.session.all(own.OPEN, after_ino=after or 0, most=PAGE)
            files = [File(*row) for row in rows]
            jobs = [job for file in files if (job := self._job(context, view, file)) is not None]
        if len(files) == PAGE:
            return JobPage(jobs, files[-1].ino)
        self._open = {
            k: open_file
            for k, open_file in self._open.items()
            if open_file.reading == self._reading
        }
        return JobPage(jobs, None)

    def _job(self, context: Context, view: DrainView, file: File) -> DrainJob | None:
        now = clock.monotonic_seconds()
        open_file = self._open.get(file.ino)
        if open_file is None or open_file.version != file.content_version:
            open_file = self._open[file.ino] = _Open(file.content_version, now + self._age_seconds)
        open_file.reading = self._reading
        if now < open_file.due_at or not self._has_news(context, view, file, open_file):
            return None
        key = view.paths.key_of(file.ino)
        if key is None or view.precedence.wait_of(file) is not None:
            return None
        return make_way(context, view, file.ino, key) or DrainJob(
            JobId(WorkKind.SNAPSHOT, file.ino, key),
            upload_lane(file.size, is_first=False),
            frozenset((file.ino, key)),
            partial(self._take, context, file, key, open_file),
        )

    def _has_news(self, context: Context, view: DrainView, file: File, open_file: _Open) -> bool:
        """Return whether there are bytes that no snapshot shows, and they are not in motion."""
        try:
            stat = context.files.path(file.ino, file.epoch).stat()
        except FileNotFoundError:
            return False
        row = view.session.one(own.STORED_NS, ino=file.ino, version=file.content_version)
        if row is not None:
            age_seconds = (clock.now_ns() - row[0]) / clock.NS
            # A moment in the future is from before the clock went back.
            if 0 <= age_seconds < self._age_seconds:
                # Another drain took this snapshot.
                open_file.due_at = clock.monotonic_seconds() + self._age_seconds - age_seconds
                return False
            if age_seconds >= 0 and stat.st_ctime_ns <= row[0] - consistent_copy.QUIET_NS:
                return False
        elif stat.st_size == 0:
            return False
        if not consistent_copy.is_quiet(stat):
            self._in_motion(file, open_file)
            return False
        return True

    def _take(self, context: Context, file: File, key: str, open_file: _Open) -> JobOutcome:
        """Copy and upload the file. Raises as upload.send(), NoSpace."""
        path = context.files.path(file.ino, file.epoch)
        # The copy is beside the data files: there the file system can share the bytes instead.
        with tempfile.TemporaryFile(dir=context.files.root, buffering=0) as data:
            try:
                with path.open("rb", buffering=0) as source:
                    self._require_room(source.fileno(), data.fileno())
                    moment = consistent_copy.copy(source.fileno(), data.fileno())
            except FileNotFoundError:
                return JobOutcome.OUTDATED
            except OSError as exc:
                if exc.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise NoSpace("no room on the disk for a copy of it") from exc
                raise
            if moment is None:
                self._in_motion(file, open_file)
                return JobOutcome.OUTDATED
            planned = file._replace(size=moment.size, mtime_ns=moment.mtime_ns)
            outcome = upload.send(context, planned, key, data, moment.ns)
        if outcome == JobOutcome.DONE:
            open_file.due_at = clock.monotonic_seconds() + self._age_seconds
            open_file.tries, open_file.is_restless = 0, False
        return outcome

    def _require_room(self, source: int, target: int) -> None:
        """Require room for the copy beside the reserve, which is for clients. Raises NoSpace."""
        disk = os.fstatvfs(target)
        needed_bytes = os.fstat(source).st_blocks * 512 + self._reserve_bytes
        if disk.f_bavail * disk.f_frsize < needed_bytes:
            raise NoSpace("no room on the disk for a copy of it")

    def _in_motion(self, file: File, open_file: _Open) -> None:
        open_file.tries += 1
        if open_file.tries < TRIES:
            return
        if not open_file.is_restless:
            log.warning("inode %d is written without a pause: no snapshot of it", file.ino)
        open_file.tries, open_file.is_restless = 0, True
        open_file.due_at = clock.monotonic_seconds() + self._age_seconds
        self._on_missed()
