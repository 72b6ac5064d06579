"""Waits for a condition with a deadline, so that no test sleeps for a guessed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.05


def until(check: Callable[[], T | None], what: str, timeout_seconds: float = 30.0) -> T:
    """Poll until ``check`` returns a true value, and return this value.

    Raises AssertionError, which names ``what``, when the time is over.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        if found := check():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_seconds:g} s for {what}")
        time.sleep(POLL_SECONDS)


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Have something done in a thread, and wait for its end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
