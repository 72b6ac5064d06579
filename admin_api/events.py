"""Events: finds which checkpoints changed, and gives all events to their listeners.

Changed checkpoints are found between two looks at the catalogue. No thread waits for a listener,
and nothing is read without one. The hub of listeners runs in the event loop of the server, all of
it but ``publish``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from gateway.catalogue.display_state import SHOWN
from gateway.common import clock
from gateway.common.errors import SpillwayError
from gateway.common.models import to_json
from gateway.common.text import text_of
from gateway.config.settings import Settings
from gateway.db.compiled import Statement
from gateway.db.engine import Database
from gateway.db.statements import checkpoint

CHANGED_MAX = 100
"""After more changes in a second, listeners are told to read the list again."""
ROWS = Statement(
    select(
        checkpoint.c.ino,
        checkpoint.c.path,
        checkpoint.c.run,
        checkpoint.c.step,
        SHOWN,
        checkpoint.c.dirty_size,
        checkpoint.c.evidence,
    )
)
_Facts = dict[str, Any]


class CatalogueWatcher:
    """Remembers the catalogue. Not safe to use from several threads.

    Args:
        database: database of the namespace.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._export = settings.nfs.export
        self._database = database
        self._seen: dict[int, tuple[Any, ...]] | None = None

    def look(self) -> list[tuple[str, _Facts]]:
        """Return the changes since the last look, as events. The first look finds none. Raises
        TryAgain."""
        with self._database.reading() as session:
            now = {row[0]: tuple(row) for row in session.all(ROWS)}
        before, self._seen = self._seen, now
        if before is None:
            return []
        changed = [row for ino, row in now.items() if before.get(ino) != row]
        gone = [row for ino, row in before.items() if ino not in now]
        if len(changed) + len(gone) > CHANGED_MAX:
            return [("checkpoints", {"changed": len(changed), "gone": len(gone)})]
        events = [("checkpoint", self._facts(row)) for row in changed]
        return events + [("checkpoint", {**self._facts(row), "state": "gone"}) for row in gone]

    def _facts(self, row: tuple[Any, ...]) -> _Facts:
        ino, path, run, step, state, dirty_bytes, _evidence = row
        return {
            "ino": ino,
            "path": f"{self._export}/{text_of(bytes(path))}",
            "run": text_of(bytes(run)),
            "step": step,
            "state": state,
            "dirty_bytes": dirty_bytes,
        }


log = logging.getLogger("admin.events")

LISTENERS_MAX = 64
KEPT = 1000
"""The events that a listener which comes back can still get."""
WAITING_MAX = KEPT + 200
"""The events that wait for one listener. One that is slower is sent away, and comes back."""
LOOK_SECONDS = 1.0
PAUSE_RATIO = 9


class BroadcastEvent(NamedTuple):
    """Something that changed."""

    kind: str
    data: str
    """JSON."""
    id: str | None
    """None: it is the state of a moment, and is not kept."""

    def encoded(self) -> str:
        """Return the event as it is sent (HTML, 9.2)."""
        head = "" if self.id is None else f"id: {self.id}\n"
        return f"{head}event: {self.kind}\ndata: {self.data}\n\n"


class Crowded(SpillwayError):
    """There are too many listeners."""


Look = Callable[[], list[tuple[str, Any]]]
"""Returns kinds and facts of what changed since it was called last."""


class Hub:
    """The listeners of one process.

    Args:
        look: called in a thread once a second while there is a listener, with what it has found.
        state: called after it: kind and facts of the present state.
    """

    def __init__(self, look: Look, state: Callable[[], tuple[str, Any]]) -> None:
        self._look = look
        self._state = state
        self._boot = secrets.token_hex(4)
        self._count = 0
        self._kept: deque[tuple[int, BroadcastEvent]] = deque(maxlen=KEPT)
        self._listeners: set[asyncio.Queue[BroadcastEvent | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None
        self._last_state = ""

    def open(self) -> None:
        """Begin to take events, in the event loop that serves."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Send all listeners away."""
        self._loop = None
        for queue in list(self._listeners):
            self._send_away(queue)
        if self._looking is not None:
            self._looking.cancel()

    def publish(self, kind: str, facts: Any) -> None:
        """Tell all listeners that something changed. Any thread may call it."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._tell, kind, facts)

    @property
    def is_crowded(self) -> bool:
        """Whether there are as many listeners as there may be."""
        return len(self._listeners) >= LISTENERS_MAX

    @asynccontextmanager
    async def listening(
        self, last_id: str | None
    ) -> AsyncIterator[asyncio.Queue[BroadcastEvent | None]]:
        """Listen. The queue gets None when the listener is sent away.

        Raises Crowded.

        Args:
            last_id: last id of the last event that the listener has, or None.
        """
        if self.is_crowded:
            raise Crowded
        queue: asyncio.Queue[BroadcastEvent | None] = asyncio.Queue()
        for event in self._missed(last_id):
            queue.put_nowait(event)
        self._listeners.add(queue)
        if self._looking is None or self._looking.done():
            self._last_state = ""
            self._looking = asyncio.create_task(self._keep_looking())
        elif self._last_state:
            kind, data = self._last_state.split(" ", 1)
            queue.put_nowait(BroadcastEvent(kind, data, None))
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def _missed(self, last_id: str | None) -> list[BroadcastEvent]:
        """Return the events after one that a listener has."""
        if last_id is None:
            return []
        boot, _, number = last_id.partition("-")
        first = self._kept[0][0] if self._kept else self._count + 1
        known = boot == self._boot and number.isdigit() and first - 1 <= int(number) <= self._count
        if not known:
            # It missed events that are not kept: what it shows must be read again.
            return [BroadcastEvent("reset", "{}", f"{self._boot}-{self._count}")]
        return [event for at, event in self._kept if at > int(number)]

    def _tell(self, kind: str, facts: Any) -> None:
        self._count += 1
        event = BroadcastEvent(kind, json.dumps(to_json(facts)), f"{self._boot}-{self._count}")
        self._kept.append((self._count, event))
        self._give(event)

    def _give(self, event: BroadcastEvent) -> None:
        for queue in list(self._listeners):
            if queue.qsize() >= WAITING_MAX:
                self._send_away(queue)
            else:
                queue.put_nowait(event)

    def _send_away(self, queue: asyncio.Queue[BroadcastEvent | None]) -> None:
        self._listeners.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    async def _keep_looking(self) -> None:
        """Look once a second, as long as there is a listener."""
        while self._listeners:
            began = clock.monotonic_seconds()
            try:
                run = await run_in_threadpool(self._look)
                kind, facts = await run_in_threadpool(self._state)
            except Exception as exc:
                # The next look may work: the database may be away for a moment.
                log.warning("cannot look for events: %s", exc)
                await asyncio.sleep(LOOK_SECONDS)
                continue
            for event in run:
                self._tell(*event)
            data = json.dumps(to_json(facts))
            state = f"{kind} {data}"
            if state != self._last_state:
                self._last_state = state
                self._give(BroadcastEvent(kind, data, None))
            await asyncio.sleep(
                max(LOOK_SECONDS, PAUSE_RATIO * (clock.monotonic_seconds() - began))
            )
