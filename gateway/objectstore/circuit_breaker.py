"""Circuit breaker for the bucket: tells whether it answers, and when it is asked again."""

from __future__ import annotations

from gateway.common import clock
from gateway.common.retry import DOUBLINGS_MAX, jittered_seconds


class CircuitBreaker:
    """Failures of the bucket in a row, and the pause after them. Not safe for several threads.

    Pauses double up to the longest, with full jitter. Tries never end.

    Args:
        pause_max_seconds: The longest pause.
    """

    def __init__(self, pause_max_seconds: float) -> None:
        self._pause_max_seconds = pause_max_seconds
        self._retry_at = 0.0
        self.failures = 0

    def pause_seconds(self) -> float:
        """Return for how long the bucket must not be asked again."""
        return max(0.0, self._retry_at - clock.monotonic_seconds())

    def failed(self, *, is_slow: bool = False) -> None:
        """Note that the bucket failed.

        Args:
            is_slow: Whether the pause is from the longest at once: a person must act.
        """
        if self.pause_seconds() > 0:
            # What was under way together is one failure, and must not prolong the pause.
            return
        self.failures += 1
        pause_seconds = jittered_seconds(
            DOUBLINGS_MAX if is_slow else self.failures, self._pause_max_seconds
        )
        self._retry_at = clock.monotonic_seconds() + pause_seconds

    def worked(self) -> None:
        """Note that the bucket answered. Failures before the end of a pause still count as one."""
        self.failures = 0

    def reset(self) -> None:
        """Forget the failures and their pause: the next failure is a new one."""
        self.failures, self._retry_at = 0, 0.0
