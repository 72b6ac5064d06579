"""The state of the whole gateway: the facts of ``spillway status``.

They come from the database, the disk and the files in run/. No process is asked, so they can be had
while the gateway is down.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from gateway import clock, state
from gateway.control import (
    backlog,
    bucket,
    cached,
    checkpoints,
    limits,
    retention,
    sharednames,
    trash,
)
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.opening import opened, reading
from gateway.errors import UserError
from gateway.namespace import space as space_report
from gateway.namespace import trouble
from gateway.promotion import store as promotions
from gateway.settings import Settings
from gateway.text import shown
from gateway.trash.trash import Trash

STUCK_SHOWN = 5
FAILING_SECONDS = 86400
"""For so long after it lost a local copy, a disk is one that a person must look at."""
DESCRIPTORS_SECONDS = 600
"""For so long after it had no descriptor for a data file, the NFS server is said to lack them."""
UNITS = "units of systemd"
"""The phase of ``up`` where each process is a service of its own."""


def gather(settings: Settings) -> dict[str, Any]:
    """Return all facts, also those that take long: the bucket is asked, and files are counted.

    The names of the keys have the units. Raises SchemaError, UserError.
    """
    with opened(settings.database_url) as database:
        facts = gather_quickly(settings, database)
        facts["bucket"] |= bucket.probe(settings) | {
            "checksum": bucket.checksum(settings, database)
        }
        facts["healthy"] = facts["healthy"] and facts["bucket"]["reachable"]
        with reading(database) as session:
            return counted(facts, cached.count(session))


def counted(facts: dict[str, Any], counts: dict[str, Any]) -> dict[str, Any]:
    """Return facts with the files that were counted. Parameters: counts, of ``cached.count``, or
    with None in place of each before files are counted."""
    other_bytes = None
    if (resident := counts["resident"]) is not None:
        # The row of a file that is being written has the bytes of its last close.
        ours = resident["bytes"] + facts["dirty"]["open_for_writing_bytes"]
        other_bytes = max(0, facts["disk"]["used_bytes"] - ours)
    disk = {**facts["disk"], "other_bytes": other_bytes}
    return {**facts, "disk": disk, "cache": {**facts["cache"], **counts}}


def gather_quickly(settings: Settings, database: Database) -> dict[str, Any]:
    """Return the facts that are had at once. ``bucket`` is only what is configured: the drain's
    report says whether the bucket answers. Raises UserError."""
    drain = _drain(settings)
    drains = drain if drain is not None and drain["alive"] else None
    with reading(database) as session:
        held = backlog.held(settings, session, drains)
        waiting = backlog.measure(settings, session)
        cache = cached.gather(settings, session)
        catalogue = checkpoints.gather(settings, session)
        policies = retention.gather(session)
        promoted = Counter(one.state for one in promotions.every(session))
        trashed = trash.summary(Trash(settings, database))
        lost = _lost_copies(settings, session)
    oldest = waiting.oldest
    processes = _processes(settings)
    alive = all(entry["alive"] for entry in processes.values()) and serves(processes)
    # Credentials that may list but not write pass a probe. Only the drain notices.
    refused = drains is not None and part(drains, "bucket")["state"] == "refused"
    space = state.read(settings, space_report.REPORT) if processes["ganesha"]["alive"] else None
    full = space is not None and space.get("level") == "full"
    is_well = not refused and not full and not waiting.stuck and not cached.damaged(cache)
    is_well = is_well and not held["files"] and not lost["is_recent"]
    has_descriptors = _has_descriptors(settings)
    shared = sharednames.gather(settings)
    return {
        "healthy": alive and is_well and has_descriptors and not catalogue["alarms"] and not shared,
        "config": str(settings.source),
        "data_dir": str(settings.data_dir),
        "processes": processes,
        "bucket": bucket.facts(settings),
        "drain": drain,
        "dirty": {
            "files": waiting.dirty_files,
            "bytes": waiting.dirty_bytes,
            "open_for_writing_files": waiting.open_files,
            "open_for_writing_bytes": waiting.open_bytes,
            "oldest": None if oldest is None else oldest._asdict(),
        },
        "stuck": {
            "files": len(waiting.stuck),
            "first": [one._asdict() for one in waiting.stuck[:STUCK_SHOWN]],
        },
        "held": held,
        "queued": {"deletions": waiting.deletions, "moves": waiting.moves},
        "unsettled": waiting.unsettled._asdict(),
        "cache": cache,
        "catalogue": catalogue,
        "retention": policies,
        "trash": trashed,
        "promotions": {str(one): promoted[one] for one in promotions.State},
        **limits.gather(settings),
        "shared_names": shared,
        "disk": _disk(settings) | {"lost_copies": lost, "has_descriptors": has_descriptors},
        "space": space,
    }


def _processes(settings: Settings) -> dict[str, dict[str, Any]]:
    up = state.read(settings, state.UP)
    supervisor_alive = state.is_supervised(up)
    found: dict[str, dict[str, Any]] = {
        "up": {
            "alive": supervisor_alive,
            "pid": up.get("pid") if up is not None and supervisor_alive else None,
            "phase": _up_phase(up) if supervisor_alive else "stopped",
        }
    }
    entries = state.children(up)
    names = ("ganesha", "drain", "cache", "checkpoints")
    for name in (*names, "admin") if settings.admin.enabled else names:
        entry = entries.get(name, {})
        lives = state.alive(entry)
        found[name] = {
            "alive": lives,
            "pid": entry.get("pid") if lives else None,
            # The last report of a dead supervisor does not tell the state of its children.
            "phase": entry.get("phase", "stopped") if supervisor_alive else "stopped",
            "restarts": entry.get("restarts", 0) if supervisor_alive else 0,
            "last_exit": entry.get("last_exit", "") if supervisor_alive else "",
        }
        if lives:
            found[name]["running_seconds"] = age_seconds(entry.get("started_ns"))
    return found


def serves(processes: dict[str, dict[str, Any]]) -> bool:
    """Return whether the NFS server was seen to serve since its start."""
    return bool(processes["ganesha"]["phase"] == "ready")


def _up_phase(up: dict[str, Any] | None) -> str | None:
    if up is None or state.is_of_services(up):
        return UNITS
    return up.get("state")


def age_seconds(since_ns: Any) -> float | None:
    """Return the time since a moment of a report, or None if it is no moment."""
    if not isinstance(since_ns, int) or since_ns <= 0:
        return None
    return round(max(0, clock.now_ns() - since_ns) / clock.NS, 1)


def _drain(settings: Settings) -> dict[str, Any] | None:
    """Return the drain's last report and whether the drain runs, or None without a report."""
    found = state.read(settings, state.DRAIN)
    return None if found is None else {**found, "alive": state.alive(found)}


