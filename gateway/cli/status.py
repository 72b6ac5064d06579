"""Commands that show the gateway: `spillway status`, `statistics` and `clients`.

`status` shows the state to a person or (--json) to a program. For the gateway of this machine it
works also while that is down: it reads the database, the disk, the bucket and the files in run/,
and asks no process.

`statistics` shows what the NFS server was asked since its start, and how long it took. `clients`
shows who mounts the gateway, from where, and who has a file open.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gateway.cli import checkpoints, output, policies, promotions, scrub, trash
from gateway.cli.output import print_json
from gateway.common import clock
from gateway.common.text import display, shown
from gateway.common.units import duration, size
from gateway.rpc.statistics import Histogram, Operations, Statistics
from gateway.service import clients, deliveries, status
from gateway.service.alarms import alarms_of
from gateway.service.bucket import Checksum
from gateway.service.clients import OPENS_MAX, Client, ClientList, Open, Opens
from gateway.service.copied_names import CopiedNames, DrillStatus
from gateway.service.gateway import Gateway
from gateway.service.reports import (
    DrainReport,
    HydratorReport,
    RestoringFile,
    SpaceReport,
    age_seconds,
)
from gateway.service.status import (
    Cache,
    Disk,
    Limited,
    LostCopies,
    LostCopy,
    Process,
    Status,
    Unsettled,
)

HEALTHY = 0
NEEDS_A_PERSON = 1
FAILURES_SHOWN = 3
DAMAGED_SHOWN = RESTORING_SHOWN = 5
DAMAGED_REMEDY = "make the uploaded version of its object readable again, or delete the file"
QUIET_TEXT = "0.1 s"
OTHERS_SHARE = 0.1
"""The share of the disk from which on a person is told of bytes that no file has."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Print the state. Returns 0 if the gateway is healthy, 1 if a person must act. Raises
    UserError."""
    gateway_status = gateway.status()
    if args.json:
        print_json(gateway_status)
    else:
        for label, value in lines(gateway_status):
            print(f"{label:<12}{value}".rstrip())
    return HEALTHY if gateway_status.healthy else NEEDS_A_PERSON


def lines(found: Status) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line, for a person."""
    yield "gateway", "healthy" if found.healthy else "NEEDS ATTENTION"
    if not found.healthy:
        yield from (
            ("why", f"{alarm.text}. {alarm.remedy}") for alarm in alarms_of(found) if alarm.is_bad
        )
    for name, process in found.processes.items():
        yield name, _process_text(process)
    bucket = found.bucket
    where = bucket.name + (f"/{bucket.prefix}" if bucket.prefix else "")
    where += f" at {bucket.endpoint_url}" if bucket.endpoint_url else ""
    texts = {True: "reachable", None: "not asked yet"}
    reached = texts.get(bucket.reachable, f"NOT USABLE: {bucket.error}")
    yield "bucket", f"{where}: {reached}"
    yield "checksum", _checksum_text(bucket.checksum)
    yield from _drain_lines(found.drain)
    yield from _waiting_lines(found)
    yield "names", _names_text(found.names)
    if found.drill.every_days or found.drill.last is not None:
        yield "drill", _drill_text(found.drill)
    yield from checkpoints.lines(found.catalogue)
    yield from policies.status_lines(found.retention)
    yield from trash.lines(found.trash)
    yield from promotions.line(found.promotions)
    yield "clients", _limit_text(found.connections, "raise nfs.max_connections", " connections")
    yield from (("clients", line) for line in clients.lines(found.shared_names))
    yield "threads", _limit_text(found.threads, status.THREADS_REMEDY)
    yield from _disk_lines(found.disk, found.descriptors)
    yield from _cache_lines(found.cache)
    yield from scrub.lines(found.scrub)
    yield from (("deliveries", line) for line in deliveries.lines(found.deliveries))
    if found.space is not None:
        yield "space", _space_text(found.space)


def _waiting_lines(gateway_status: Status) -> Iterator[tuple[str, str]]:
    """Yield the lines about what the bucket does not have."""
    dirty = gateway_status.dirty
    text = _counted(dirty.files, "file", dirty.bytes)
    if dirty.open_for_writing_files:
        opened = _counted(dirty.open_for_writing_files, "file", dirty.open_for_writing_bytes)
        text += f"; of these open for writing: {opened}"
    rate = (
        gateway_status.drain.bytes_per_second
        if gateway_status.drain is not None and gateway_status.drain.alive
        else None
    )
    if rate and dirty.bytes:
        text += f"; all sent in {duration(dirty.bytes / rate)} at {size(rate)}/s"
    yield "not drained", text
    if (oldest := dirty.oldest) is not None:
        age, length = duration(oldest.age_seconds), size(oldest.size_bytes)
        yield "oldest", f"{display(oldest.path)}, {length}, waiting for {age}"
    for stuck_item in gateway_status.stuck.first:
        yield "stuck", f"{display(stuck_item.path)}: {stuck_item.reason}"
    if (more := gateway_status.stuck.files - len(gateway_status.stuck.first)) > 0:
        yield "stuck", f"and {more} more: spillway queue"
    if (held := gateway_status.held).files:
        first = held.first[0] if held.first else None
        named = ""
        if first is not None:
            named = f", as {display(first.path)} ({duration(first.age_seconds)})"
        count = _counted(held.files, "file", held.bytes)
        yield "held", f"{count} HELD by drain.incomplete_patterns for over an hour{named}"
    yield (
        "queued",
        f"deletions {gateway_status.queued.deletions}, moves {gateway_status.queued.moves}",
    )
    if gateway_status.unsettled.objects:
        yield "unsettled", _unsettled_text(gateway_status.unsettled)


