"""Times the steps of a long test, and says how long each took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def timed(name: str, step: Callable[[], T]) -> T:
    """Do a step and print its name and time. Returns what the step returns."""
    began = time.monotonic()
    result = step()
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return result