def part(report: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the drain's report. A drain that just started has not filled it."""
    found = report.get(name)
    return found if isinstance(found, dict) else {"state": "unknown", "error": None}


def _lost_copies(settings: Settings, session: Session) -> dict[str, Any]:
    """Return how many local copies the disk has lost of files that the bucket has, and the last."""
    report = state.read(settings, trouble.REPORT) or {}
    last = report.get("last_lost") or {}
    seconds = age_seconds(last.get("at_ns"))
    if seconds is None:
        return {"files": 0, "last": None, "is_recent": False}
    path = backlog.path_in_export(session, last["ino"], settings.nfs.export)
    return {
        "files": report["lost_copies"],
        "last": {"path": path, "reason": shown(str(last["reason"])), "age_seconds": seconds},
        "is_recent": seconds < FAILING_SECONDS,
    }


def _has_descriptors(settings: Settings) -> bool:
    """Return whether the NFS server had descriptors for all data files lately."""
    report = state.read(settings, trouble.REPORT) or {}
    seconds = age_seconds(report.get("refused_ns"))
    return seconds is None or seconds > DESCRIPTORS_SECONDS


def _disk(settings: Settings) -> dict[str, Any]:
    """Return the facts of the disk of the data files, which may be another than the one of the
    data directory."""
    path = settings.data_dir
    try:
        if settings.files_dir.is_dir() and settings.files_dir.stat().st_dev != path.stat().st_dev:
            path = settings.files_dir
        found = os.statvfs(path)
    except OSError as exc:
        raise UserError(
            f"cannot look at {path}: {exc.strerror}: mount its disk or correct gateway.data_dir"
        ) from None
    total_bytes = found.f_blocks * found.f_frsize
    return {
        "path": str(path),
        "total_bytes": total_bytes,
        "used_bytes": total_bytes - found.f_bfree * found.f_frsize,
        # The blocks that are reserved for root do not count.
        "free_bytes": found.f_bavail * found.f_frsize,
    }
