"""Alarms of a gateway: by name, for metrics, the history and lists, and for people, with the cause
and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gateway.common.errors import START
from gateway.common.text import display, shown
from gateway.common.units import duration, size
from gateway.service import clients, deliveries
from gateway.service.reports import ReportedBucket, SpaceReport, age_seconds
from gateway.service.status import UNITS, Status, serves

PROCESS_DOWN = "process_down"
BUCKET_UNREACHABLE = "bucket_unreachable"
BUCKET_REFUSED = "bucket_refused"
BUCKET_TAKEN = "bucket_taken"
DISK_SLOW = "disk_slow"
DISK_FULL = "disk_full"
DISK_FAILING = "disk_failing"
DESCRIPTORS_GONE = "descriptors_gone"
FILES_STUCK = "files_stuck"
FILES_DAMAGED = "files_damaged"
SCRUB_DAMAGE = "scrub_damage"
SCRUB_LATE = "scrub_late"
NAMES_HELD = "names_held"
RPO_EXCEEDED = "rpo_exceeded"
DELETIONS_WAIT = "deletions_wait"
CLOCK_AHEAD = "clock_ahead"
NAMES_LATE = "names_late"
DRILL_FAILED = "drill_failed"
DRILL_LATE = "drill_late"
PROMOTIONS_FAILED = "promotions_failed"
CONNECTIONS_NEAR_LIMIT = "connections_near_limit"
THREADS_NEAR_LIMIT = "threads_near_limit"
DESCRIPTORS_NEAR_LIMIT = "descriptors_near_limit"
CLIENTS_SHARE_NAME = "clients_share_name"
DELIVERIES_LATE = "deliveries_late"
EVENTS_DROPPED = "events_dropped"


def of(status: Status) -> dict[str, int]:
    """Return for each alarm how many things it is about; 0: there is no alarm."""
    drain = status.drain
    bucket = drain.bucket if drain is not None and drain.alive else ReportedBucket()
    level = None if status.space is None else status.space.level
    lost = status.disk.lost_copies
    return {
        PROCESS_DOWN: sum(not process.alive for process in status.processes.values()),
        BUCKET_UNREACHABLE: int(bucket.state == "unreachable"),
        BUCKET_REFUSED: int(bucket.state == "refused" and not bucket.taken),
        BUCKET_TAKEN: int(bucket.taken),
        DISK_SLOW: int(level == "slow"),
        DISK_FULL: int(level == "full"),
        DISK_FAILING: lost.files if lost.is_recent else 0,
        DESCRIPTORS_GONE: int(not status.disk.has_descriptors),
        FILES_STUCK: status.stuck.files,
        FILES_DAMAGED: len(status.cache.damaged),
        SCRUB_DAMAGE: status.scrub.damaged,
        SCRUB_LATE: int(status.scrub.is_late),
        NAMES_HELD: status.held.files,
        RPO_EXCEEDED: status.catalogue.alarms,
        DELETIONS_WAIT: 0 if status.retention.asked is None else status.retention.asked.checkpoints,
        CLOCK_AHEAD: int(status.retention.clock_ahead_seconds > 0),
        NAMES_LATE: int(status.names.is_late),
        DRILL_FAILED: int(status.drill.is_failed),
        DRILL_LATE: int(status.drill.is_late),
        PROMOTIONS_FAILED: status.promotions["failed"],
        CONNECTIONS_NEAR_LIMIT: int(status.connections.near),
        THREADS_NEAR_LIMIT: int(status.threads.near),
        DESCRIPTORS_NEAR_LIMIT: int(status.descriptors.near),
        CLIENTS_SHARE_NAME: len(status.shared_names),
        DELIVERIES_LATE: sum(one.is_late for one in status.deliveries.values()),
        EVENTS_DROPPED: sum(one.dropped for one in status.deliveries.values() if one.is_dropping),
    }


RISKS_SHOWN = 3

_PROCESSES = {
    "up": "The gateway",
    "ganesha": "The NFS server",
    "drain": "The drain",
    "cache": "The hydrator",
    "checkpoints": "The catalogue of checkpoints",
    "recovery": "The copy of the names",
    "admin": "The admin API",
}
_LOST = {
    "ganesha": "clients wait until it is back",
    "drain": "nothing reaches the bucket until it is back",
    "cache": "what was evicted cannot be read until it is back",
    "checkpoints": "new checkpoints are not seen until it is back",
    "recovery": "names that are made now are lost with this gateway until it is back",
    "admin": "its pages and API are away, unless spillway admin serves them",
}


class Alarm(NamedTuple):
    """Something that a person must know."""

    kind: str
    """``bad``: a person must act. ``warn``: a person may have to."""
    text: str
    remedy: str
    """What to do, as a sentence."""

    @property
    def is_bad(self) -> bool:
        """Whether a person must act."""
        return self.kind == "bad"


def alarms_of(status: Status) -> list[Alarm]:
    """Return the alarms, the worst first."""
    kinds = (
        *(_processes, _bucket, _space, _disk, _descriptors, _files, _scrub, _names),
        *(_drill, _limits, _people, _deliveries),
    )
    alarms = [alarm for kind in kinds for alarm in kind(status)]
    return sorted(alarms, key=lambda alarm: not alarm.is_bad)


def _processes(status: Status) -> Iterator[Alarm]:
    dead = [name for name, process in status.processes.items() if not process.alive]
    if "up" in dead:
        yield Alarm("bad", "The gateway does not run", f"Clients wait. Start it: {START}")
        return
    for name in dead:
        last = status.processes[name].last_exit
        ending = f" Its last end: {last}." if last else ""
        yield Alarm(
            "bad",
            f"{_PROCESSES[name]} does not run",
            f"{_LOST[name].capitalize()}. The gateway restarts it by itself.{ending} Its log says "
            f"more: {_log(status, name)}",
        )
    if "ganesha" not in dead and not serves(status.processes):
        yield Alarm(
            "bad",
            "The NFS server runs and does not serve",
            f"Clients wait. If this lasts for minutes, its log says why: {_log(status, 'ganesha')}",
        )


def _log(status: Status, name: str) -> str:
    """Return where a process of a gateway that runs logs."""
    if status.processes["up"].phase == UNITS:
        return f"journalctl -u spillway-{'nfs' if name == 'ganesha' else name}"
    return f"{status.data_dir}/log/ganesha.log" if name == "ganesha" else "what spillway up prints"


def _bucket(status: Status) -> Iterator[Alarm]:
    drain = status.drain
    bucket = drain.bucket if drain is not None and drain.alive else ReportedBucket()
    if bucket.state not in ("unreachable", "refused"):
        if status.bucket.reachable is False:
            yield Alarm(
                "bad",
                f"The bucket cannot be used: {status.bucket.error or 'no reason known'}",
                "What is written stays on the disk meanwhile. Ask it again: spillway bucket test",
            )
        return
    since = age_seconds(bucket.since_ns)
    for_long = "" if since is None else f" for {duration(since)}"
    remedy = "The gateway tries again by itself, and keeps what is written on its disk."
    if bucket.state == "refused":
        remedy = "Correct the credentials or the permissions of the bucket. Nothing is lost."
    reason = bucket.error or "no reason known"
    if bucket.taken:
        yield Alarm("bad", f"The bucket is not known to be this gateway's{for_long}", reason)
        return
    if bucket.awaited:
        yield Alarm("warn", "Nothing is sent to the bucket yet after a crash or a move", reason)
        return
    yield Alarm("bad", f"The bucket is {bucket.state}{for_long}: {reason}", remedy)


def _space(status: Status) -> Iterator[Alarm]:
    space = status.space
    if space is None:
        return
    if space.level == "full":
        yield Alarm(
            "bad",
            "The disk is full: writers wait, and are then told ENOSPC",
            f"Delete files,{_limit(space)} or add disk.",
        )
    elif space.level == "slow":
        yield Alarm(
            "warn",
            "Room gets short: writers are slowed to the pace of the drain",
            f"It passes when the drain has caught up. If not: delete files,{_limit(space)} or add "
            "disk.",
        )


def _disk(status: Status) -> Iterator[Alarm]:
    lost = status.disk.lost_copies
    if lost.is_recent and lost.last is not None:
        many = "1 file" if lost.files == 1 else f"{lost.files:,} files"
        yield Alarm(
            "bad",
            f"The disk lost the local copies of {many}: they are fetched again",
            "Check the disk: smartctl, the log of the kernel. The last: "
            f"{display(lost.last.path)}: {lost.last.reason}.",
        )


def _descriptors(status: Status) -> Iterator[Alarm]:
    if not status.disk.has_descriptors:
        yield Alarm(
            "bad",
            "The NFS server has no descriptors left: clients wait for files",
            "Raise LimitNOFILE of the NFS server, and restart it.",
        )


def _limit(space: SpaceReport) -> str:
    """Return what to do about the dirty limit, if one is set."""
    return " raise space.dirty_limit_bytes," if space.dirty_limit_bytes else ""


def _files(status: Status) -> Iterator[Alarm]:
    if count := status.stuck.files:
        first = status.stuck.first[0]
        many = "1 file does" if count == 1 else f"{count:,} files do"
        yield Alarm(
            "bad",
            f"{many} not get into the bucket",
            f"{display(first.path)}: {first.reason}. What each waits for: spillway queue list",
        )
    if count := (held := status.held).files:
        many = (
            "1 file has a temporary name" if count == 1 else f"{count:,} files have temporary names"
        )
        oldest = display(held.first[0].path) if held.first else "spillway queue list names them"
        yield Alarm(
            "bad",
            f"{many}: held by a pattern for longer than an hour, {size(held.bytes)}",
            f"{oldest}: rename or delete what is left over, or correct drain.incomplete_patterns.",
        )
    for name in status.shared_names[:1]:
        both = " and ".join(name.addresses)
        yield Alarm(
            "bad",
            f"{both} share the name {display(name.name)}: each ends the lease of the other",
            f"Jobs lose opens and locks. To end it: {clients.REMEDY}.",
        )
    for file in status.cache.damaged[:1]:
        yield Alarm(
            "bad",
            f"{file.path} cannot be fetched: {file.reason}",
            "Make the uploaded version of its object readable again, or delete the file.",
        )
    late = [run for run in status.catalogue.at_risk if run.alarm is not None]
    if late:
        shares = [f"{run.run or 'the root'} ({duration(run.at_risk_seconds)})" for run in late]
        most = ", ".join(shares[:RISKS_SHOWN]) + (
            " and others" if len(shares) > RISKS_SHOWN else ""
        )
        yield Alarm(
            "bad",
            f"More work is only on this gateway than is allowed: {most}",
            "See that the drain keeps up: spillway queue list shows what it waits for. The limits "
            "are checkpoints.rpo_seconds and checkpoints.rpo_bytes.",
        )


def _names(status: Status) -> Iterator[Alarm]:
    names = status.names
    if names.is_late:
        old = (
            "has no names"
            if names.age_seconds is None
            else (f"has the names as they were {duration(names.age_seconds)} ago")
        )
        why = f": {names.error}" if names.error else ""
        yield Alarm(
            "bad",
            f"The bucket {old}{why}",
            "What was made since would be lost with this gateway. See that the bucket answers; "
            "the log of the recovery process says more.",
        )


def _drill(status: Status) -> Iterator[Alarm]:
    drill = status.drill
    if drill.last is not None and drill.is_failed:
        count = drill.last.differing
        why = drill.last.problems[0] if drill.last.problems else f"{count:,} files differ"
        yield Alarm(
            "bad",
            f"The last drill says that the bucket does not bring everything back: {shown(why)}",
            "Look again: spillway restore --drill. What to do then: docs/tasks/restore.md, "
            "The drill.",
        )
    if drill.is_late:
        yield Alarm(
            "warn",
            "No drill of a restore was made for long",
            f"{drill.error or 'The log of the recovery process says more'}. To make one now: "
            "spillway restore --drill",
        )


def _scrub(status: Status) -> Iterator[Alarm]:
    if count := status.scrub.damaged:
        many = "1 file" if count == 1 else f"{count:,} files"
        yield Alarm(
            "bad",
            f"The scrub found damage of {many} that it could not heal",
            "The log of the scrub names each, with what to do. Then look once more: spillway scrub",
        )
    if status.scrub.is_late:
        yield Alarm(
            "warn",
            "The scrub has not compared the whole disk for long",
            "Look in its log for what it waits for, or raise scrub.bytes_per_second or "
            "scrub.local_days.",
        )


def _limits(status: Status) -> Iterator[Alarm]:
    if (connections := status.connections).near:
        yield Alarm(
            "warn",
            f"{connections.open:,} of at most {connections.most:,} connections are in use",
            "The next clients cannot mount. Raise nfs.max_connections, and restart the NFS server.",
        )
    if (threads := status.threads).near:
        yield Alarm(
            "warn",
            f"{threads.open:,} of at most {threads.most:,} threads of the NFS server are in use",
            "Calls wait for a thread then. Find what the threads wait for, the disk or the "
            "database, or raise nfs.threads and restart the NFS server.",
        )
    if (descriptors := status.descriptors).near:
        yield Alarm(
            "warn",
            f"{descriptors.open:,} of at most {descriptors.most:,} descriptors of the NFS server "
            "are in use",
            "Clients wait for files when none is left. Look for a job that never closes its files, "
            "or raise LimitNOFILE of the NFS server and restart it.",
        )


def _people(status: Status) -> Iterator[Alarm]:
    asked = status.retention.asked
    if asked is not None:
        yield Alarm(
            "warn",
            f"{asked.checkpoints:,} deletions, {size(asked.bytes)}, wait for an approval",
            "Look at the plan of the policies, and approve it there.",
        )
    if ahead_seconds := status.retention.clock_ahead_seconds:
        yield Alarm(
            "warn",
            f"The clock is {duration(ahead_seconds)} ahead of the time that is known",
            "Ages are counted without that. If the clock is right: spillway policy clock --confirm",
        )
    if failed := status.promotions["failed"]:
        yield Alarm(
            "warn",
            f"{failed} promotions failed",
            "The list of promotions says why. What they copied stays until a person removes it.",
        )


def _deliveries(status: Status) -> Iterator[Alarm]:
    for name, delivery in status.deliveries.items():
        if delivery.is_late:
            yield Alarm(
                "warn",
                f"{name} does not take what is delivered to it: "
                f"{delivery.error or 'it is not tried, see the log of the admin API'}",
                f"{delivery.waiting:,} wait. {_tried(name)}",
            )
        if delivery.is_dropping:
            yield Alarm(
                "warn",
                f"{delivery.dropped:,} events for {name} were dropped, because too many waited",
                "It never gets these: spillway checkpoint list has what is there now.",
            )


def _tried(name: str) -> str:
    """Return how a person tries a receiver."""
    if name == deliveries.AUDIT:
        return "Correct admin.audit_export, or what it names."
    return f"Try it: spillway webhook test {name}"
