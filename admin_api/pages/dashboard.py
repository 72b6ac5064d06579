"""Dashboard: what would be lost now, how fast it drains, and the alarms that a person must act on.

Its scripts ask here for the history of the figures, and for news of what changed. The checkpoints
of a run are drawn on a line of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from admin_api import dashboard, store
from admin_api.access import authentication
from admin_api.access.authentication import Viewer
from admin_api.dashboard import Figured
from admin_api.pages.render import page
from admin_api.requests import Governed, GovernedGateway
from gateway.catalogue.risk import measure
from gateway.common import clock
from gateway.common.errors import START, NamespaceError
from gateway.common.text import display
from gateway.common.units import duration, size
from gateway.db.compiled import Statement
from gateway.service import checkpoints, clients, status
from gateway.service.checkpoints import Checkpoint
from gateway.service.reports import DrainReport, SpaceReport
from gateway.service.status import UNITS, Status, age_seconds, serves

RISKS_SHOWN = 3

_NAMES = {
    "up": "The gateway",
    "ganesha": "The NFS server",
    "drain": "The drain",
    "cache": "The hydrator",
    "checkpoints": "The catalogue of checkpoints",
    "admin": "The admin API",
}
_LOST = {
    "ganesha": "clients wait until it is back",
    "drain": "nothing reaches the bucket until it is back",
    "cache": "what was evicted cannot be read until it is back",
    "checkpoints": "new checkpoints are not seen until it is back",
    "admin": "this page is of another process: spillway admin",
}


class Alarm(NamedTuple):
    """Something that a person must know."""

    kind: str
    """``bad``: a person must act. ``warn``: a person may have to."""
    text: str
    remedy: str


def alarms_of(status: Status) -> list[Alarm]:
    """Return the alarms, the worst first."""
    kinds = (_processes, _bucket, _space, _disk, _descriptors, _files, _limits, _people)
    found = [one for kind in kinds for one in kind(status)]
    return sorted(found, key=lambda one: one.kind != "bad")


def _processes(status: Status) -> Iterator[Alarm]:
    dead = [name for name, one in status.processes.items() if not one.alive]
    if "up" in dead:
        yield Alarm("bad", "The gateway does not run", f"Clients wait. Start it: {START}")
        return
    for name in dead:
        last = status.processes[name].last_exit
        ending = f" Its last end: {last}." if last else ""
        yield Alarm(
            "bad",
            f"{_NAMES[name]} does not run",
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
    if drain is None or not drain.alive:
        return
    bucket = drain.bucket
    if bucket.state not in ("unreachable", "refused"):
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
            "bad", f"{many} not get into the bucket", f"{display(first.path)}: {first.reason}"
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
    for one in status.cache.damaged[:1]:
        yield Alarm(
            "bad",
            f"{one.path} cannot be fetched: {one.reason}",
            "Make the uploaded version of its object readable again, or delete the file.",
        )
    late = [run for run in status.catalogue.at_risk if run.alarm is not None]
    if late:
        shares = [
            f"{run.run or 'the root'} ({_whole(duration(run.at_risk_seconds))})" for run in late
        ]
        most = ", ".join(shares[:RISKS_SHOWN]) + (
            " and others" if len(shares) > RISKS_SHOWN else ""
        )
        yield Alarm(
            "bad",
            f"More work is only on this gateway than is allowed: {most}",
            "See that the drain keeps up: the queue shows what it waits for. The limits are "
            "checkpoints.rpo_seconds and rpo_bytes.",
        )


def _whole(text: str) -> str:
    """Keep a number and its unit on one line."""
    return text.replace(" ", "\u00a0")


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
            "The page of the promotions says why. What they copied stays until they are demoted.",
        )


router = APIRouter()
RUNS_SHOWN = 12


@router.get("/")
def show(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the dashboard."""
    found = figures.counted()
    with gateway.database.reading() as session:
        risks = checkpoints.models(gateway.settings, measure(session))
    risks.sort(key=lambda one: (one.alarm is None, -one.at_risk_seconds, one.run))
    return page(
        request,
        "dashboard.html",
        who,
        facts=found,
        alarms=alarms_of(found),
        runs=risks[:RUNS_SHOWN],
        more_runs=max(0, len(risks) - RUNS_SHOWN),
        worst=risks[0] if risks and risks[0].at_risk_seconds else None,
        drain=_drain(found),
    )


