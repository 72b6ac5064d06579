"""`spillway status`: shows the gateway's state to a person or (--json) to a program.

It works while the gateway is down: it reads the database, the disk, the bucket and the files in
run/, and asks no process.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from gateway import config
from gateway.cli import cached, checkpoints, promote, retention, trash
from gateway.control import limits, sharednames
from gateway.control.status import age_seconds, gather, part
from gateway.text import shown
from gateway.units import duration, size

HEALTHY = 0
NEEDS_A_PERSON = 1
FAILURES_SHOWN = 3
QUIET_TEXT = "0.1 s"
OTHERS_SHARE = 0.1
"""The share of the disk from which on a person is told of bytes that no file has."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the facts. Returns 0 if the gateway is healthy, 1 if a person must act.

    Raises: UserError when configuration or database cannot be used.
    """
    return show(gather(config.load(args.config)), args.json)


def show(facts: dict[str, Any], as_json: bool) -> int:
    """Print the facts of ``gather``. Returns the exit status."""
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        for label, value in lines(facts):
            print(f"{label:<12}{value}".rstrip())
    return HEALTHY if facts["healthy"] else NEEDS_A_PERSON


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
    if (held := facts["held"])["files"]:
        first = held["first"][0] if held["first"] else None
        named = "" if first is None else f", as {first['path']} ({duration(first['age_seconds'])})"
        count = _counted(held["files"], "file", held["bytes"])
        yield "held", f"{count} HELD by drain.hold_patterns for over an hour{named}"
    yield "queued", f"deletions {facts['queued']['deletions']}, moves {facts['queued']['moves']}"
    if (unsettled := facts["unsettled"])["objects"]:
        yield "unsettled", _unsettled_text(**unsettled)
    yield from checkpoints.lines(facts["catalogue"])
    yield from retention.status_lines(facts["retention"])
    yield from trash.lines(facts["trash"])
    yield from promote.line(facts["promotions"])
    remedy = "raise nfs.max_connections"
    yield "clients", _limit_text(" connections", remedy, **facts["connections"])
    yield from (("clients", line) for line in sharednames.lines(facts["shared_names"]))
    yield "threads", _limit_text("", limits.THREADS_REMEDY, **facts["threads"])
    disk = facts["disk"]
    share = 100 * disk["used_bytes"] / disk["total_bytes"] if disk["total_bytes"] else 0.0
    yield (
        "disk",
        f"{size(disk['used_bytes'])} used ({share:.0f} %), {size(disk['free_bytes'])} free "
        f"at {disk['path']}",
    )
    if (lost := disk["lost_copies"])["files"]:
        yield "disk", _lost_text(**lost)
    text = _limit_text("", limits.DESCRIPTORS_REMEDY, **facts["descriptors"])
    if not disk["has_descriptors"]:
        text = f"USED UP: clients wait for files: {limits.DESCRIPTORS_REMEDY}"
    yield "descriptors", text
    if (other_bytes := disk["other_bytes"] or 0) > OTHERS_SHARE * disk["total_bytes"]:
        yield "others", _others_text(other_bytes, disk["path"])
    yield from cached.lines(facts["cache"])
    if facts["space"] is not None:
        yield "space", _space_text(facts["space"])


def _others_text(other_bytes: int, path: str) -> str:
    return (
        f"{size(other_bytes)} of the disk are not bytes of files: the database, logs, "
        "files/set-aside, parts of evicted files, deleted files that are open, or other programs, "
        f"which no eviction frees: du -xhd 1 {path}"
    )


def _limit_text(what: str, remedy: str, open: int | None, most: int | None, near: bool) -> str:
    if open is None or most is None:
        return "not known"  # the NFS server does not run, or just started
    text = f"{open:,}{what} of at most {most:,}"
    return f"{text}: NEAR THE LIMIT; {remedy}" if near else text


def _unsettled_text(objects: int, last_seconds: float) -> str:
    those = "1 object" if objects == 1 else f"{objects} objects"
    text = f"{those}: a request got no answer"
    if last_seconds <= 0:
        return f"{text}; looked at again as soon as the bucket answers"
    return f"{text}; looked at again within {duration(last_seconds)}"


def _checksum_text(checksum: dict[str, str | None]) -> str:
    if checksum["kind"] is None:
        return "md5, until the store was asked whether it verifies a newer one"
    how = "as configured" if checksum["from"] == "configuration" else "the best the store verifies"
    return f"{checksum['kind']}, {how}"


def _lost_text(files: int, last: dict[str, Any], is_recent: bool) -> str:
    count = "1 local copy" if files == 1 else f"{files} local copies"
    ago = duration(last["age_seconds"])
    loses = "LOSES BYTES: " if is_recent else ""
    return (
        f"{loses}{count} lost and fetched again, the last {ago} ago: {last['path']}: "
        f"{last['reason']}; check the disk (smartctl, the log of the kernel)"
    )


def _space_text(space: dict[str, Any]) -> str:
    headroom_bytes = space["headroom_bytes"]
    text = "not known yet"  # the server has just started
    if headroom_bytes is not None:
        text = f"{size(headroom_bytes)} until nothing more is accepted"
    if space["dirty_limit_bytes"]:
        text += f"; dirty limit {size(space['dirty_limit_bytes'])}"
    for_long = duration(age_seconds(space["since_ns"]) or 0)
    if space["level"] == "slow":
        return f"SLOWED for {for_long}: {text}; see that the drain keeps up, or delete files"
    if space["level"] == "full":
        limit = " raise space.dirty_limit_bytes," if space["dirty_limit_bytes"] else ""
        return f"FULL for {for_long}: {text}; delete files,{limit} or add disk"
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
    bucket = part(drain, "bucket")
    text = text if uploads else "nothing is being uploaded"
    if bucket.get("awaited"):
        text += f"; NOTHING IS SENT yet: {shown(bucket['error'])}"
    elif bucket["state"] in ("unreachable", "refused"):
        text += f"; bucket {bucket['state']} for {duration(age_seconds(bucket['since_ns']) or 0)}"
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