def _names_text(names: CopiedNames) -> str:
    if not names.enabled:
        return "not copied into the bucket (recovery.names_in_bucket)"
    if names.age_seconds is None:
        text = "none in the bucket yet"
    else:
        text = f"in the bucket as of {duration(names.age_seconds)} ago"
    if names.waiting:
        text += f", {names.waiting:,} changes wait"
    if names.base_age_seconds is not None:
        text += f"; base of {duration(names.base_age_seconds)} ago"
    if names.base_inodes:
        text += f"; a base is made: {names.base_inodes:,} inodes so far"
    if names.error:
        text += f"; NOT COPIED: {names.error}"
    return text + (" (LATE)" if names.is_late else "")


def _drill_text(drill: DrillStatus) -> str:
    if (last := drill.last) is None:
        text = "none yet"
    elif last.is_ok:
        text = f"everything came back, {last.files:,} files compared"
    else:
        what = last.problems[0] if last.problems else f"{last.differing:,} files differ"
        text = f"NOT EVERYTHING CAME BACK: {shown(what)}: spillway restore --drill"
    if drill.age_seconds is not None:
        text += f"; {duration(drill.age_seconds)} ago"
    if drill.error:
        text += f"; the last try could not be made: {drill.error}"
    return text + (" (LATE)" if drill.is_late else "")


def _disk_lines(disk: Disk, descriptors: Limited) -> Iterator[tuple[str, str]]:
    share = 100 * disk.used_bytes / disk.total_bytes if disk.total_bytes else 0.0
    yield (
        "disk",
        f"{size(disk.used_bytes)} used ({share:.0f} %), {size(disk.free_bytes)} free "
        f"at {disk.path}",
    )
    if (last := disk.lost_copies.last) is not None:
        yield "disk", _lost_text(disk.lost_copies, last)
    text = _limit_text(descriptors, status.DESCRIPTORS_REMEDY)
    if not disk.has_descriptors:
        text = f"USED UP: clients wait for files: {status.DESCRIPTORS_REMEDY}"
    yield "descriptors", text
    if (other_bytes := disk.other_bytes or 0) > OTHERS_SHARE * disk.total_bytes:
        yield "others", _others_text(other_bytes, disk.path)


def _others_text(other_bytes: int, path: str) -> str:
    return (
        f"{size(other_bytes)} of the disk are not bytes of files: the database, logs, "
        "files/set-aside, parts of evicted files, deleted files that are open, or other programs, "
        f"which no eviction frees: du -xhd 1 {path}"
    )


def _limit_text(usage: Limited, remedy: str, resource: str = "") -> str:
    if usage.open is None or usage.most is None:
        return "not known"  # the NFS server does not run, or just started
    text = f"{usage.open:,}{resource} of at most {usage.most:,}"
    return f"{text}: NEAR THE LIMIT; {remedy}" if usage.near else text


def _unsettled_text(unsettled_objects: Unsettled) -> str:
    objects = (
        "1 object" if unsettled_objects.objects == 1 else f"{unsettled_objects.objects} objects"
    )
    text = f"{objects}: a request got no answer"
    last_seconds = unsettled_objects.last_seconds or 0.0
    if last_seconds <= 0:
        return f"{text}; looked at again as soon as the bucket answers"
    return f"{text}; looked at again within {duration(last_seconds)}"


def _checksum_text(checksum: Checksum) -> str:
    if checksum.kind is None:
        return "md5, until the store was asked whether it verifies a newer one"
    is_configured = checksum.source == "configuration"
    return f"{checksum.kind}, {'as configured' if is_configured else 'the best the store verifies'}"


def _lost_text(lost: LostCopies, last: LostCopy) -> str:
    count = "1 local copy" if lost.files == 1 else f"{lost.files} local copies"
    ago = duration(last.age_seconds)
    loses = "LOSES BYTES: " if lost.is_recent else ""
    return (
        f"{loses}{count} lost and fetched again, the last {ago} ago: {display(last.path)}: "
        f"{last.reason}; check the disk (smartctl, the log of the kernel)"
    )


