"""Plan of checksums: reads files soon after they were sealed, and records them (``digest``).

From then on, a byte that changes on the disk is noticed before it can be published. Files that are
in the bucket are not read: their objects have a checksum.

Rows are read by age: what was sealed since the last page, and from time to time everything again,
which takes at most a tenth of the time, as in survey.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gateway.common import clock
from gateway.common.errors import SpillwayError
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import Batch, DrainJob, JobId, JobOutcome, JobPage, Lane, WorkKind, run_alone
from gateway.drain.paths import file_of
from gateway.drain.plan.survey import SCAN_PAGE, pacing_seconds, spent_seconds
from gateway.drain.rows import File
from gateway.drain.send import checksum
from gateway.objectstore.objects import MIB

BATCH_FILES = 64
BATCH_BYTES = 64 * MIB
_START = (0, 0)
_FOR_EVER_NS = (1 << 63) - 1


class DigestPlan:
    """The sealed files of one drain.

    Args:
        settle_seconds: by which the times of seals may lie ahead.
        poll_seconds: the least time between two readings of everything.
    """

    def __init__(self, settle_seconds: float, poll_seconds: float) -> None:
        self._settle_ns = int(settle_seconds * clock.NS)
        self._poll_seconds = poll_seconds
        self._at = _START
        self._again_at = 0.0
        self._spent_seconds = 0.0
        self._is_whole = False
        """Whether this reading began at the first row."""

    def restart(self) -> None:
        """Read everything again, now."""
        self._at, self._again_at = _START, 0.0

    def plan(self, context: Context, _after: int | str | None) -> JobPage:
        """Plan jobs for the next files without a digest."""
        started = clock.monotonic_seconds()
        if not self._is_whole and started >= self._again_at:
            self._at, self._is_whole, self._spent_seconds = _START, True, 0.0
        batch = Batch(partial(_compute_many, context), BATCH_FILES, BATCH_BYTES)
        now_ns = clock.now_ns()
        with context.reading() as view:
            rows = view.session.all(
                own.SEALED,
                after_ns=self._at[0],
                after_ino=self._at[1],
                # A whole reading has no limit: times from before the clock went back are ahead of
                # any limit.
                until_ns=_FOR_EVER_NS if self._is_whole else now_ns + self._settle_ns,
                most=SCAN_PAGE,
            )
            files = [(File(*row[:-1]), row[-1]) for row in rows]
            jobs = [
                _job(view, file, batch) for file, known in files if known != file.content_version
            ]
        if files:
            self._at = (files[-1][0].drain_after_ns, files[-1][0].ino)
        self._spent_seconds += spent_seconds(started)
        is_last = len(rows) < SCAN_PAGE
        if is_last and self._is_whole:
            self._is_whole = False
            # Files that are sealed next have times before those that lie far ahead.
            self._at = min(self._at, (now_ns + self._settle_ns, 0))
            pause = pacing_seconds(self._spent_seconds, self._poll_seconds)
            self._again_at = clock.monotonic_seconds() + pause
        return JobPage(jobs, None if is_last else 0)


def _job(view: DrainView, file: File, batch: Batch) -> DrainJob:
    item = file
    return DrainJob(
        JobId(WorkKind.CHECKSUM, file.ino, view.paths.key_of(file.ino) or ""),
        Lane.DISK,
        frozenset((file.ino,)),
        partial(run_alone, batch, item),
        batch=batch,
        item=item,
        size=file.size,
    )


def _compute_many(context: Context, files: Sequence[File]) -> list[JobOutcome | Exception]:
    """Record the digests of files. Returns the result of each, in order. Raises NamespaceError."""
    results: list[JobOutcome | Exception] = [JobOutcome.OUTDATED] * len(files)
    digests: dict[int, str] = {}
    for index, file in enumerate(files):
        try:
            drain = context.settings.drain
            form = checksum.form_for(context.store.kind, drain, file.size)
            with checksum.open_data(context.files, file) as data:
                read = checksum.of_file(data, file.size, form, context.stop.is_set)
        except SpillwayError as exc:
            results[index] = exc
            continue
        if read is not None:
            digests[index] = read.checksum
    with context.writing() as view:
        for index, file in enumerate(files):
            now = file_of(view.session, file.ino)
            if now is None or now.write_open or now.content_version != file.content_version:
                # The version moves before its first byte is written. So the bytes that were read
                # are of no one version, and an error may be of another version.
                results[index] = JobOutcome.OUTDATED
            elif index in digests:
                view.session.run(own.DIGEST_DELETE, the_ino=file.ino)
                view.session.run(
                    own.DIGEST_INSERT,
                    ino=file.ino,
                    content_version=file.content_version,
                    checksum=digests[index],
                    computed_ns=clock.now_ns(),
                )
                results[index] = JobOutcome.DONE
    return results
