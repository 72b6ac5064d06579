"""Tells since when nothing has changed in a checkpoint, by the monotonic clock.

A clock that jumps must not make a save quiet whose last rank is late. So the time counts from the
moment at which this process first saw the checkpoint as it is, and a restart counts it again.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway import clock

JUMP_NS = clock.NS
"""A clock that differs by more from the time that has passed was set."""


class _Seen(NamedTuple):
    evidence: str
    wall_ns: int
    monotonic_seconds: float


class Quiet:
    """The checkpoints that were seen, by inode. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def since_ns(self, ino: int, evidence: str) -> int:
        """Return the time since which a checkpoint is known to be as it is.

        Parameters: evidence, which tells it from what it was before.
        """
        wall_ns, monotonic_seconds = clock.now_ns(), clock.monotonic_seconds()
        seen = self._seen.get(ino)
        if seen is None or seen.evidence != evidence:
            seen = _Seen(evidence, wall_ns, monotonic_seconds)
        passed_ns = int((monotonic_seconds - seen.monotonic_seconds) * clock.NS)
        if abs(wall_ns - seen.wall_ns - passed_ns) > JUMP_NS:
            seen = _Seen(evidence, wall_ns - passed_ns, seen.monotonic_seconds)
        self._seen[ino] = seen
        return seen.wall_ns

    def forget(self, ino: int) -> None:
        """Forget a checkpoint that is none any more."""
        self._seen.pop(ino, None)
