"""How the bucket is doing, and when to try again: for the whole bucket and for single jobs.

    UNKNOWN ──check──▶ REACHABLE ──a job got no answer──▶ DOUBTED ──check──▶ REACHABLE
                           ▲                                 └──check fails──▶ UNREACHABLE
                           ├──────────────check──────────────────────────────────┘
                           └──a job works, or none is due── ON_TRIAL ◀──check── REFUSED

One job without an answer proves nothing about the bucket, so it only raises doubt: one object that
the store chokes on must not stop the others. A check that passes does not end REFUSED either:
credentials that may list may still not write.

Pauses double up to the longest, with full jitter; tries go on for ever.
"""

from __future__ import annotations

import logging
import random
import threading
from enum import Enum
from typing import Any

from gateway import clock
from gateway.errors import StoreRefused

log = logging.getLogger("drain")

FIRST_PAUSE_SECONDS = 0.5
RETRIES_KEPT = 10_000
DOUBLINGS_MAX = 30


class BucketState(Enum):
    """What is known of the bucket."""

    UNKNOWN = "unknown"
    """Not asked yet."""
    REACHABLE = "reachable"
    """It answers."""
    DOUBTED = "doubted"
    """A job got no answer; a check decides. Shown as reachable."""
    UNREACHABLE = "unreachable"
    """No answer, or one that says: not now. Tried again soon."""
    REFUSED = "refused"
    """A person must act. Tried again slowly."""
    ON_TRIAL = "on trial"
    """It answers a check again; a job must show that it works. Shown as refused."""

    @property
    def shown(self) -> str:
        """The state as a person sees it: what is not certain yet is not shown."""
        certain = {self.DOUBTED: self.REACHABLE, self.ON_TRIAL: self.REFUSED}.get(self, self)
        return str(certain.value)


class Health:
    """The state of the bucket. Safe to use from several threads.

    Parameters: bucket, its name; retry_max_seconds, the longest pause.
    """

    def __init__(self, bucket: str, retry_max_seconds: float) -> None:
        self._bucket = bucket
        self._retry_max_seconds = retry_max_seconds
        self._lock = threading.Lock()
        self._tries = 0
        self._retry_at = 0.0
        self._since_ns = clock.now_ns()
        self.state = BucketState.UNKNOWN
        self.error: str | None = None

    def pause_seconds(self) -> float:
        """How long nothing is to be asked of the bucket."""
        with self._lock:
            return max(0.0, self._retry_at - clock.monotonic_seconds())

    def needs_check(self) -> bool:
        """Whether a check must pass before jobs may run."""
        return self.state not in (BucketState.REACHABLE, BucketState.ON_TRIAL)

    def checked(self) -> None:
        """A check passed."""
        with self._lock:
            refused = self.state == BucketState.REFUSED
            self._enter(BucketState.ON_TRIAL if refused else BucketState.REACHABLE)

    def worked(self) -> None:
        """A job did its work, or there is none to do."""
        with self._lock:
            if self.state == BucketState.ON_TRIAL:
                self._enter(BucketState.REACHABLE)

    def doubted(self) -> None:
        """A job got no answer."""
        with self._lock:
            if self.state == BucketState.REACHABLE:
                self._enter(BucketState.DOUBTED)

    def failed(self, exc: Exception) -> None:
        """A check failed, or a job was refused as any would be."""
        with self._lock:
            self.error = str(exc)
            refused = isinstance(exc, StoreRefused)
            if clock.monotonic_seconds() >= self._retry_at:
                # Jobs that fail during the pause say nothing new; they must not prolong it.
                self._tries += 1
                self._retry_at = clock.monotonic_seconds() + jittered_seconds(
                    DOUBLINGS_MAX if refused else self._tries, self._retry_max_seconds
                )
            self._enter(BucketState.REFUSED if refused else BucketState.UNREACHABLE)

    def shown(self) -> dict[str, Any]:
        """What ``spillway status`` shows."""
        with self._lock:
            return {
                "name": self._bucket,
                "state": self.state.shown,
                "error": self.error,
                "since_ns": self._since_ns,
            }

    def _enter(self, state: BucketState) -> None:
        before = self.state.shown
        self.state = state
        if state == BucketState.REACHABLE:
            self._tries, self._retry_at, self.error = 0, 0.0, None
        after = state.shown
        if after == before:
            return
        self._since_ns = clock.now_ns()
        if state == BucketState.REACHABLE:
            again = "" if before == BucketState.UNKNOWN.shown else " again"
            log.info("bucket %s is reachable%s", self._bucket, again)
        else:
            log.error("bucket %s is %s: %s", self._bucket, after, self.error)


class Retries:
    """Jobs that failed, and when each may be tried again. Safe to use from several threads.

    Parameters: retry_max_seconds, the longest pause.
    """

    def __init__(self, retry_max_seconds: float) -> None:
        self._retry_max_seconds = retry_max_seconds
        self._lock = threading.Lock()
        self._failed: dict[str, tuple[int, float, str]] = {}

    def is_due(self, title: str) -> bool:
        with self._lock:
            found = self._failed.get(title)
        return found is None or found[1] <= clock.monotonic_seconds()

    def failed(self, title: str, error: str) -> None:
        """Count a failure and draw the pause before the next try."""
        with self._lock:
            tries = self._failed.pop(title, (0, 0.0, ""))[0] + 1
            pause = jittered_seconds(tries, self._retry_max_seconds)
            self._failed[title] = (tries, clock.monotonic_seconds() + pause, error)
            if len(self._failed) > RETRIES_KEPT:
                # The oldest: most are of files that are gone by now.
                self._failed.pop(next(iter(self._failed)))

    def worked(self, title: str) -> None:
        with self._lock:
            self._failed.pop(title, None)

    def shown(self, most: int) -> list[dict[str, Any]]:
        """The latest failures."""
        with self._lock:
            latest = list(self._failed.items())[-most:]
        return [
            {"job": title, "tries": tries, "error": error} for title, (tries, _, error) in latest
        ]


def jittered_seconds(tries: int, most_seconds: float) -> float:
    """A pause before the next try: anywhere up to a bound that doubles with each try."""
    bound = min(most_seconds, FIRST_PAUSE_SECONDS * 2.0 ** min(tries, DOUBLINGS_MAX))
    return random.uniform(0.05 * bound, bound)
