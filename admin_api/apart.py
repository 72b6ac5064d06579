"""Threads apart from those of other requests: for probes, and for what waits for the bucket.

Requests have 40 threads. Those that ask a bucket which does not answer would have all of them, and
a probe would find no thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

PROBES = 2
BUCKET = 4

T = TypeVar("T")


class Threads:
    """The threads of one process, made in its event loop."""

    def __init__(self) -> None:
        self._probes = CapacityLimiter(PROBES)
        self._bucket = CapacityLimiter(BUCKET)

    async def probe(self, act: Callable[..., T], *given: object) -> T:
        """Return what a function returns that tells whether this machine is well."""
        return await to_thread.run_sync(partial(act, *given), limiter=self._probes)

    async def ask_bucket(self, act: Callable[..., T], *given: object) -> T:
        """Return what a function returns that asks the bucket."""
        return await to_thread.run_sync(partial(act, *given), limiter=self._bucket)


async def _threads(request: Request) -> Threads:
    found: Threads = request.app.state.threads
    return found


Apart = Annotated[Threads, Depends(_threads)]
"""The parameter of a route that needs such a thread."""
