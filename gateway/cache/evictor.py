"""Loop that evicts files above the disk's watermark, and early enough for the next save.

Below the watermark the loop reads the use of the disk only, and no table. Directories with a limit
of their own (``cache.limits``) are the exception: their bytes are counted from time to time.

A save must not wait for evictions, so as much space is kept free as the largest write burst of the
last day took within ten minutes (``WriteBurst``). The peaks of each hour are in a small file. If it
is missing, nothing is known, and the watermarks alone count.

A hydrator that is killed before it has written the first map of a file leaves blocks that no
durable map names. They are verified when a client reads the file. If none does, only the map that
``record`` gives such a file makes it a candidate.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import exists, insert, select

from gateway.cache.eviction import (
    TOGETHER,
    Candidate,
    Candidates,
    Directory,
    DiskSpace,
    Eviction,
    EvictionVerdict,
    look,
    marks,
    survey,
)
from gateway.common import clock, files
from gateway.common.errors import (
    ControlSocketClosed,
    NamespaceError,
    StoreError,
    StoreRefused,
    UserError,
)
from gateway.config import checks
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, given, rows_of
from gateway.db.engine import Database
from gateway.db.statements import IS_ABSENT, IS_IMPORTED, block_digest, inode, present_blocks
from gateway.namespace import identity
from gateway.namespace.data_files import DataFiles
from gateway.rpc.control import ControlSocket

if TYPE_CHECKING:
    from gateway.objectstore.s3 import S3Store

log = logging.getLogger("cache")

REPORT = "cache-evictor.json"
"""The file, in ``run`` of the data directory."""
WINDOW_SECONDS = 600.0
HOUR_NS = 3600 * clock.NS
KEPT_NS = 24 * HOUR_NS


class WriteBurst:
    """The largest write bursts of the last day, for the space that a save needs.

    Args:
        path: path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._samples: deque[tuple[float, int]] = deque()
        self._peaks = _read(path)
        """The largest burst of each hour (since 1970), in bytes."""

    @property
    def largest_bytes(self) -> int:
        """The largest burst within ten minutes in the last day. 0: not known."""
        return max(self._peaks.values(), default=0)

    def saw(self, written_bytes: int) -> None:
        """Note how much was written to the disk since any moment, without what was evicted."""
        now = clock.monotonic_seconds()
        self._samples.append((now, written_bytes))
        while self._samples[0][0] < now - WINDOW_SECONDS:
            self._samples.popleft()
        hour = clock.now_ns() // HOUR_NS
        grown_bytes = written_bytes - min(written for _at, written in self._samples)
        # An hour that is further away than a day is over, or the clock went back.
        peaks = {
            at: peak for at, peak in self._peaks.items() if abs(hour - at) * HOUR_NS <= KEPT_NS
        }
        if grown_bytes > 0:
            peaks[hour] = max(peaks.get(hour, 0), grown_bytes)
        if peaks == self._peaks:
            return
        self._peaks = peaks
        text = json.dumps({"largest_growth_bytes": peaks})
        try:
            files.replace(self._path, text + "\n", 0o644, durable=False)
        except OSError as exc:
            log.warning("cannot write %s: %s", self._path, exc)


