"""How the bucket is doing, and when to ask it again.

    UNKNOWN ──check──▶ REACHABLE ──a job got no answer──▶ DOUBTED ──check──▶ REACHABLE
                           ▲                                 └──check fails──▶ UNREACHABLE
                           ├──────────────check──────────────────────────────────┘
                           └──such a job works, or none is due── ON_TRIAL ◀──check── REFUSED

One job without an answer proves nothing about the bucket, so it only raises doubt: one object that
the store chokes on must not stop the others. A check that passes does not end REFUSED either:
credentials that may list may still not write. So a single job, of the kind that was refused, is let
through at a time, and the others wait.

Pauses double up to the longest, with full jitter; tries go on for ever.
"""

from __future__ import annotations

import logging
import threading
from enum import Enum
from typing import Any

from gateway import clock
from gateway.drain.plan import Kind
from gateway.drain.retries import DOUBLINGS_MAX, jittered_seconds
from gateway.errors import StoreRefused

log = logging.getLogger("drain")


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
        self._refused: Kind | None = None
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

    def admits(self, kind: Kind) -> bool:
        """Whether a job of a kind may run while no other does; on trial only what was refused."""
        on_trial = self.state == BucketState.ON_TRIAL
        return not on_trial or self._refused in (None, kind)

    def worked(self, kind: Kind | None = None) -> None:
        """A job did its work; None: there is none to do."""
        with self._lock:
            enough = kind is None or self._refused in (None, kind)
            if self.state == BucketState.ON_TRIAL and enough:
                self._enter(BucketState.REACHABLE)

    def doubted(self) -> None:
        """A job got no answer."""
        with self._lock:
            if self.state == BucketState.REACHABLE:
                self._enter(BucketState.DOUBTED)

    def failed(self, exc: Exception, kind: Kind | None = None) -> None:
        """A check failed (kind: None), or a job was refused as any of its kind would be."""
        with self._lock:
            self.error = str(exc)
            self._refused = self._refused if kind is None else kind
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
            self._tries, self._retry_at, self.error, self._refused = 0, 0.0, None, None
        after = state.shown
        if after == before:
            return
        self._since_ns = clock.now_ns()
        if state == BucketState.REACHABLE:
            again = "" if before == BucketState.UNKNOWN.shown else " again"
            log.info("bucket %s is reachable%s", self._bucket, again)
        else:
            log.error("bucket %s is %s: %s", self._bucket, after, self.error)
