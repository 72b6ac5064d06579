"""Places the checkpoints of a run on a line of time, for a drawing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.control.checkpoints import Checkpoint

MARGIN = 1.5
"""Per cent of the width that stay free at each end, so that no dot is cut."""


class Dot(NamedTuple):
    """A checkpoint on the line."""

    left: float
    """Per cent of the width."""
    checkpoint: Checkpoint


class Line(NamedTuple):
    """The dots of a run, the oldest first."""

    dots: Sequence[Dot]
    since_seconds: float
    """Age of the oldest one."""


def line_of(found: Sequence[Checkpoint]) -> Line:
    """Return the line of some checkpoints, from the oldest to now.

    What is being written is now.
    """
    ages = [one.age_seconds or 0.0 for one in found]
    longest = max(ages, default=0.0)
    span = 100 - 2 * MARGIN
    dots = [
        Dot(round(MARGIN + span * (1 - age / longest if longest else 1.0), 2), one)
        for age, one in zip(ages, found, strict=True)
    ]
    return Line(sorted(dots, key=lambda dot: dot.left), longest)
