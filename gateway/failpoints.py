"""Named places where a test kills the process, as a power cut would.

A name is armed with ``SPILLWAY_FAILPOINT`` or ``arm``. Nothing happens, and next to nothing is
spent, while none is. Every write of an operation is a place of its own: ``<operation>.<count>``.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

BEFORE_COMMIT = "writer.before-commit"
"""Everything is written, nothing is durable: none of it may be there afterwards."""
AFTER_COMMIT = "writer.after-commit"
"""Durable but not answered: all of it must be there afterwards."""
RECLAIM_BEFORE_UNLINK = "reclaim.before-unlink"
"""The row is gone, the data file is not: it costs space until fsck moves it away."""
RECOVER_AFTER_SEAL = "recover.after-seal"
"""Recovery itself is interrupted: the next start must find the rest."""

DRAIN_REQUEST = "drain.{operation}.{when}"
"""Before the drain sends a request of that operation (boto's name), and after its answer; counted.
Every step in the bucket lies between two of them, every step in the database between two of: """
DRAIN_COMMIT = "drain.commit.{when}"
"""Before a transaction of the drain commits, and after; counted."""

_armed = os.environ.get("SPILLWAY_FAILPOINT", "")


def arm(name: str) -> None:
    """Kill the process at the next hit of a name; empty: at none."""
    global _armed
    _armed = name


def armed() -> bool:
    """Whether any place is armed: callers that must compose a name ask first."""
    return bool(_armed)


_counts: Counter[str] = Counter()


def hit_counted(name: str) -> None:
    """A place is passed for the first, second, ... time: ``<name>.1``, ``<name>.2``, ..."""
    if _armed:
        _counts[name] += 1
        hit(f"{name}.{_counts[name]}")


def hit(name: str) -> None:
    """A place is passed."""
    if _armed and name == _armed:
        os.kill(os.getpid(), signal.SIGKILL)
