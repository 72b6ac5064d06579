"""Draws the pauses between tries of what failed."""

from __future__ import annotations

import random

FIRST_PAUSE_SECONDS = 0.5
DOUBLINGS_MAX = 30


def jittered_seconds(tries: int, most_seconds: float) -> float:
    """Draw a pause before the next try, up to a bound that doubles with each try."""
    bound = min(most_seconds, FIRST_PAUSE_SECONDS * 2.0 ** min(tries, DOUBLINGS_MAX))
    return random.uniform(0.05 * bound, bound)
