"""`events` of a gateway on another machine: a stream, which is taken up again after a break."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Generator
from contextlib import closing

from gateway import clock
from gateway.cli import events
from gateway.cli.events import Event
from gateway.cli.look import DONE
from gateway.cli.remote.client import Api, Unreachable
from gateway.cli.remote.jobs import ABSENT_SECONDS
from gateway.cli.remote.paths import shown_paths

AGAIN_SECONDS = 2.0


def follow(args: argparse.Namespace, api: Api) -> int:
    """Show what changes, or only the state now."""
    kinds = events.KINDS if args.kinds is None else args.kinds
    printer = events.Printer(args.json)
    last_id: str | None = None
    has_answered, away_since = False, None
    while True:
        try:
            with closing(_events(api, last_id)) as found:
                for event in found:
                    has_answered, away_since = True, None
                    last_id = event.id or last_id
                    if event.kind in kinds:
                        printer.show(event)
                    if event.kind == events.STATUS and not args.follow:
                        return DONE
        except Unreachable:
            now = clock.monotonic_seconds()
            away_since = away_since or now
            # Without an answer at first, the address may be wrong.
            if not has_answered or now - away_since > ABSENT_SECONDS:
                raise
        time.sleep(AGAIN_SECONDS)


def _events(api: Api, last_id: str | None) -> Generator[Event]:
    """Yield the events of one connection."""
    kind, id = "", None
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    with closing(api.lines("/events", headers)) as lines:
        for line in lines:
            name, _colon, value = line.partition(": ")
            if name == "id":
                id = value
            elif name == "event":
                kind = value
            elif name == "data" and kind in events.KINDS:
                try:
                    facts = json.loads(value)
                except ValueError:
                    raise api.strange("its events are no JSON") from None
                yield Event(kind, id, shown_paths(facts, "path", "run"))
            elif not line:
                kind, id = "", None
