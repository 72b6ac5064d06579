"""`spillway audit`: who changed what through the admin API, and who was refused."""

from __future__ import annotations

import argparse
from datetime import datetime

from gateway.cli import quantities, table
from gateway.control.gateway import Gateway
from gateway.control.nameslog import NameChange
from gateway.control.records import RecordedCall
from gateway.errors import UserError
from gateway.escapes import display
from gateway.text import shown

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


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the audit log. Raises UserError."""
    since, until = (
        None if text is None else quantities.moment(name, text)
        for name, text in (("--since", args.since), ("--until", args.until))
    )
    most = max(0, args.limit)
    if args.names:
        if args.who is not None:
            raise UserError("--who is of calls: it does not go with --names")
        changes = gateway.names_log(most, args.path or None, since, until)
        nothing = "the log of names has nothing of it"
        if not changes and gateway.configuration().sections["nfs"]["names_log"].value == "off":
            nothing += ": nfs.names_log is off"
        found = changes if args.json else changes[::-1]
        return table.show_facts(found, args.json, NAMES, _name_cells, _name_line, nothing)
    calls = gateway.audit(most, args.who, args.path, since, until)
    listed = calls if args.json else calls[::-1]
    return table.show_facts(listed, args.json, COLUMNS, _cells, _line, "there are no such calls")


def _name_cells(one: NameChange) -> tuple[str, ...]:
    when = datetime.fromisoformat(one.at).astimezone().isoformat(" ", "seconds")
    path = display(one.path)
    if one.new_path is not None:
        path += f" to {display(one.new_path)}"
    if one.replaced:
        path += ", which was replaced"
    return when, one.client or "here", str(one.uid), one.what, path


def _name_line(one: NameChange) -> str:
    when, client, uid, what, path = _name_cells(one)
    return f"{when}  {client} uid {uid}  {what} {path}"


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
