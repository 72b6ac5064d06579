"""Scheduler for block fetches: tracks every hydration in this process and picks the next block.

First come the blocks that clients wait for, fairly among the files; then the rest of these files,
in the order in which they were asked for; then files that no client waits for. To read a file's
rows takes a millisecond: for files that no client waits for this is done before any of them is
fetched.

Each change that makes a step possible wakes one thread, and a thread that takes a step wakes the
next one. If all of them woke up at once, they would take the interpreter's lock in turn, and what a
client waits for would come about a millisecond later.

``FetchBreaker`` is the circuit breaker for the bucket. The hydrator's lock guards both classes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from gateway.cache.hydration import WHOLE, BlockState, Hydration, now
from gateway.common import clock
from gateway.common.errors import StoreError, StoreRefused
from gateway.common.retry import jittered_seconds
from gateway.objectstore.circuit_breaker import CircuitBreaker

log = logging.getLogger("cache")

PAUSE_MAX_SECONDS = 5.0
"""Clients wait, so the pauses are shorter than the drain's."""


class FetchBreaker:
    """While the bucket is away, one request at a time tries it, after pauses that double."""

    def __init__(self) -> None:
        self.worked_at = 0.0
        """The time of the last answer (monotonic seconds)."""
        self._breaker = CircuitBreaker(PAUSE_MAX_SECONDS)
        self._is_trying = False
        self._state = "reachable"
        self._error: str | None = None
        self._since_ns = clock.now_ns()

    def admits(self) -> bool:
        """Return whether a request may be sent now."""
        if not self._breaker.failures:
            return True
        return not self._is_trying and self._breaker.pause_seconds() == 0

    def begun(self) -> None:
        """Note that a request that was admitted begins."""
        self._is_trying = self._breaker.failures > 0

    def ended(self) -> None:
        """Note that a request has ended, in whatever way."""
        self._is_trying = False

    def worked(self) -> None:
        """Note that the bucket answered."""
        self.worked_at = clock.monotonic_seconds()
        self._breaker.worked()
        self._enter("reachable", None)

    def failed(self, exc: StoreError) -> None:
        """Note that the bucket did not answer, or refused what it would refuse for any object."""
        refused = isinstance(exc, StoreRefused)
        self._breaker.failed(is_slow=refused)
        self._enter("refused" if refused else "unreachable", str(exc))

    def shown(self) -> dict[str, Any]:
        """Return the state, for people."""
        return {"state": self._state, "error": self._error, "since_ns": self._since_ns}

    def _enter(self, state: str, error: str | None) -> None:
        self._error = error
        if state == self._state:
            return
        self._state, self._since_ns = state, clock.now_ns()
        if error is None:
            log.info("the bucket is reachable again")
        else:
            log.error("the bucket is %s: %s", state, error)


RETRY_MAX_SECONDS = 600.0
RETRY_DOUBLINGS = 4
"""The first pause after which a damaged object is tried again is longer than after other failures:
it seldom heals by itself. A client that asks again does not wait for it."""
POLL_SECONDS = 0.25
"""Nothing tells that the pause of a file has ended."""
SHOWN_MAX = 100
FULL_SAID_SECONDS = 60.0
"""A full disk is reported again when it had free space for so long."""


COUNTERS = (
    "blocks",
    "fetched_bytes",  # of verified blocks
    "files_arrived",
    "wrong_objects",  # how often bytes could not be had, or were wrong, after every try
    "older_versions",  # files that are read from an older version of their object
    "retries",  # requests that failed and are tried again
)
"""What is counted since the start."""


class Step(NamedTuple):
    """What a thread does next."""

    hydration: Hydration
    blocks: range | None
    """The blocks to fetch; None: look at the database."""


