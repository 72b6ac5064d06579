"""State of the bucket as the drain sees it, and the time of the next check.

    UNKNOWN ──check──▶ REACHABLE ──a job got no answer──▶ UNCONFIRMED ──check──▶ REACHABLE
                           ▲                                 └──check fails──▶ UNREACHABLE
                           ├──────────────check──────────────────────────────────┘
                           └──such a job works, or none is due── ON_TRIAL ◀──check── REFUSED

One job without an answer proves nothing about the bucket, so it only has the bucket checked: one
object that the store cannot process must not stop the others. A check that passes does not end
REFUSED either: credentials that may list may still be unable to write.

A refusal of one key is no refusal of the kind (retries.py). It only has the bucket checked. A
refusal of a kind stops jobs of this kind only: where there is no space for uploads, deletions must
continue. On trial, one job of the refused kinds may run at a time. So a refusal costs a handful of
requests for each pause (gateway.objectstore.circuit_breaker), however much there is to do.
"""

from __future__ import annotations

import logging
import threading
from enum import Enum
from typing import Any

from gateway.common import clock
from gateway.common.errors import OtherOwner, SignAwaited, StoreRefused
from gateway.drain.job import WorkKind
from gateway.objectstore.circuit_breaker import CircuitBreaker

log = logging.getLogger("drain")


class BucketState(Enum):
    """The state of the bucket, as far as it is known."""

    UNKNOWN = "unknown"
    """The bucket was not asked yet."""
    REACHABLE = "reachable"
    """The bucket answers."""
    UNCONFIRMED = "unconfirmed"
    """A job got no answer, and a check decides. Shown as reachable."""
    UNREACHABLE = "unreachable"
    """The bucket does not answer, or answers that it cannot now. It is tried again soon."""
    REFUSED = "refused"
    """A person must act. The bucket is tried again slowly."""
    ON_TRIAL = "on trial"
    """The bucket answers a check again. A job must show that it works. Shown as refused."""

    @property
    def shown(self) -> str:
        """The state as a person sees it. It leaves out what is not certain yet."""
        certain = {self.UNCONFIRMED: self.REACHABLE, self.ON_TRIAL: self.REFUSED}.get(self, self)
        return str(certain.value)


class BucketHealth:
    """The state of the bucket. Safe to use from several threads.

    Args:
        bucket: its name.
        retry_max_seconds: the longest pause.
    """

    def __init__(self, bucket: str, retry_max_seconds: float) -> None:
        self._bucket = bucket
        self._breaker = CircuitBreaker(retry_max_seconds)
        self._lock = threading.Lock()
        self._since_ns = clock.now_ns()
        self._refused: set[WorkKind] = set()
        """The kinds of jobs that were refused. If it is empty in REFUSED, the check itself was
        refused."""
        self._trying: WorkKind | None = None
        self._is_taken = False
        self._is_awaited = False
        self.state = BucketState.UNKNOWN
        self.error: str | None = None

    def pause_seconds(self) -> float:
        """Return for how long what failed must not be tried again."""
        with self._lock:
            return self._breaker.pause_seconds()

    def needs_check(self) -> bool:
        """Return whether a check is due as soon as the pause is over."""
        return self.state not in (BucketState.REACHABLE, BucketState.ON_TRIAL)

    def stops_all(self) -> bool:
        """Return whether no job may run before a check has passed."""
        refused = self.state == BucketState.REFUSED and not self._refused
        return refused or self.state in (
            BucketState.UNKNOWN,
            BucketState.UNCONFIRMED,
            BucketState.UNREACHABLE,
        )

    def admits(self, kind: WorkKind) -> bool:
        """Return whether a job of a kind may run now."""
        if not kind.asks_bucket:
            return True
        with self._lock:
            if self.stops_all():
                return False
            on_trial = self.state == BucketState.ON_TRIAL and self._trying is None
            return kind not in self._refused or on_trial

    def stops(self, kind: WorkKind) -> bool:
        """Return whether a job of a kind that has not begun yet must not run any more."""
        if not kind.asks_bucket:
            return False
        with self._lock:
            return self.stops_all() or (self.state == BucketState.REFUSED and kind in self._refused)

    def is_refused(self, kind: WorkKind) -> bool:
        """Return whether jobs of a kind are refused, or on trial."""
        with self._lock:
            return kind in self._refused

    def begun(self, kind: WorkKind) -> None:
        """Note that a job that was admitted is about to run."""
        with self._lock:
            if kind in self._refused:
                self._trying = kind

    def ended(self, kind: WorkKind) -> None:
        """Note that a job has ended, in whatever way."""
        with self._lock:
            if kind == self._trying:
                self._trying = None

    def checked(self) -> None:
        """Note that a check passed."""
        with self._lock:
            refused = self.state == BucketState.REFUSED
            self._enter(BucketState.ON_TRIAL if refused else BucketState.REACHABLE)

    def worked(self, kind: WorkKind | None = None) -> None:
        """Note that a job did its work, or (None) that there is no work."""
        with self._lock:
            on_trial = self.state == BucketState.ON_TRIAL
            if kind is None and not on_trial:
                return
            # In one batch, some jobs may have been refused and others not. REFUSED without a kind
            # would stop all of them.
            is_last = on_trial or bool(self._refused)
            self._refused = set() if kind is None else self._refused - {kind}
            if is_last and not self._refused:
                self._enter(BucketState.REACHABLE)

    def unanswered(self) -> None:
        """Note that a job got no answer."""
        with self._lock:
            if self.state == BucketState.REACHABLE:
                self._enter(BucketState.UNCONFIRMED)

    def failed(self, exc: Exception, kind: WorkKind | None = None) -> None:
        """Note that a check failed (kind None), or that a job was refused as any of its kind would
        be."""
        with self._lock:
            self.error = str(exc)
            self._is_taken = isinstance(exc, OtherOwner)
            self._is_awaited = isinstance(exc, SignAwaited)
            refused = isinstance(exc, StoreRefused)
            if kind is None:
                self._refused.clear()
            else:
                self._refused.add(kind)
            self._breaker.failed(is_slow=refused)
            self._enter(BucketState.REFUSED if refused else BucketState.UNREACHABLE)

    def shown(self) -> dict[str, Any]:
        """Return what ``spillway status`` shows."""
        with self._lock:
            return {
                "name": self._bucket,
                "state": self.state.shown,
                "error": self.error,
                # Whether another gateway has the bucket, or it is not known whose it is.
                "taken": self._is_taken,
                # Whether a copy of this gateway may still run, and is waited for a sign.
                "awaited": self._is_awaited,
                "refused": sorted(kind.value for kind in self._refused),
                "since_ns": self._since_ns,
            }

    def _enter(self, state: BucketState) -> None:
        before = self.state.shown
        self.state = state
        if state == BucketState.REACHABLE:
            self._breaker.reset()
            self.error = None
            self._is_taken = self._is_awaited = False
            self._refused.clear()
        after = state.shown
        if after == before:
            return
        self._since_ns = clock.now_ns()
        if state == BucketState.REACHABLE:
            again = "" if before == BucketState.UNKNOWN.shown else " again"
            log.info("bucket %s is reachable%s", self._bucket, again)
        elif self._is_awaited:
            log.warning("%s", self.error)
        else:
            log.error("bucket %s is %s: %s", self._bucket, after, self.error)
