"""Waiting for something to become true, with a deadline: no test sleeps for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.05


def until(check: Callable[[], T | None], what: str, timeout_seconds: float = 30.0) -> T:
    """Poll until ``check`` gives something true, and return it.

    Raises AssertionError, naming ``what``, when the time is over.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        if found := check():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_seconds:g} s in vain for {what}")
        time.sleep(POLL_SECONDS)
