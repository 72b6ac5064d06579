"""`spillway history`: the figures of the dashboard by time, of which a sample a minute is kept."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway import clock
from gateway.cli import quantities, result, table
from gateway.cli.retention import moment
from gateway.control.gateway import Gateway
from gateway.errors import UserError
from gateway.units import duration, size

STEPS_MAX = 2000
MINUTE = 60
SHOWN = (
    *("dirty_bytes", "written_bytes_per_second", "sent_bytes_per_second"),
    *("fetched_bytes_per_second", "headroom_bytes", "disk_used_bytes", "rpo_seconds", "alarms"),
)
"""The figures that a person sees. JSON has all."""
COLUMNS = (
    *(">time", ">dirty", ">written", ">sent", ">fetched", ">headroom", ">on the disk", ">at risk"),
    ">alarms",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    for name, text in (("from", "an hour before --to"), ("to", "now")):
        parser.add_argument(
            f"--{name}",
            dest=f"{name}_text",
            metavar="TIME",
            help=f"2026-11-23T09:30, or 6h for so long ago; default: {text}",
        )
    parser.add_argument("--step", default="1m", metavar="TIME", help="of a row (default: 1m)")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the figures. Raises UserError."""
    history = gateway.history(*_span(args))
    if args.json:
        result.print_json(history)
        return 0
    found = [dict(zip(history.columns, row, strict=True)) for row in history.rows]
    nothing = "there are no samples of this time: the gateway did not run, or they are forgotten"
    return table.show_facts(found, False, COLUMNS, _cells, _line, nothing)


def _span(args: argparse.Namespace) -> tuple[datetime, datetime, int]:
    """Return begin and end of the time that is asked for, and the step. Raises UserError."""
    seconds = quantities.DURATION.read("--step", args.step)
    end = datetime.now(UTC) if args.to_text is None else quantities.moment("--to", args.to_text)
    begin = end - timedelta(hours=1)
    if args.from_text is not None:
        begin = quantities.moment("--from", args.from_text)
    if begin >= end:
        raise UserError("--from is not before --to: correct one of them")
    if seconds < MINUTE or seconds % 1:
        raise UserError(f"--step {args.step!r}: must be at least 1m, in whole seconds")
    if (end - begin).total_seconds() / seconds > STEPS_MAX:
        raise UserError(f"--step {args.step!r}: that would be over {STEPS_MAX} rows: lengthen it")
    return begin, end, int(seconds)


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    when = moment(int(one["time"]) * clock.NS)[:16]
    return when, *(_text(name, one.get(name)) for name in SHOWN)


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.endswith("_bytes_per_second"):
        return f"{size(value)}/s"
    if name.endswith("_seconds"):
        return duration(value)
    return size(value) if name.endswith("_bytes") else f"{value:.0f}"


def _line(one: dict[str, Any]) -> str:
    when, *figures = _cells(one)
    names = [column.lstrip(">") for column in COLUMNS[1:]]
    said = [f"{name} {text}" for name, text in zip(names, figures, strict=True) if text != "-"]
    return f"{when}  {', '.join(said)}"