def _read(path: Path) -> dict[int, int]:
    try:
        largest_growth_bytes = json.loads(path.read_text(encoding="utf-8"))["largest_growth_bytes"]
        return {int(hour): int(peak) for hour, peak in largest_growth_bytes.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


PAGE = 1024
NO_BLOCKS = b"\0"

_FILES = given("files", ino=int, epoch=int)
_UNNAMED = Statement(
    select(inode.c.ino, inode.c.epoch, block_digest.c.block_bytes)
    .select_from(
        _FILES.join(inode, inode.c.ino == _FILES.c.ino).join(
            block_digest, block_digest.c.ino == inode.c.ino
        )
    )
    .where(
        IS_ABSENT,
        inode.c.epoch == _FILES.c.epoch,
        ~exists().where(present_blocks.c.ino == inode.c.ino),
    )
)
_UNNAMED_IMPORTED = Statement(
    select(inode.c.ino, inode.c.epoch, inode.c.size)
    .select_from(_FILES.join(inode, inode.c.ino == _FILES.c.ino))
    .where(
        IS_ABSENT,
        IS_IMPORTED,
        inode.c.epoch == _FILES.c.epoch,
        ~exists().where(present_blocks.c.ino == inode.c.ino),
    )
)
_INSERT = Statement(insert(present_blocks))


def record(database: Database, files: DataFiles) -> int:
    """Give absent files with bytes on the disk and without a durable map a map without blocks.

    No byte is touched: the hydrator may be writing into such a file, and it replaces the map by its
    own. Returns the number of these files. Raises NamespaceError, OSError.
    """
    count = 0
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        for page in _pages(files):
            if not _unnamed(session, page):
                continue
            with database.transaction(connection):
                # A map that was written since is not replaced.
                rows = [
                    {"ino": ino, "epoch": epoch, "block_bytes": length, "blocks": NO_BLOCKS}
                    for ino, epoch, length in _unnamed(session, page)
                ]
                session.run_each(_INSERT, rows)
            count += len(rows)
    return count


def _unnamed(session: Session, page: str) -> list[tuple[int, int, int]]:
    """Return the absent files of a page without a map, with their epochs and sizes of blocks."""
    # The import is here because awscrt takes time to import.
    from gateway.objectstore.checksums import block_bytes_of

    own = [(ino, epoch, length) for ino, epoch, length in session.all(_UNNAMED, files=page)]
    imported = session.all(_UNNAMED_IMPORTED, files=page)
    return own + [(ino, epoch, block_bytes_of(size)) for ino, epoch, size in imported]


def _pages(files: DataFiles) -> Iterator[str]:
    walked = files.walk()
    while page := list(islice(walked, PAGE)):
        yield rows_of(page)


LOOK_SECONDS = 1.0
"""The disk is looked at so often, however much free space there is: what clients read back from the
bucket fills a small disk within seconds."""
RETRY_SECONDS = 10.0
"""The pause after an error that may last."""
LIMITS_SECONDS = 60.0
LIMIT_TO = 0.9
PAUSE_RATIO = 1
"""The pause after a look at the tables takes this many times as long as the look. The requests to
the bucket and to the server do not count: while they are slow, a pause would let the disk fill."""
AGAIN_SECONDS = {
    EvictionVerdict.BUSY: 60.0,
    EvictionVerdict.DIFFERS: 600.0,
    EvictionVerdict.REFUSED: 60.0,
    EvictionVerdict.PINNED: 60.0,
    EvictionVerdict.LATER: 10.0,
}
"""The longest time for which a file that could not be evicted is left alone."""
BUSY_FIRST_SECONDS = 1.0
"""A reader is often done within a second. The pause doubles while the file stays busy. On a small
disk the files that many clients read by turns would otherwise all be left alone at the same time.
"""


class EvictionPause(NamedTuple):
    """The time in which a file is left alone."""

    until: float
    """Monotonic seconds."""
    seconds: float


class Evictor:
    """Evicts files of one gateway. Not safe to use from several threads.

    Args:
        open_control: connects to the control socket.
        fetched_bytes: returns how many bytes the hydrator has written to the disk since it started:
            reads are no saves.
        stop: ends a step early.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        store: S3Store,
        open_control: Callable[[], AbstractContextManager[ControlSocket]],
        fetched_bytes: Callable[[], int] = lambda: 0,
        stop: threading.Event | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._open_control = open_control
        self._fetched_bytes = fetched_bytes
        self._stop = stop or threading.Event()
        self._burst = WriteBurst(settings.run_dir / REPORT)
        self._limits = checks.sizes(settings.cache.limits)
        self._limits_at = 0.0
        self._look_at = 0.0
        """Monotonic seconds before which no table is looked at."""
        self._survey_seconds = 0.0
        """The time that the last look at the tables took."""
        self._has_recorded = False
        """Whether the blocks were looked for that an earlier process left."""
        self._pauses: dict[int, EvictionPause] = {}
        """The pauses of files that could not be evicted, by inode."""
        self._warned = ""
        self.counts: Counter[str] = Counter()
        """Files of this run by verdict, and the bytes that were freed (``evicted_bytes``)."""

    def step(self) -> float:
        """Look at the disk, and evict if it is too full. Returns seconds until the next step."""
        try:
            disk = self._disk()
        except OSError as exc:
            self._say(f"cannot look at the disk: {exc.strerror}")
            return RETRY_SECONDS
        target, start = marks(self._settings, disk, self._burst.largest_bytes)
        now = clock.monotonic_seconds()
        is_full = disk.used > start and now >= self._look_at
        is_counted = self._limits and now >= self._limits_at
        if is_full or is_counted:
            freed_before_bytes = self.counts["evicted_bytes"]
            self._survey_seconds = 0.0
            try:
                identity.require_surroundings(self._settings)
                self._evict(disk.used - target if disk.used > start else 0)
                self._warned = ""
            except ControlSocketClosed as exc:
                # A server that was killed is back within seconds, and so are the writers.
                self._say(f"nothing is evicted now: {exc}")
                return LOOK_SECONDS
            except (UserError, StoreError, NamespaceError, OSError) as exc:
                # The disk may not be mounted, or the server or the bucket be away.
                if isinstance(exc, StoreRefused):
                    self._store.reload()
                self._say(f"nothing is evicted now: {exc}")
                return RETRY_SECONDS
            finally:
                after = clock.monotonic_seconds()
                paused_until = after + PAUSE_RATIO * self._survey_seconds
                has_freed = self.counts["evicted_bytes"] > freed_before_bytes
                # If the disk is still too full then, a save fills it faster than one round frees.
                self._look_at = after if has_freed else paused_until
                self._limits_at = max(after + LIMITS_SECONDS, paused_until)
        return LOOK_SECONDS

    def _disk(self) -> DiskSpace:
        disk = look(self._settings)
        self._burst.saw(disk.used + self.counts["evicted_bytes"] - self._fetched_bytes())
        return disk

    def _evict(self, wanted_bytes: int) -> None:
        """Evict files of so many bytes, and what directories have above their limits.

        Raises UserError, StoreError, NamespaceError, ControlSocketClosed, OSError.
        """
        now = clock.monotonic_seconds()
        # A pause that ended a moment ago says how long the next one is.
        self._pauses = {
            ino: pause for ino, pause in self._pauses.items() if pause.until + pause.seconds > now
        }
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            candidates = Candidates(session, self._settings)
            directories = survey(session)
            limited = list(_above_limits(candidates, directories, self._limits))
            self._survey_seconds = clock.monotonic_seconds() - now
            if not limited and wanted_bytes <= 0:
                return
            with (
                Eviction(self._settings, self._database, self._store) as eviction,
                self._open_control() as control,
            ):
                eviction.forget_left()
                # What is above a limit goes anyway. It may be kept or open: only what has gone
                # counts.
                for much, above_limit in limited:
                    wanted_bytes -= self._free(eviction, control, much, above_limit)
                all_candidates = chain(
                    candidates.trashed(), candidates.partial(), candidates.inside(directories)
                )
                self._free(eviction, control, wanted_bytes, all_candidates)
        if not self._has_recorded:
            # A million data files take 5 s, for which nothing that has to be freed now should wait.
            left = record(self._database, DataFiles(self._settings.files_dir))
            self._has_recorded = True
            log.info("%d absent files had blocks that no durable map named", left)

    def _free(
        self,
        eviction: Eviction,
        control: ControlSocket,
        wanted_bytes: int,
        candidates: Iterable[Candidate],
    ) -> int:
        """Evict candidates until so many bytes are free. Returns how many were freed."""
        remaining = (candidate for candidate in candidates if not self._is_paused(candidate.ino))
        freed_bytes = 0
        while freed_bytes < wanted_bytes and not self._stop.is_set():
            batch = _batch(remaining, wanted_bytes - freed_bytes)
            if not batch:
                break
            verdicts = eviction.run(control.run, batch)
            for candidate, verdict in zip(batch, verdicts, strict=True):
                self.counts[verdict.name.lower()] += 1
                if verdict is EvictionVerdict.EVICTED:
                    freed_bytes += candidate.used
                    self.counts["evicted_bytes"] += candidate.used
                elif verdict in AGAIN_SECONDS:
                    self._pause(candidate.ino, verdict)
            if all(verdict is EvictionVerdict.REFUSED for verdict in verdicts):
                # A key may show the bucket and not its objects.
                self._store.reload()
                break
            if all(verdict is EvictionVerdict.LATER for verdict in verdicts):
                break
        if freed_bytes:
            log.info("evicted %d bytes of %d that were to be freed", freed_bytes, wanted_bytes)
        return freed_bytes

    def _is_paused(self, ino: int) -> bool:
        pause = self._pauses.get(ino)
        return pause is not None and pause.until > clock.monotonic_seconds()

    def _pause(self, ino: int, verdict: EvictionVerdict) -> None:
        seconds = AGAIN_SECONDS[verdict]
        if verdict is EvictionVerdict.BUSY:
            last = self._pauses.get(ino)
            doubled = BUSY_FIRST_SECONDS if last is None else 2 * last.seconds
            seconds = min(seconds, doubled)
        self._pauses[ino] = EvictionPause(clock.monotonic_seconds() + seconds, seconds)

    def _say(self, message: str) -> None:
        if message != self._warned:
            log.warning("%s", message)
        self._warned = message


def _batch(candidates: Iterator[Candidate], wanted_bytes: int) -> list[Candidate]:
    """Return the next candidates, as many as are needed for so many bytes, at most TOGETHER."""
    batch: list[Candidate] = []
    for candidate in islice(candidates, TOGETHER):
        batch.append(candidate)
        wanted_bytes -= candidate.used
        if wanted_bytes <= 0:
            break
    return batch


def _above_limits(
    candidates: Candidates, directories: Iterable[Directory], limits: dict[str, int]
) -> Iterator[tuple[int, Iterator[Candidate]]]:
    """Yield how many bytes a top directory has above its limit, and the candidates in it."""
    if not limits:
        return
    below: dict[bytes | None, list[Directory]] = {}
    for directory in directories:
        below.setdefault(candidates.top_of(directory.ino), []).append(directory)
    for name, limit_bytes in limits.items():
        inside = below.get(name.encode("utf-8", "surrogateescape"), [])
        kept_bytes = sum(directory.used for directory in inside)
        if kept_bytes > limit_bytes:
            yield kept_bytes - int(LIMIT_TO * limit_bytes), candidates.inside(inside)
