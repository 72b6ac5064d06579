"""`spillway status`: shows the gateway's state to a person or (--json) to a program.

It works while the gateway is down: it reads the database, the disk, the bucket and the files in
run/, and asks no process.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from gateway import config
from gateway.cli import cached, checkpoints, promote, retention, trash
from gateway.cli.result import print_json
from gateway.control import limits, sharednames
from gateway.control.backlog import Unsettled
from gateway.control.bucket import Checksum
from gateway.control.limits import Limited
from gateway.control.status import (
    Disk,
    LostCopies,
    LostCopy,
    Process,
    Status,
    WholeStatus,
    age_seconds,
    gather,
    part,
)
from gateway.serialize import to_json
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


def show(found: WholeStatus, as_json: bool, is_here: bool = True) -> int:
    """Print the state. Returns the exit status. Args: is_here, if it is of this machine."""
    if as_json:
        print_json(document(found, is_here))
    else:
        for label, value in lines(found):
            print(f"{label:<12}{value}".rstrip())
    return HEALTHY if found.healthy else NEEDS_A_PERSON


def document(found: WholeStatus, is_here: bool = True) -> dict[str, Any]:
    """Return the state as scripts know it: in some names it differs from the admin API."""
    made: dict[str, Any] = to_json(found)
    checksum = made["bucket"]["checksum"]
    checksum["from"] = checksum.pop("said_by")
    if is_here:
        for name in ("restarts", "last_exit"):
            del made["processes"]["up"][name]
    return made


def lines(found: WholeStatus) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line, for a person."""
    yield "gateway", "healthy" if found.healthy else "NEEDS ATTENTION"
    for name, process in found.processes.items():
        yield name, _process_text(process)
    bucket = found.bucket
    where = bucket.name + (f"/{bucket.prefix}" if bucket.prefix else "")
    where += f" at {bucket.endpoint_url}" if bucket.endpoint_url else ""
    reached = "reachable" if bucket.reachable else f"NOT USABLE: {bucket.error}"
    yield "bucket", f"{where}: {reached}"
    yield "checksum", _checksum_text(bucket.checksum)
    yield from _drain_lines(found.drain)
    yield from _waiting_lines(found)
    yield from checkpoints.lines(found.catalogue)
    yield from retention.status_lines(found.retention)
    yield from trash.lines(found.trash)
    yield from promote.line(found.promotions)
    yield "clients", _limit_text(found.connections, "raise nfs.max_connections", " connections")
    yield from (("clients", line) for line in sharednames.lines(found.shared_names))
    yield "threads", _limit_text(found.threads, limits.THREADS_REMEDY)
    yield from _disk_lines(found.disk, found.descriptors)
    yield from cached.lines(found.cache)
    if found.space is not None:
        yield "space", _space_text(found.space)


def _waiting_lines(found: Status) -> Iterator[tuple[str, str]]:
    """Yield the lines about what the bucket does not have."""
    dirty = found.dirty
    text = _counted(dirty.files, "file", dirty.bytes)
    if dirty.open_for_writing_files:
        opened = _counted(dirty.open_for_writing_files, "file", dirty.open_for_writing_bytes)
        text += f"; of these open for writing: {opened}"
    yield "not drained", text
    if (oldest := dirty.oldest) is not None:
        age, length = duration(oldest.age_seconds), size(oldest.size_bytes)
        yield "oldest", f"{oldest.path}, {length}, waiting for {age}"
    for one in found.stuck.first:
        yield "stuck", f"{one.path}: {one.reason}"
    if (more := found.stuck.files - len(found.stuck.first)) > 0:
        yield "stuck", f"and {more} more: spillway queue"
    if (held := found.held).files:
        first = held.first[0] if held.first else None
        named = "" if first is None else f", as {first.path} ({duration(first.age_seconds)})"
        count = _counted(held.files, "file", held.bytes)
        yield "held", f"{count} HELD by drain.hold_patterns for over an hour{named}"
    yield "queued", f"deletions {found.queued.deletions}, moves {found.queued.moves}"
    if found.unsettled.objects:
        yield "unsettled", _unsettled_text(found.unsettled)


def _disk_lines(disk: Disk, descriptors: Limited) -> Iterator[tuple[str, str]]:
    share = 100 * disk.used_bytes / disk.total_bytes if disk.total_bytes else 0.0
    yield (
        "disk",
        f"{size(disk.used_bytes)} used ({share:.0f} %), {size(disk.free_bytes)} free "
        f"at {disk.path}",
    )
    if (last := disk.lost_copies.last) is not None:
        yield "disk", _lost_text(disk.lost_copies, last)
    text = _limit_text(descriptors, limits.DESCRIPTORS_REMEDY)
    if not disk.has_descriptors:
        text = f"USED UP: clients wait for files: {limits.DESCRIPTORS_REMEDY}"
    yield "descriptors", text
    if (other_bytes := disk.other_bytes or 0) > OTHERS_SHARE * disk.total_bytes:
        yield "others", _others_text(other_bytes, disk.path)


def _others_text(other_bytes: int, path: str) -> str:
    return (
        f"{size(other_bytes)} of the disk are not bytes of files: the database, logs, "
        "files/set-aside, parts of evicted files, deleted files that are open, or other programs, "
        f"which no eviction frees: du -xhd 1 {path}"
    )


def _limit_text(found: Limited, remedy: str, what: str = "") -> str:
    if found.open is None or found.most is None:
        return "not known"  # the NFS server does not run, or just started
    text = f"{found.open:,}{what} of at most {found.most:,}"
    return f"{text}: NEAR THE LIMIT; {remedy}" if found.near else text


def _unsettled_text(found: Unsettled) -> str:
    those = "1 object" if found.objects == 1 else f"{found.objects} objects"
    text = f"{those}: a request got no answer"
    last_seconds = found.last_seconds or 0.0
    if last_seconds <= 0:
        return f"{text}; looked at again as soon as the bucket answers"
    return f"{text}; looked at again within {duration(last_seconds)}"


def _checksum_text(checksum: Checksum) -> str:
    if checksum.kind is None:
        return "md5, until the store was asked whether it verifies a newer one"
    is_given = checksum.said_by == "configuration"
    return f"{checksum.kind}, {'as configured' if is_given else 'the best the store verifies'}"


def _lost_text(lost: LostCopies, last: LostCopy) -> str:
    count = "1 local copy" if lost.files == 1 else f"{lost.files} local copies"
    ago = duration(last.age_seconds)
    loses = "LOSES BYTES: " if lost.is_recent else ""
    return (
        f"{loses}{count} lost and fetched again, the last {ago} ago: {last.path}: "
        f"{last.reason}; check the disk (smartctl, the log of the kernel)"
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


def _process_text(one: Process) -> str:
    if one.alive:
        text = f"{one.phase}, pid {one.pid}" if one.pid else str(one.phase)
        if one.running_seconds is not None:
            text += f", for {duration(one.running_seconds)}"
    else:
        text = "NOT RUNNING"
    if one.restarts:
        times = "once" if one.restarts == 1 else f"{one.restarts} times"
        text += f", restarted {times}"
    if one.last_exit:
        text += f", last end: {one.last_exit}"
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