def _space_text(space: SpaceReport) -> str:
    text = "not known yet"  # the server has just started
    if space.headroom_bytes is not None:
        text = f"{size(space.headroom_bytes)} until nothing more is accepted"
    if space.dirty_limit_bytes:
        text += f"; dirty limit {size(space.dirty_limit_bytes)}"
    for_long = duration(age_seconds(space.since_ns) or 0)
    if space.level == "slow":
        return f"SLOWED for {for_long}: {text}; see that the drain keeps up, or delete files"
    if space.level == "full":
        limit = " raise space.dirty_limit_bytes," if space.dirty_limit_bytes else ""
        return f"FULL for {for_long}: {text}; delete files,{limit} or add disk"
    return text


def _cache_lines(cache: Cache) -> Iterator[tuple[str, str]]:
    """Yield the lines about files on the disk and not, and the hydrator."""
    resident, away = cache.resident, cache.absent
    text = "not counted yet"
    if resident is not None:
        text = f"{resident.files:,} files, {size(resident.bytes)}"
    if away is not None and away.files:
        text += f"; only in the bucket: {away.files:,} files, {size(away.bytes)}"
    yield "on the disk", text
    yield "evicting", _evicting(cache)
    yield "fetching", _fetching(cache.hydrator)
    for damaged_file in cache.damaged[:DAMAGED_SHOWN]:
        yield (
            "damaged",
            f"{shown(damaged_file.path)}: {shown(damaged_file.reason)}: {DAMAGED_REMEDY}",
        )
    if (more := len(cache.damaged) - DAMAGED_SHOWN) > 0:
        yield "damaged", f"and {more} more: spillway status --json"
    restoring = [] if cache.hydrator is None else cache.hydrator.restoring
    for file in restoring[:RESTORING_SHOWN]:
        yield "restoring", _restoring(file)
    if (more := len(restoring) - RESTORING_SHOWN) > 0:
        yield "restoring", f"and {more} more: spillway status --json"
    for name in cache.dropped_readers:
        yield "journal", f"reader {shown(name)} fell behind and must read everything again"


def _evicting(cache: Cache) -> str:
    now = cache.evicting
    if now is None:
        return "nothing because of the disk"
    text = f"from {_percent(now.above)} of the disk down to {_percent(now.down_to)}"
    if now.is_early:
        text += (
            f" (not from {_percent(cache.evict_from)}: {size(now.saved_bytes)} were written "
            "within ten minutes in the last day, and are kept free)"
        )
    return f"{text}; {_percent(now.used)} are used"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _restoring(file: RestoringFile) -> str:
    what = shown(file.path)
    if file.expires_ns:
        until = policies.moment(file.expires_ns)
        return f"{what}: back from the archive until {until}, and not fetched yet"
    ago = duration(age_seconds(file.since_ns) or 0)
    return (
        f"{what}: asked back {ago} ago ({shown(file.tier)}), expected until "
        f"{policies.moment(file.expected_ns)}; reads of it end with EIO until then"
    )


def _fetching(report: HydratorReport | None) -> str:
    if report is None:
        return "the hydrator has not reported yet"
    if not report.alive:
        return "stopped"
    texts = [f"{report.files} files" if report.files else "no file"]
    if report.restoring_files:
        texts.append(f"{report.restoring_files} objects are asked back from the archive")
    if not report.has_room:
        texts.append("only what clients wait for: the disk is short of room")
    if report.bucket.error:
        texts.append(shown(report.bucket.error))
    texts += [f"{shown(name).replace('_', ' ')} {n}" for name, n in report.counters.items() if n]
    return ", ".join(texts)


def _process_text(process: Process) -> str:
    if process.alive:
        text = f"{process.phase}, pid {process.pid}" if process.pid else str(process.phase)
        if process.running_seconds is not None:
            text += f", for {duration(process.running_seconds)}"
    else:
        text = "NOT RUNNING"
    if process.restarts:
        times = "once" if process.restarts == 1 else f"{process.restarts} times"
        text += f", restarted {times}"
    if process.last_exit:
        text += f", last end: {process.last_exit}"
    return text


