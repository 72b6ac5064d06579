"""Waits for a condition with a deadline, so that no test sleeps for a guessed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


@contextmanager
def background(work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Have something done in a thread until the body ends, or sets the event.

    Args:
        work: gets the event that tells it to stop.

    Raises:
        Exception: what the work raised, unless the body raised.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, stop)
        try:
            yield stop
        finally:
            stop.set()
    working.result()
