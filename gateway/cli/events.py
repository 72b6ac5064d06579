"""`spillway events`: what changes at a gateway, as it happens. The admin API streams it."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from datetime import datetime
from typing import Any

from gateway.control.events import KINDS, STATUS, Event
from gateway.control.gateway import Gateway
from gateway.escapes import display
from gateway.serialize import to_json
from gateway.text import shown
from gateway.units import size


def arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show what changes, or only the state now. Raises UserError."""
    kinds = KINDS if args.kinds is None else args.kinds
    printer = _Printer(args.json)
    with closing(gateway.events()) as events:
        for one in events:
            if one.event in kinds:
                printer.show(one)
            if one.event == STATUS and not args.follow:
                break
    return 0


class _Printer:
    """Prints each event at once. Parameters: as_json, as documents of JSON in place of lines."""

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
    return f"{facts['changed']:,} changed, {facts['gone']:,} are gone: spillway checkpoints"


def _reset(_facts: dict[str, Any]) -> str:
    return "events were missed: look at everything again"


_TEXTS = {
    STATUS: _status,
    "job": _job,
    "checkpoint": _checkpoint,
    "checkpoints": _checkpoints,
    "reset": _reset,
}