def _drain_lines(drain: DrainReport | None) -> Iterator[tuple[str, str]]:
    if drain is None:
        yield "draining", "the drain has not reported yet"
        return
    if not drain.alive:
        yield "draining", "stopped"
        return
    text, bucket = "nothing is being uploaded", drain.bucket
    if uploads := drain.uploads:
        total = _counted(len(uploads), "upload", sum(upload.total_bytes for upload in uploads))
        text = f"{total}, {size(sum(upload.done_bytes for upload in uploads))} sent"
    if bucket.awaited:
        text += f"; NOTHING IS SENT yet: {shown(str(bucket.error))}"
    elif bucket.state in ("unreachable", "refused"):
        text += f"; bucket {bucket.state} for {duration(age_seconds(bucket.since_ns) or 0)}"
        text += f": {shown(bucket.error or 'no reason known')}"
    yield "draining", text
    if restless := drain.restless_files:
        open_files = "1 open file is" if restless == 1 else f"{restless} open files are"
        yield (
            "snapshots",
            f"{open_files} written without a pause of {QUIET_TEXT}: not in the bucket",
        )
    for failure in drain.failures[-FAILURES_SHOWN:]:
        yield "failing", f"{shown(failure.job)}, {failure.tries} tries: {shown(failure.error)}"


def _counted(count: int, noun: str, size_bytes: int) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}, {size(size_bytes)}"


OPERATION_COLUMNS = ("operation", ">answered", ">delayed", ">mean", ">99 % in", ">bytes", "errors")


def statistics_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="all counts and histograms as JSON")


def show_statistics(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the counts. Raises UserError when no NFS server answers."""
    return show_operations(gateway.statistics(), args.json)


def show_operations(found: Statistics, as_json: bool) -> int:
    """Print the counts. Returns the exit status."""
    if as_json:
        output.print_json(found)
        return 0
    age = max(0, clock.now_ns() - found.started_ns) / clock.NS
    print(f"since the start of the NFS server {duration(age)} ago:")
    rows = [
        _operation_cells(kind, counts)
        for kind, counts in found.operations.items()
        if counts.latency.count or counts.delayed
    ]
    output.show_table(OPERATION_COLUMNS, rows)
    sizes, times = found.commit_sizes, found.commit_seconds
    print(
        f"{times.count} commits of the namespace, {sizes.sum / max(1, sizes.count):.1f} changes "
        f"each, mean {_mean(times)}, 99 % in {_time(times.quantile(0.99))}"
    )
    return 0


def _operation_cells(kind: str, counts: Operations) -> tuple[str, ...]:
    errors = ", ".join(f"{name} {count}" for name, count in counts.errors.items() if count)
    return (
        kind,
        str(counts.latency.count),
        str(counts.delayed or ""),
        _mean(counts.latency),
        _time(counts.latency.quantile(0.99)),
        size(counts.bytes) if counts.bytes else "",
        errors,
    )


def _mean(histogram: Histogram) -> str:
    return _time(histogram.sum / histogram.count if histogram.count else None)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


CLIENT_COLUMNS = (
    *("address", "name", "NFS", ">open", ">for writing", ">read", ">written"),
    *(">operations", ">seen"),
)
OPENS = ("path", "address", ">for reading", ">for writing")
UNKNOWN = "?"
"""An address that is not known."""


def clients_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument(
        "--open", metavar="PATH", help="who has this file open, or files below this directory"
    )


def show_clients(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the clients. Raises UserError when no NFS server answers, NotPossible."""
    if args.open is not None:
        return _show_opens(gateway.opens(args.open), args.json)
    return _show_clients(gateway.clients(), args.json)


def _show_clients(client_list: ClientList, as_json: bool) -> int:
    if as_json:
        output.print_json(client_list)
        return 0
    if not client_list.clients:
        print("no client has a lease: nobody mounts, or the NFS server just started")
    else:
        output.show_table(CLIENT_COLUMNS, map(_client_cells, client_list.clients))
    if (others := client_list.others) is not None:
        print(
            f"all further addresses: {others.operations} operations, "
            f"{size(others.bytes_read)} read, {size(others.bytes_written)} written"
        )
    for line in clients.lines(client_list.shared_names):
        print(line)
    return 0


def _client_cells(client: Client) -> tuple[str, ...]:
    return (
        client.address or UNKNOWN,
        display(client.name),
        f"4.{client.minor_version}",
        str(client.open_reading),
        str(client.open_writing),
        _moved(client.bytes_read, client.read_rate),
        _moved(client.bytes_written, client.written_rate),
        f"{client.operations} ({client.operations_rate}/s)",
        f"{duration(client.seen_seconds)} ago",
    )


def _moved(count_bytes: int, rate: int) -> str:
    return f"{size(count_bytes)} ({size(rate)}/s)"


def _show_opens(opens: Opens, as_json: bool) -> int:
    if as_json:
        output.print_json(opens)
        return 0
    output.show_facts(opens.opens, False, OPENS, _open_cells, "no client has it open")
    if not opens.is_whole:
        print(f"more files are open than the {OPENS_MAX} that were looked at")
    return 0


def _open_cells(open_file: Open) -> tuple[str, ...]:
    return (
        display(open_file.path),
        open_file.address or UNKNOWN,
        str(open_file.open_reading),
        str(open_file.open_writing),
    )
