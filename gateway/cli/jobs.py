"""Command `spillway job`: shows long work that was asked for through the admin API, and ends it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from gateway.cli import options, output
from gateway.cli.policies import moment
from gateway.common.text import shown
from gateway.service.gateway import Gateway
from gateway.service.jobs import Job, Jobs

SHOWN = 20
STATES = ("waiting", "running", "done", "failed", "cancelled", "interrupted")
COLUMNS = ("id", "work", "state", "asked", "by", "paths", "how far")
_Act = Callable[[Jobs, argparse.Namespace], int]


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = options.adder(parser)
    listing = verb("list", "the jobs, the newest first", _list)
    listing.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"jobs shown (default {SHOWN})"
    )
    listing.add_argument("--state", choices=STATES, help="only jobs in this state")
    listing.add_argument("--kind", type=shown, metavar="KIND", help="only this work, like evict")
    showing = verb("show", "one job", _show)
    for sub in (listing, showing):
        sub.add_argument("--json", action="store_true", help="the same facts as JSON")
    ending = verb("cancel", "end a job; what it has done stays done", _cancel)
    output.option(ending)
    for sub in (showing, ending):
        sub.add_argument("id", metavar="ID")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    act: _Act = args.act
    return act(gateway.jobs, args)


def _list(jobs: Jobs, args: argparse.Namespace) -> int:
    listed = list(jobs.every(max(0, args.limit), args.state, args.kind))
    return output.show_facts(listed, args.json, COLUMNS, _cells, "there are no jobs")


def _show(jobs: Jobs, args: argparse.Namespace) -> int:
    """Show a job. Returns exit status 1 if it ended in another way than by being done."""
    job = jobs.get(args.id)
    output.show(job, _line(job), args.json)
    return int(job.ended_ns is not None and job.state != "done")


def _cancel(jobs: Jobs, args: argparse.Namespace) -> int:
    job = jobs.cancel(args.id)
    output.show(job, _line(job), args.json)
    return 0


def _cells(job: Job) -> tuple[str, ...]:
    paths = shown(", ".join(map(str, job.arguments.get("paths", ()))))
    when, by = moment(job.created_ns), shown(job.asked_by)
    return job.id, job.kind, job.state, when, by, paths, shown(job.text)


def _line(job: Job) -> str:
    id, kind, state, when, by, paths, text = _cells(job)
    return f"{id}  {kind:<8}  {state:<11}  {when} by {by}  {paths}: {text}"
