"""Reads the events of a gateway on another machine: a stream, which is taken up again after a
break."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import closing

from gateway import clock
from gateway.cli.api import Api, Unreachable
from gateway.control.events import KINDS, Event

AGAIN_SECONDS = 2.0
ABSENT_SECONDS = 60.0
"""The time that the admin API may be away: the gateway restarts it."""


def follow(api: Api) -> Generator[Event]:
    """Yield events, without an end. Raises UserError."""
    last_id: str | None = None
    has_answered, away_since = False, None
    while True:
        try:
            with closing(_events(api, last_id)) as found:
                for event in found:
                    has_answered, away_since = True, None
                    last_id = event.id or last_id
                    yield event
        except Unreachable:
            now = clock.monotonic_seconds()
            away_since = away_since or now
            # Without an answer at first, the address may be wrong.
            if not has_answered or now - away_since > ABSENT_SECONDS:
                raise
        time.sleep(AGAIN_SECONDS)


def _events(api: Api, last_id: str | None) -> Generator[Event]:
    """Yield the events of one connection. Args: last_id, of the last event that was read."""
    kind, id = "", None
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    with closing(api.lines("/events", headers)) as lines:
        for line in lines:
            name, _colon, value = line.partition(": ")
            if name == "id":
                id = value
            elif name == "event":
                kind = value
            elif name == "data" and kind in KINDS:
                try:
                    yield Event(kind, id, json.loads(value))
                except ValueError:
                    raise api.strange("its events are no JSON") from None
            elif not line:
                kind, id = "", None