def _drain(found: Status) -> dict[str, Any]:
    """Return what the drain does now, also if it has not reported."""
    drain = found.drain
    report = drain if drain is not None and drain.alive else DrainReport(alive=False)
    rate = report.bytes_per_second or 0
    dirty_bytes = found.dirty.bytes
    return {
        "alive": report.alive,
        "bytes_per_second": rate,
        "eta_seconds": dirty_bytes / rate if rate and dirty_bytes else None,
        "uploads": report.uploads,
        "failing": report.failing or 0,
        "bucket": report.bucket,
        "bucket_seconds": status.age_seconds(report.bucket.since_ns),
        "requests_at_once": report.requests_at_once,
    }


live_router = APIRouter(prefix="/live")
POINTS = 600
"""The points of a chart."""
MINUTE_SECONDS = 60
MONTH_SECONDS = 31 * 86_400
LOOK_SECONDS = 1.0
QUIET_SECONDS = 15.0
"""Ages grow although nothing changes: the pages are told after so long."""
_job: Any = store.JobTable.__table__
JOBS = Statement(select(func.count(), func.max(_job.c.updated_ns)))


@live_router.get("/history")
def history(
    gateway: Governed, _who: Viewer, seconds: Annotated[int, Query(ge=60, le=MONTH_SECONDS)] = 3600
) -> list[list[float | None]]:
    """Return times and figures as columns: dirty, written per second, sent per second. Bytes."""
    now_ns, step_ns = clock.now_ns(), max(MINUTE_SECONDS, -(-seconds // POINTS)) * clock.NS
    with gateway.store.reading() as session:
        # One more: the sample of now must be in a step.
        from_ns = now_ns - seconds * clock.NS
        shown = dashboard.steps(session, from_ns, now_ns + 1, step_ns, dashboard.BURST)
    return [
        [round(one.at_ns / clock.NS) for one in shown],
        [one.dirty_bytes for one in shown],
        [one.written_bytes_per_second for one in shown],
        [one.sent_bytes_per_second for one in shown],
    ]


@live_router.get("/events")
async def events(request: Request, gateway: Governed, who: Viewer) -> StreamingResponse:
    """Stream news (server-sent events): ``status`` and ``job``, without what changed."""
    news = _news(gateway, lambda: authentication.lasts(gateway, request, who))
    return StreamingResponse(news, media_type="text/event-stream")


async def _news(gateway: GovernedGateway, may_listen: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield news until the listener may not listen any more."""
    yield "retry: 2000\n\n"
    looks = {"status": _reports, "job": _jobs}
    seen: dict[str, object] = {}
    told_at = 0.0
    check_at = clock.monotonic_seconds() + authentication.CHECK_SECONDS
    while True:
        if (now := clock.monotonic_seconds()) >= check_at:
            if not await run_in_threadpool(may_listen):
                return
            check_at = now + authentication.CHECK_SECONDS
        for topic, look in looks.items():
            found = await run_in_threadpool(look, gateway)
            is_late = topic == "status" and now - told_at > QUIET_SECONDS
            if seen.get(topic) == found and not is_late:
                continue
            seen[topic] = found
            if topic == "status":
                told_at = now
            yield f"event: {topic}\ndata: {{}}\n\n"
        await asyncio.sleep(LOOK_SECONDS)


def _reports(gateway: GovernedGateway) -> object:
    """Return what differs when a process of the gateway has reported something new."""
    found = []
    for path in sorted(gateway.settings.run_dir.glob("*.json")):
        with suppress(FileNotFoundError):
            found.append((path.name, path.stat().st_mtime_ns))
    return found


def _jobs(gateway: GovernedGateway) -> object:
    try:
        with gateway.store.reading() as session:
            return session.one(JOBS)
    except NamespaceError:
        return None


MARGIN = 1.5
"""Per cent of the width that stay free at each end, so that no dot is cut."""


class TimelinePoint(NamedTuple):
    """A checkpoint on the line."""

    left: float
    """Per cent of the width."""
    checkpoint: Checkpoint


class RunLine(NamedTuple):
    """The dots of a run, the oldest first."""

    dots: Sequence[TimelinePoint]
    since_seconds: float
    """Age of the oldest one."""


def line_of(found: Sequence[Checkpoint]) -> RunLine:
    """Return the line of some checkpoints, from the oldest to now.

    What is being written is now.
    """
    ages = [one.age_seconds or 0.0 for one in found]
    longest = max(ages, default=0.0)
    span = 100 - 2 * MARGIN
    dots = [
        TimelinePoint(round(MARGIN + span * (1 - age / longest if longest else 1.0), 2), one)
        for age, one in zip(ages, found, strict=True)
    ]
    return RunLine(sorted(dots, key=lambda dot: dot.left), longest)