class FetchScheduler:
    """The hydrations. The methods are called with ``lock`` held, except ``shown``.

    Args:
        workers: the number of threads that fetch.
    """

    def __init__(self, workers: int) -> None:
        self.lock = threading.RLock()
        self._steps = threading.Condition(self.lock)
        self._saves = threading.Condition(self.lock)
        self.bucket = FetchBreaker()
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.has_room = True
        """Whether the disk has space for bytes that no client waits for."""
        self.gives_way = False
        """Whether nothing is fetched now, because writers need the space that is left."""
        self.full_until = 0.0
        """The disk was full: nothing is fetched before this time."""
        self._workers = workers
        self._files: dict[int, Hydration] = {}
        self._awake: dict[int, Hydration] = {}
        """The files about which something may be done. The others sleep until their time comes: a
        hundred thousand damaged files must not make each choice slow."""
        self._asleep: list[tuple[float, int]] = []
        """A heap of the times at which they wake, each with the file. A file that was woken before,
        or sleeps for longer since, has an entry that is out of date."""
        self._waited_for: dict[int, None] = {}
        """Files whose blocks clients wait for. The first is served next."""

    def __iter__(self) -> Iterator[Hydration]:
        return iter(list(self._files.values()))

    def __len__(self) -> int:
        return len(self._files)

    def get(self, ino: int) -> Hydration | None:
        return self._files.get(ino)

    def add(self, ino: int, tries: int = 0) -> Hydration:
        """Return the hydration of a file. There is one, however many want it."""
        hydration = self._files.get(ino)
        if hydration is None:
            hydration = self._files[ino] = self._awake[ino] = Hydration(ino, tries)
            self._steps.notify()
            # It slept without a limit while there was no file.
            self._saves.notify()
        return hydration

    def ask(self, ino: int, offset: int, length: int) -> Hydration:
        """Note that a client waits for bytes of a file. Returns its hydration."""
        hydration = self._files.get(ino)
        if hydration is None:
            hydration = self.add(ino)
        else:
            self._steps.notify()
        if not hydration.is_asked:
            # Files that clients ask for come before the others, in the order of the asking.
            for files in (self._files, self._awake):
                files.pop(ino, None)
                files[ino] = hydration
        hydration.ask(offset, length, now())
        self._awake[ino] = hydration
        self._waited_for[ino] = None
        return hydration

    def drop(self, hydration: Hydration) -> None:
        """End a hydration that no other thread works on."""
        hydration.reset()
        self._files.pop(hydration.ino, None)
        self._awake.pop(hydration.ino, None)
        self._waited_for.pop(hydration.ino, None)

    def wait_for_step(self, for_clients: bool = False) -> None:
        """Wait until there may be a step. While there is no file, no thread wakes up.

        Args:
            for_clients: whether the thread takes only steps that clients wait for.
        """
        if for_clients:
            # It may have been woken in place of a thread that would have found a step.
            self._steps.notify()
        self._steps.wait(POLL_SECONDS if self._files else None)

    def wait_for_save(self) -> None:
        """Wait until there may be something to save. One thread calls it."""
        self._saves.wait(POLL_SECONDS if self._files else None)

    def changed(self, *hydrations: Hydration) -> None:
        """Note that a step or a save of these files may have become possible."""
        for hydration in hydrations:
            if hydration.ino in self._files:
                self._awake.setdefault(hydration.ino, hydration)
        self._steps.notify()
        if any(hydration.is_save_due(now()) for hydration in hydrations):
            self._saves.notify()

    def wake_all(self) -> None:
        """Let all threads look at once, because they must stop."""
        self._steps.notify_all()
        self._saves.notify_all()

    def is_full(self) -> bool:
        """Return whether the disk was full lately."""
        return now() < self.full_until + FULL_SAID_SECONDS

    def choose(self, for_clients: bool = False) -> Step | None:
        """Take the next step, or return None if there is none now.

        Args:
            for_clients: whether only steps that clients wait for are taken.
        """
        at = now()
        due = self._due(at)
        may_fetch = at >= self.full_until and not self.gives_way and self.bucket.admits()
        step = self._look(due, is_asked=True)
        if step is None and may_fetch:
            step = self._wanted(at)
        if step is None and not for_clients:
            step = self._look(due, is_asked=False)
            may_fetch = may_fetch and step is None and self.has_room
            if may_fetch and not any(hydration.is_starting(at) for hydration in due):
                step = self._rest(due, is_asked=True) or self._rest(due, is_asked=False)
        if step is not None:
            step.hydration.users += 1
            if step.blocks is not None:
                self.bucket.begun()
            self._steps.notify()
        return step

    def _due(self, at: float) -> list[Hydration]:
        """Return the files whose time has come."""
        while self._asleep and self._asleep[0][0] <= at:
            _due_at, ino = heappop(self._asleep)
            if (hydration := self._files.get(ino)) is not None:
                self._awake[ino] = hydration
        for sleeper in [
            sleeper
            for sleeper in self._awake.values()
            if max(sleeper.due_at, sleeper.retry_at) > at
        ]:
            if (until := sleeper.sleeps_until(at)) > at:
                del self._awake[sleeper.ino]
                heappush(self._asleep, (until, sleeper.ino))
        return list(self._awake.values())

    def wake(self, hydration: Hydration) -> None:
        """Let something be done about a file at once."""
        hydration.due_at = 0.0
        if hydration.ino in self._files:
            self._awake[hydration.ino] = hydration

    def _look(self, due: list[Hydration], is_asked: bool) -> Step | None:
        for hydration in due:
            is_free = (
                hydration.is_asked == is_asked and not hydration.users and not hydration.is_untold
            )
            if is_free and (hydration.needs_look or self.hides_restore(hydration)):
                return Step(hydration, None)
        return None

    def hides_restore(self, one: Hydration) -> bool:
        """Return whether an archived object may be back, and no request would show it, because
        there is no space to fetch it into."""
        is_wanted = one.wanted or one.asks or one.troubles
        return one.restore is not None and not self.has_room and not is_wanted

    def _wanted(self, at: float) -> Step | None:
        is_crowded = len(self._waited_for) > self._workers
        for ino in list(self._waited_for):
            hydration = self._files[ino]
            if not hydration.wanted and not hydration.asks:
                del self._waited_for[ino]
            elif hydration.due_at <= at and not hydration.needs_look:
                blocks = hydration.take_wanted(is_crowded)
                if blocks is not None:
                    del self._waited_for[ino]
                    self._waited_for[ino] = None
                    return Step(hydration, blocks)
        return None

    @staticmethod
    def _rest(due: list[Hydration], is_asked: bool) -> Step | None:
        for hydration in due:
            if hydration.is_asked == is_asked and not hydration.needs_look:
                blocks = hydration.take_rest()
                if blocks is not None:
                    return Step(hydration, blocks)
        return None

    def end(self, step: Step) -> None:
        """Note that a step has ended. What it took and did not fetch is missing again."""
        step.hydration.users -= 1
        if step.blocks is not None:
            step.hydration.map.release(step.blocks)
            self.bucket.ended()
        self.changed(step.hydration)

    def later(self, hydration: Hydration, pause_seconds: float) -> None:
        """Do nothing about a file for a while."""
        hydration.due_at = max(hydration.due_at, now() + pause_seconds)

    def give_up(self, hydration: Hydration, block: int, error: str) -> float:
        """Note that bytes cannot be had. Returns the pause, in seconds, before the next try.

        Args:
            block: block, or WHOLE for all that are missing.
        """
        if block == WHOLE:
            hydration.map.change(BlockState.MISSING, BlockState.BAD)
        else:
            hydration.map[block] = BlockState.BAD
        if hydration.retry_at <= now():
            hydration.tries += 1
            pause_seconds = jittered_seconds(hydration.tries + RETRY_DOUBLINGS, RETRY_MAX_SECONDS)
            hydration.retry_at = now() + pause_seconds
        hydration.error = error
        self.counters["wrong_objects"] += 1
        return hydration.retry_at - now()

    def shown(self) -> dict[str, Any]:
        """Return what ``spillway status`` shows."""
        with self.lock:
            files = list(self._files.values())
            damaged = [hydration for hydration in files if hydration.error is not None]
            restoring = [
                (hydration, hydration.restore)
                for hydration in files
                if hydration.restore is not None
            ]
            return {
                "bucket": self.bucket.shown(),
                "counters": dict(self.counters),
                "waiting_files": sum(
                    bool(hydration.wanted or hydration.asks) for hydration in files
                ),
                "files": len(files),
                "has_room": self.has_room,
                "in_progress": [hydration.shown() for hydration in files if hydration.source][
                    :SHOWN_MAX
                ],
                "damaged_files": len(damaged),
                "damaged": [
                    {
                        "ino": hydration.ino,
                        "path": hydration.path,
                        "reason": hydration.error,
                        "tries": hydration.tries,
                    }
                    for hydration in damaged[:SHOWN_MAX]
                ],
                "restoring_files": len(restoring),
                "restoring": [
                    {"ino": hydration.ino, "path": hydration.path, **restore._asdict()}
                    for hydration, restore in restoring[:SHOWN_MAX]
                ],
            }


def age_seconds(since_ns: int) -> float:
    """Return how long ago a time was."""
    return max(0, clock.now_ns() - since_ns) / clock.NS
