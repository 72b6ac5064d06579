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
    found = list(jobs.every(max(0, args.limit), args.state, args.kind))
    return output.show_facts(found, args.json, COLUMNS, _cells, "there are no jobs")


def _show(jobs: Jobs, args: argparse.Namespace) -> int:
    """Show a job. Returns exit status 1 if it ended in another way than by being done."""
    one = jobs.get(args.id)
    output.show(one, _line(one), args.json)
    return int(one.ended_ns is not None and one.state != "done")


def _cancel(jobs: Jobs, args: argparse.Namespace) -> int:
    one = jobs.cancel(args.id)
    output.show(one, _line(one), args.json)
    return 0


def _cells(one: Job) -> tuple[str, ...]:
    paths = shown(", ".join(map(str, one.arguments.get("paths", ()))))
    when, by = moment(one.created_ns), shown(one.asked_by)
    return one.id, one.kind, one.state, when, by, paths, shown(one.text)


def _line(one: Job) -> str:
    id, kind, state, when, by, paths, text = _cells(one)
    return f"{id}  {kind:<8}  {state:<11}  {when} by {by}  {paths}: {text}"
