"""Failpoints: named places where a test kills the process, as a power cut would.

``SPILLWAY_FAILPOINT`` or ``arm`` arms a name. While no name is armed, a place does nothing and
costs almost nothing. Every write of an operation is a place of its own: ``<operation>.<count>``.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

BEFORE_COMMIT = "writer.before-commit"
"""Everything is written and nothing is durable. After the kill no change may be there."""
AFTER_COMMIT = "writer.after-commit"
"""The changes are durable and not answered. After the kill all of them must be there."""
RECLAIM_BEFORE_UNLINK = "reclaim.before-unlink"
"""The row is deleted and the data file is not. The file costs space until fsck moves it away."""
RECOVER_AFTER_SEAL = "recover.after-seal"
"""Recovery itself is interrupted. The next start must find the rest of the work."""

DRAIN_REQUEST = "drain.{operation}.{when}"
"""A place before the drain sends a request of that operation (boto's name), and one after its
answer. Hits are counted. Every step in the bucket lies between two of these places."""
DRAIN_COMMIT = "drain.commit.{when}"
"""A place before a transaction of the drain commits, and one after. Hits are counted. Every step
of the drain in the database lies between two of these places."""
CATALOGUE_COMMIT = "catalogue.commit.{when}"
"""A place before a transaction of the catalogue commits, and one after. Hits are counted. The
process that comes next must make the rows that the namespace gives."""
MANIFEST = "manifest.{when}"
"""Places around the requests for a manifest, after each of: intent, put, doomed, deleted. Hits are
counted. The process that comes next must leave a manifest exactly for what is durable."""
RETENTION_ACTION = "retention.action.{when}"
"""A place after an action of retention is recorded (``begun``), after it is done (``done``) and
after its end is recorded (``ended``). Hits are counted. The process that comes next must do what is
left of the plan, and nothing twice."""
TRASH_STEP = "trash.{what}"
"""A place after each step of put, undelete and remove. Hits are counted. Afterwards the checkpoint
is at its path or in the trash as a whole, or is being removed, and the next pass completes it."""
RESTORE = "restore"
"""A place after each step of a restore, and after each segment that it loads. Hits are counted. The
restore that comes next must give the same, and say what is lost."""
SCRUB = "scrub.{when}"
"""A place after damage was found and confirmed (``found``), one after it was healed or recorded
(``healed``), and one after the position was saved (``saved``). Hits are counted. The pass that
comes next must find what is left, and nothing twice."""
IMPORT = "import.{when}"
"""Places of an import: before a transaction is committed (``rows``) and after it (``told``, when
the NFS server has been told), before changed files are put in their places (``changed``), and at
the end of a listing (``listed``). Hits are counted. The process that comes next must make the rest,
and nothing twice."""

DRILL = "drill.{when}"
"""A place after the drill's reader of the journal began (``begun``), one after the names were
loaded (``loaded``), and one after they were compared (``compared``). The drill that comes next, or
the next start, must leave neither the reader nor the scratch database."""

_armed = os.environ.get("SPILLWAY_FAILPOINT", "")


def arm(name: str) -> None:
    """Kill the process at the next hit of a name. An empty name disarms."""
    global _armed
    _armed = name


def armed() -> bool:
    """Return whether any place is armed. A caller that must compose a name asks first."""
    return bool(_armed)


_counts: Counter[str] = Counter()


def hit_counted(name: str) -> None:
    """Pass a place and count the hit: the names are ``<name>.1``, ``<name>.2``, ..."""
    if _armed:
        _counts[name] += 1
        hit(f"{name}.{_counts[name]}")


def hit(name: str) -> None:
    """Pass a place: kill the process if its name is armed."""
    if _armed and name == _armed:
        os.kill(os.getpid(), signal.SIGKILL)
