"""`spillway jobs`: shows the long work that was asked for through the admin API, and ends it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gateway import config
from gateway.cli import result, table, verbs
from gateway.cli.retention import moment
from gateway.cli.token import opened
from gateway.db.engine import Database
from gateway.errors import UserError
from gateway.text import shown

if TYPE_CHECKING:
    from admin_api.jobs.rows import Job

SHOWN = 20
STATES = ("waiting", "running", "done", "failed", "cancelled", "interrupted")
COLUMNS = ("id", "work", "state", "asked", "by", "paths", "how far")
_NEWEST = ((1 << 63) - 1, "~")


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = verbs.adder(parser)
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
    result.option(ending)
    for sub in (showing, ending):
        sub.add_argument("id", metavar="ID")


def run(args: argparse.Namespace) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    with opened(config.load(args.config)) as store:
        status: int = args.act(store, args)
        return status


def _list(store: Database, args: argparse.Namespace) -> int:
    from admin_api.jobs import rows

    with store.reading() as session:
        found = rows.page(session, max(0, args.limit), _NEWEST, args.state, args.kind)
    return show_list([rows.model(one) for one in found], args.json)


def _show(store: Database, args: argparse.Namespace) -> int:
    from admin_api.jobs import rows

    with store.reading() as session:
        found = rows.get(session, args.id)
    if found is None:
        raise UserError(f"there is no job {shown(args.id)}: spillway jobs list shows what is")
    return show_one(rows.model(found), args.json)


def _cancel(_store: Database, args: argparse.Namespace) -> int:
    raise UserError(
        "a job is ended by the admin API that runs it: spillway --gateway http://127.0.0.1:8780 "
        f"jobs cancel {shown(args.id)}"
    )


def show_list(found: list[Job], as_json: bool) -> int:
    """Print jobs. Returns the exit status."""
    return table.show_facts(found, as_json, COLUMNS, _cells, _line, "there are no jobs")


def show_one(one: Job, as_json: bool) -> int:
    """Print a job. Returns exit status 1 if it ended in another way than by being done."""
    result.show(one, _line(one), as_json)
    return int(one.ended_ns is not None and one.state != "done")


def show_cancelled(one: Job, as_json: bool) -> int:
    """Print a job that was asked to end. Returns the exit status."""
    result.show(one, _line(one), as_json)
    return 0


def _cells(one: Job) -> tuple[str, ...]:
    paths = shown(", ".join(map(str, one.arguments.get("paths", ()))))
    when, by = moment(one.created_ns), shown(one.asked_by)
    return one.id, one.kind, one.state, when, by, paths, shown(one.text)


def _line(one: Job) -> str:
    id, kind, state, when, by, paths, text = _cells(one)
    return f"{id}  {kind:<8}  {state:<11}  {when} by {by}  {paths}: {text}"
