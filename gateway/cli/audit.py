"""`spillway audit`: who changed what through the admin API, and who was refused."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gateway import config
from gateway.cli import quantities, table
from gateway.cli.token import opened
from gateway.control import nameslog
from gateway.control.nameslog import NameChange
from gateway.errors import UserError
from gateway.escapes import bytes_of
from gateway.text import printable, shown

if TYPE_CHECKING:
    from admin_api.store.audit import RecordedCall

SHOWN = 50
COLUMNS = ("when", "who", "from", "what", "result")
NAMES = ("when", "from", ">uid", "what", "path")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON, newest first")
    parser.add_argument(
        "--who", type=shown, metavar="NAME", help="only calls of this token, by name or id"
    )
    parser.add_argument(
        "--names",
        action="store_true",
        help="which client removed, renamed, made or opened what (nfs.names_log)",
    )
    path = "only calls whose path begins so, like /api/v1/trash; with --names: a path of the export"
    parser.add_argument("--path", type=shown, default="", metavar="PATH", help=path)
    for name, text in (("since", "only from then on"), ("until", "only before")):
        parser.add_argument(f"--{name}", metavar="TIME", help=f"{text}: 2026-11-23T09:30, or 90m")
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"the last N calls (default {SHOWN})"
    )


def run(args: argparse.Namespace) -> int:
    """Show the audit log. Raises UserError."""
    from admin_api.store import audit

    since, until = span(args)
    if args.names:
        return _show_names(args, since, until)
    with opened(config.load(args.config)) as store, store.reading() as session:
        found = audit.listed(
            session,
            most=max(0, args.limit),
            who=args.who,
            path=args.path,
            since=since,
            until=until,
        )
    return show([audit.model(one) for one in found], args.json)


def _show_names(args: argparse.Namespace, since: datetime | None, until: datetime | None) -> int:
    if args.who is not None:
        raise UserError("--who is of calls: it does not go with --names")
    settings = config.load(args.config)
    most = max(0, args.limit)
    found = nameslog.listed(settings, most, args.path or None, since, until)
    nothing = "the log of names has nothing of it"
    if settings.nfs.names_log == "off":
        nothing += ": nfs.names_log is off"
    listed = found if args.json else found[::-1]
    return table.show_facts(listed, args.json, NAMES, _name_cells, _name_line, nothing)


def _name_cells(one: NameChange) -> tuple[str, ...]:
    when = datetime.fromisoformat(one.at).astimezone().isoformat(" ", "seconds")
    path = printable(bytes_of(one.path))
    if one.new_path is not None:
        path += f" to {printable(bytes_of(one.new_path))}"
    if one.replaced:
        path += ", which was replaced"
    return when, one.client or "here", str(one.uid), one.what, path


def _name_line(one: NameChange) -> str:
    when, client, uid, what, path = _name_cells(one)
    return f"{when}  {client} uid {uid}  {what} {path}"


def span(args: argparse.Namespace) -> tuple[datetime | None, datetime | None]:
    """Return the moments of ``--since`` and ``--until``. Raises UserError."""
    since, until = (
        None if text is None else quantities.moment(name, text)
        for name, text in (("--since", args.since), ("--until", args.until))
    )
    return since, until


def show(found: Sequence[RecordedCall], as_json: bool) -> int:
    """Print calls. Returns the exit status. Parameters: found, the newest first."""
    listed = list(found) if as_json else list(reversed(found))
    return table.show_facts(listed, as_json, COLUMNS, _cells, _line, "there are no such calls")


def _cells(one: RecordedCall) -> tuple[str, ...]:
    when = datetime.fromisoformat(one.at).astimezone().isoformat(" ", "seconds")
    result = "not known" if one.status is None else str(one.status)
    if one.detail:
        result += f": {shown(one.detail)}"
    what = f"{one.method} {shown(one.path)}"
    return when, shown(one.who) or "?", one.address or "here", what, result


def _line(one: RecordedCall) -> str:
    when, who, address, what, result = _cells(one)
    return f"{when}  {who} ({address})  {what}: {result}"
