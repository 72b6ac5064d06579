"""Commands that read records: `spillway audit`, `history`, `events` and `configuration`.

`audit` shows who changed what through the admin API, and who was refused. `history` shows the
figures of the dashboard by time, of which a sample a minute is kept. `events` follows what changes
at a gateway, as the admin API streams it. `configuration` shows the keys as they are in force. What
may be a password is masked.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.cli import options, output
from gateway.cli.policies import moment
from gateway.common import clock
from gateway.common.errors import UserError
from gateway.common.models import to_json
from gateway.common.text import display, shown
from gateway.common.units import duration, size
from gateway.service.configuration import Configuration, Key
from gateway.service.gateway import Gateway
from gateway.service.records import KINDS, STATUS, Event, NameChange, RecordedCall

CALL_SHOWN = 50
CALL_COLUMNS = ("when", "who", "from", "what", "result")
NAMES = ("when", "from", ">uid", "what", "path")


def audit_arguments(parser: argparse.ArgumentParser) -> None:
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
        "--limit",
        type=int,
        default=CALL_SHOWN,
        metavar="N",
        help=f"the last N calls (default {CALL_SHOWN})",
    )


def list_calls(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the audit log. Raises UserError."""
    since, until = (
        None if text is None else options.moment(name, text)
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
        name_changes = changes if args.json else changes[::-1]
        return output.show_facts(name_changes, args.json, NAMES, _name_cells, nothing)
    calls = gateway.audit(most, args.who, args.path, since, until)
    listed = calls if args.json else calls[::-1]
    return output.show_facts(
        listed, args.json, CALL_COLUMNS, _call_cells, "there are no such calls"
    )


def _name_cells(change: NameChange) -> tuple[str, ...]:
    when = moment(change.at_ns)
    path = display(change.path)
    if change.new_path is not None:
        path += f" to {display(change.new_path)}"
    if change.replaced:
        path += ", which was replaced"
    return when, change.client or "here", str(change.uid), change.what, path


def _call_cells(recorded_call: RecordedCall) -> tuple[str, ...]:
    when = moment(recorded_call.at_ns)
    result = "not known" if recorded_call.status is None else str(recorded_call.status)
    if recorded_call.detail:
        result += f": {shown(recorded_call.detail)}"
    call_text = f"{recorded_call.method} {shown(recorded_call.path)}"
    return when, shown(recorded_call.who) or "?", recorded_call.address or "here", call_text, result


STEPS_MAX = 2000
MINUTE = 60
HISTORY_SHOWN = (
    *("dirty_bytes", "written_bytes_per_second", "sent_bytes_per_second"),
    *("fetched_bytes_per_second", "headroom_bytes", "disk_used_bytes", "rpo_seconds", "alarms"),
)
"""The figures that a person sees. JSON has all."""
HISTORY_COLUMNS = (
    *(">time", ">dirty", ">written", ">sent", ">fetched", ">headroom", ">on the disk", ">at risk"),
    ">alarms",
)


def history_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    for name, text in (("from", "an hour before --to"), ("to", "now")):
        parser.add_argument(
            f"--{name}",
            dest=f"{name}_text",
            metavar="TIME",
            help=f"2026-11-23T09:30, or 6h for so long ago; default: {text}",
        )
    parser.add_argument("--step", default="1m", metavar="TIME", help="of a row (default: 1m)")


def show_history(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the figures. Raises UserError."""
    history = gateway.history(*_span(args))
    if args.json:
        output.print_json(history)
        return 0
    samples = [dict(zip(history.columns, row, strict=True)) for row in history.rows]
    nothing = "there are no samples of this time: the gateway did not run, or they are forgotten"
    return output.show_facts(samples, False, HISTORY_COLUMNS, _history_cells, nothing)


def _span(args: argparse.Namespace) -> tuple[datetime, datetime, int]:
    """Return begin and end of the time that is asked for, and the step. Raises UserError."""
    seconds = options.DURATION.read("--step", args.step)
    end = datetime.now(UTC) if args.to_text is None else options.moment("--to", args.to_text)
    begin = end - timedelta(hours=1)
    if args.from_text is not None:
        begin = options.moment("--from", args.from_text)
    if begin >= end:
        raise UserError("--from is not before --to: correct one of them")
    if seconds < MINUTE or seconds % 1:
        raise UserError(f"--step {args.step!r}: must be at least 1m, in whole seconds")
    if (end - begin).total_seconds() / seconds > STEPS_MAX:
        raise UserError(f"--step {args.step!r}: that would be over {STEPS_MAX} rows: lengthen it")
    return begin, end, int(seconds)


def _history_cells(sample: dict[str, Any]) -> tuple[str, ...]:
    when = moment(clock.nanoseconds_of(sample["time"]))[:16]
    return when, *(_text(name, sample.get(name)) for name in HISTORY_SHOWN)


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.endswith("_bytes_per_second"):
        return f"{size(value)}/s"
    if name.endswith("_seconds"):
        return duration(value)
    return size(value) if name.endswith("_bytes") else f"{value:.0f}"


def events_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document a line")
    parser.add_argument(
        "--follow", action="store_true", help="until Ctrl-C (default: only the state now)"
    )
    parser.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        choices=KINDS,
        help="only events of this kind; may be repeated",
    )


def follow(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show what changes, or only the state now. Raises UserError."""
    kinds = KINDS if args.kinds is None else args.kinds
    printer = _Printer(args.json)
    with closing(gateway.events()) as events:
        for event in events:
            if event.event in kinds:
                printer.show(event)
            if event.event == STATUS and not args.follow:
                break
    return 0


class _Printer:
    """Prints each event at once.

    Args:
        as_json: as documents of JSON in place of lines.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._state = ""

    def show(self, event: Event) -> None:
        if self._as_json:
            print(json.dumps(to_json(event)), flush=True)
            return
        text = _TEXTS[event.event](event.data)
        if event.event == STATUS:
            if text == self._state:
                return  # only figures changed that a line does not have
            self._state = text
        when = datetime.now().astimezone().isoformat(" ", "seconds")
        print(f"{when}  {event.event:<11}  {text}", flush=True)


def _status(facts: dict[str, Any]) -> str:
    text = f"{facts['dirty_files']:,} files, {size(facts['dirty_bytes'])} are not in the bucket"
    if facts["sent_bytes_per_second"] is not None:
        text += f"; {size(facts['sent_bytes_per_second'])}/s are sent"
    if alarms := ", ".join(facts["alarms"]):
        text += f"; alarms: {alarms}"
    return text if facts["healthy"] else f"{text}; a person must act: spillway status"


def _job(facts: dict[str, Any]) -> str:
    return shown(f"{facts['id']}  {facts['kind']} {facts['state']}: {facts['text']}")


def _checkpoint(facts: dict[str, Any]) -> str:
    left = facts["dirty_bytes"]
    more = f", {size(left)} are not in the bucket" if left and facts["state"] != "gone" else ""
    return f"{display(facts['path'])}: {facts['state']}{more}"


def _checkpoints(facts: dict[str, Any]) -> str:
    return f"{facts['changed']:,} changed, {facts['gone']:,} are gone: spillway checkpoint list"


def _reset(_facts: dict[str, Any]) -> str:
    return "events were missed: look at everything again"


_TEXTS = {
    STATUS: _status,
    "job": _job,
    "checkpoint": _checkpoint,
    "checkpoints": _checkpoints,
    "reset": _reset,
}


KEY_COLUMNS = ("key", "value", "from", "default")


def configuration_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="also what each key means, as JSON")
    parser.add_argument(
        "key", nargs="?", metavar="KEY", help="a section or key, like drain.workers"
    )


def show_configuration(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the keys that are wanted. Raises UserError."""
    whole = gateway.configuration()
    sections = {
        section: {name: key for name, key in keys.items() if _is_wanted(args.key, section, name)}
        for section, keys in whole.sections.items()
    }
    sections = {section: keys for section, keys in sections.items() if keys}
    if not sections:
        raise UserError(f"there is no key {shown(args.key)}: spillway configuration shows all")
    if args.json:
        output.print_json(Configuration(whole.source, sections))
        return 0
    keys = [
        (f"{section}.{name}", key)
        for section in sections
        for name, key in sections[section].items()
    ]
    rows = [_key_cells(name, key) for name, key in keys]
    output.show_table(KEY_COLUMNS, rows, title=whole.source)
    if len(keys) == 1:
        print(keys[0][1].doc)
    return 0


def _is_wanted(key: str | None, section: str, name: str) -> bool:
    return key in (None, section, f"{section}.{name}")


def _key_cells(name: str, key: Key) -> tuple[str, ...]:
    is_default = key.value == key.default
    source = "default" if is_default else "file"
    if key.is_overridden:
        source = key.variable
    value, default = (shown(json.dumps(of)) for of in (key.value, key.default))
    return name, value, source, "" if is_default else default
