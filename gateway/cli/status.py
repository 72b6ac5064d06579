"""`spillway status`: shows the gateway's state to a person or (--json) to a program.

It works while the gateway is down: it reads the database, the disk, the bucket and the files in
run/, and asks no process.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gateway import clock, config, state
from gateway.cli import backlog, cached, checkpoints, promote, retention, trash
from gateway.cli.units import duration, size
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import BucketError, NamespaceError, UserError
from gateway.namespace import space as space_report
from gateway.settings import Settings
from gateway.text import shown

HEALTHY = 0
NEEDS_A_PERSON = 1
FAILURES_SHOWN = 3
STUCK_SHOWN = 5
PROBE_SECONDS = 5.0
"""The time that the bucket has to answer."""
QUIET_TEXT = "0.1 s"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the facts. Returns 0 if the gateway is healthy, 1 if a person must act.

    Raises: UserError when configuration or database cannot be used.
    """
    facts = gather(config.load(args.config))
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        for label, value in lines(facts):
            print(f"{label:<12}{value}".rstrip())
    return HEALTHY if facts["healthy"] else NEEDS_A_PERSON


def gather(settings: Settings) -> dict[str, Any]:
    """Return all facts. The names of the keys have the units. Raises UserError."""
    waiting = backlog.measure(settings)
    oldest = waiting.oldest
    processes = _processes(settings)
    bucket = _bucket(settings)
    drain = _drain(settings)
    alive = all(entry["alive"] for entry in processes.values())
    # Credentials that may list but not write pass this check. Only the drain notices.
    refused = drain is not None and drain["alive"] and _part(drain, "bucket")["state"] == "refused"
    space = state.read(settings, space_report.REPORT) if processes["ganesha"]["alive"] else None
    full = space is not None and space.get("level") == "full"
    cache = cached.gather(settings)
    catalogue = checkpoints.gather(settings)
    is_well = not refused and not full and not waiting.stuck and not cached.damaged(cache)
    is_well = is_well and not catalogue["alarms"]
    return {
        "healthy": alive and bucket["reachable"] and is_well,
        "config": str(settings.source),
        "data_dir": str(settings.data_dir),
        "processes": processes,
        "bucket": bucket,
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
        "queued": {"deletions": waiting.deletions, "moves": waiting.moves},
        "cache": cache,
        "catalogue": catalogue,
        "retention": retention.gather(settings),
        "trash": trash.gather(settings),
        "promotions": promote.gather(settings),
        "disk": _disk(settings),
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
    for name in ("ganesha", "drain", "cache", "checkpoints"):
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
            found[name]["running_seconds"] = _age_seconds(entry.get("started_ns"))
    return found


def _up_phase(up: dict[str, Any] | None) -> str | None:
    if up is None or state.is_of_services(up):
        return "units of systemd"
    return up.get("state")


def _age_seconds(since_ns: Any) -> float | None:
    if not isinstance(since_ns, int) or since_ns <= 0:
        return None
    return round(max(0, clock.now_ns() - since_ns) / clock.NS, 1)


def _bucket(settings: Settings) -> dict[str, Any]:
    # The import is here because boto3 takes half a second to import, and `up` does not need it.
    from gateway.objectstore.s3 import S3Store

    try:
        # A person must not wait long for a bucket that accepts connections and never answers.
        read_seconds = min(PROBE_SECONDS, settings.bucket.read_timeout_seconds)
        connect_seconds = min(PROBE_SECONDS, settings.bucket.connect_timeout_seconds)
        probed = replace(
            settings.bucket,
            read_timeout_seconds=read_seconds,
            connect_timeout_seconds=connect_seconds,
        )
        S3Store(replace(settings, bucket=probed), attempts=1).check()
        error = None
    except BucketError as exc:
        error = str(exc)
    return {
        "name": settings.bucket.name,
        "endpoint_url": settings.bucket.endpoint_url,
        "prefix": settings.bucket.prefix,
        "reachable": error is None,
        "error": error,
        "checksum": _checksum(settings),
    }


def _checksum(settings: Settings) -> dict[str, str | None]:
    """Which checksum goes with what is sent, and who said so. Raises UserError."""
    # Here, because awscrt takes a tenth of a second to import.
    from gateway.drain import endpoint

    chosen = endpoint.configured(settings.bucket)
    if chosen is not None:
        return {"kind": chosen, "from": "configuration"}
    database = Database(settings.database_url)
    try:
        with database.reader() as connection:
            kind = endpoint.known(Session(connection, database.dialect), settings.bucket)
    except NamespaceError as exc:
        raise UserError(f"cannot read the database {database.url}: {exc}") from None
    finally:
        database.close()
    return {"kind": kind, "from": None if kind is None else "store"}


def _drain(settings: Settings) -> dict[str, Any] | None:
    """Return the drain's last report and whether the drain runs, or None without a report."""
    found = state.read(settings, state.DRAIN)
    return None if found is None else {**found, "alive": state.alive(found)}


def _part(report: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the drain's report. A drain that just started has not filled it."""
    found = report.get(name)
    return found if isinstance(found, dict) else {"state": "unknown", "error": None}


def _disk(settings: Settings) -> dict[str, Any]:
    try:
        found = os.statvfs(settings.data_dir)
    except OSError as exc:
        raise UserError(
            f"cannot look at {settings.data_dir}: {exc.strerror}: run: spillway init "
            f"--config {settings.source}"
        ) from None
    total_bytes = found.f_blocks * found.f_frsize
    return {
        "path": str(settings.data_dir),
        "total_bytes": total_bytes,
        "used_bytes": total_bytes - found.f_bfree * found.f_frsize,
        # The blocks that are reserved for root do not count.
        "free_bytes": found.f_bavail * found.f_frsize,
    }


def lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line, for a person, from the facts of ``gather``."""
    yield "gateway", "healthy" if facts["healthy"] else "NEEDS ATTENTION"
    for name, entry in facts["processes"].items():
        yield name, _process_text(entry)
    bucket = facts["bucket"]
    where = bucket["name"] + (f"/{bucket['prefix']}" if bucket["prefix"] else "")
    where += f" at {bucket['endpoint_url']}" if bucket["endpoint_url"] else ""
    reached = "reachable" if bucket["reachable"] else f"NOT USABLE: {bucket['error']}"
    yield "bucket", f"{where}: {reached}"
    yield "checksum", _checksum_text(bucket["checksum"])
    yield from _drain_lines(facts["drain"])
    dirty = facts["dirty"]
    text = _counted(dirty["files"], "file", dirty["bytes"])
    if dirty["open_for_writing_files"]:
        open_files, open_bytes = dirty["open_for_writing_files"], dirty["open_for_writing_bytes"]
        text += f"; of these open for writing: {_counted(open_files, 'file', open_bytes)}"
    yield "not drained", text
    if (oldest := dirty["oldest"]) is not None:
        age, length = duration(oldest["age_seconds"]), size(oldest["size_bytes"])
        yield "oldest", f"{oldest['path']}, {length}, waiting for {age}"
    for one in facts["stuck"]["first"]:
        yield "stuck", f"{one['path']}: {one['reason']}"
    if (more := facts["stuck"]["files"] - len(facts["stuck"]["first"])) > 0:
        yield "stuck", f"and {more} more: spillway queue"
    yield "queued", f"deletions {facts['queued']['deletions']}, moves {facts['queued']['moves']}"
    yield from checkpoints.lines(facts["catalogue"])
    yield from retention.status_lines(facts["retention"])
    yield from trash.lines(facts["trash"])
    yield from promote.line(facts["promotions"])
    disk = facts["disk"]
    share = 100 * disk["used_bytes"] / disk["total_bytes"] if disk["total_bytes"] else 0.0
    yield (
        "disk",
        f"{size(disk['used_bytes'])} used ({share:.0f} %), {size(disk['free_bytes'])} free "
        f"at {disk['path']}",
    )
    yield from cached.lines(facts["cache"], share / 100)
    if facts["space"] is not None:
        yield "space", _space_text(facts["space"])


def _checksum_text(checksum: dict[str, str | None]) -> str:
    if checksum["kind"] is None:
        return "md5, until the store was asked whether it verifies a newer one"
    how = "as configured" if checksum["from"] == "configuration" else "the best the store verifies"
    return f"{checksum['kind']}, {how}"


def _space_text(space: dict[str, Any]) -> str:
    headroom_bytes = space["headroom_bytes"]
    text = "not known yet"  # the server has just started
    if headroom_bytes is not None:
        text = f"{size(headroom_bytes)} until nothing more is accepted"
    if space["dirty_limit_bytes"]:
        text += f"; dirty limit {size(space['dirty_limit_bytes'])}"
    for_long = duration(_age_seconds(space["since_ns"]) or 0)
    if space["level"] == "slow":
        return f"SLOWED for {for_long}: {text}; see that the drain keeps up, or delete files"
    if space["level"] == "full":
        return f"FULL for {for_long}: {text}; delete files, or raise the limit or the disk"
    return text


def _process_text(entry: dict[str, Any]) -> str:
    if entry["alive"]:
        text = f"{entry['phase']}, pid {entry['pid']}" if entry["pid"] else str(entry["phase"])
        if (seconds := entry.get("running_seconds")) is not None:
            text += f", for {duration(seconds)}"
    else:
        text = "NOT RUNNING"
    if entry.get("restarts"):
        times = "once" if entry["restarts"] == 1 else f"{entry['restarts']} times"
        text += f", restarted {times}"
    if entry.get("last_exit"):
        text += f", last end: {entry['last_exit']}"
    return text


def _drain_lines(drain: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if drain is None:
        yield "draining", "the drain has not reported yet"
        return
    if not drain["alive"]:
        yield "draining", "stopped"
        return
    uploads = drain.get("uploads", [])
    done_bytes = sum(upload["done_bytes"] for upload in uploads)
    total_bytes = sum(upload["total_bytes"] for upload in uploads)
    text = f"{_counted(len(uploads), 'upload', total_bytes)}, {size(done_bytes)} sent"
    bucket = _part(drain, "bucket")
    text = text if uploads else "nothing is being uploaded"
    if bucket["state"] in ("unreachable", "refused"):
        text += f"; bucket {bucket['state']} for {duration(_age_seconds(bucket['since_ns']) or 0)}"
        text += f": {shown(bucket['error'] or 'no reason known')}"
    yield "draining", text
    if restless := drain.get("restless_files", 0):
        what = "1 open file is" if restless == 1 else f"{restless} open files are"
        yield "snapshots", f"{what} written without a pause of {QUIET_TEXT}: not in the bucket"
    for failure in drain.get("failures", [])[-FAILURES_SHOWN:]:
        what, why = shown(failure["job"]), shown(failure["error"])
        yield "failing", f"{what}, {failure['tries']} tries: {why}"


def _counted(count: int, noun: str, size_bytes: int) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}, {size(size_bytes)}"
