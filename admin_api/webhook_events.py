"""Events of webhooks: what became of checkpoints and alarms since the last look.

Each look compares the catalogue, the promotions, the log of policies and the alarms with what was
seen before, which ``webhooks.db`` keeps. So a restart loses no event, and what happened while this
process was away is found by the next look. The first look ever remembers, and finds nothing.

Records of checkpoints are compared, not rows of the catalogue: a record has what was complete and
durable until the checkpoint is removed from the trash for good, and stays when the catalogue is
made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, or_, select

from admin_api.webhook_queue import QueueChange, WebhookQueue
from gateway.catalogue.facts import CheckpointState
from gateway.common import clock
from gateway.common.text import text_of
from gateway.config.checks import (
    ALARM_CLEARED,
    ALARM_RAISED,
    BROKEN,
    COMPLETE,
    DELETED,
    DURABLE,
    PROMOTED,
    covers,
)
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.checkpoint_models import TrashTable
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.engine import Database
from gateway.db.statements import checkpoint, checkpoint_record
from gateway.lifecycle.promotion import store as promotions
from gateway.lifecycle.promotion.store import PromotionState
from gateway.lifecycle.retention.store import action, action_of
from gateway.service import alarms
from gateway.service.status import Status

log = logging.getLogger("admin.webhooks")

TEXTS_MAX = 5
ACTIONS_AT_ONCE = 500
_STATE, _PLACE = "state", "place"
_CHECKPOINT, _PROMOTION, _ACTION, _ALARM = "checkpoint", "promotion", "action", "alarm"
_DELETED = ("in the trash as ", "interrupted: it is not at its path any more")
"""How the result of an action begins that has put a checkpoint into the trash."""

_trash: Any = TrashTable.__table__
_RECORDS = Statement(
    select(
        checkpoint_record.c.ino,
        checkpoint_record.c.contents,
        checkpoint_record.c.durable_ns.is_not(None),
        checkpoint.c.state,
        checkpoint_record.c.run,
        checkpoint_record.c.step,
        checkpoint_record.c.files,
        checkpoint_record.c.size,
        checkpoint_record.c.complete_ns,
        checkpoint_record.c.durable_ns,
        func.coalesce(checkpoint.c.path, _trash.c.path),
        checkpoint.c.reason,
    )
    .select_from(
        checkpoint_record.outerjoin(
            checkpoint, checkpoint.c.ino == checkpoint_record.c.ino
        ).outerjoin(_trash, _trash.c.ino == checkpoint_record.c.ino)
    )
    # What clients removed of a checkpoint has a record of its own, and is no other checkpoint.
    .where(_trash.c.rotated.is_(None))
    .order_by(
        func.coalesce(checkpoint_record.c.completion, 1 << 62),
        checkpoint_record.c.complete_ns,
        checkpoint_record.c.ino,
    )
)
_OPEN = given_numbers("inos")
_ACTIONS = Statement(
    select(action)
    .where(or_(action.c.id > b("after"), action.c.id.in_(select(_OPEN.c.value))))
    .order_by(action.c.id)
    .limit(b("most"))
)
_ACTION_TIME = Statement(select(action.c.began_ns).where(action.c.id == b("wanted")))
_LAST_ACTION = Statement(
    select(action.c.id, action.c.began_ns).order_by(action.c.id.desc()).limit(1)
)
_ACTION_SINCE = Statement(
    select(func.coalesce(func.min(action.c.id), 0)).where(action.c.began_ns > b("since"))
)


class RecordRow(NamedTuple):
    """What a look reads of a checkpoint."""

    ino: int
    contents: str
    is_durable: bool
    state: str | None
    """None: it is in the trash, or the catalogue is being made again."""
    run: bytes
    step: int | None
    files: int
    size: int
    complete_ns: int
    durable_ns: int | None
    path: bytes | None
    reason: str | None


class WebhookEvent(NamedTuple):
    """Something that receivers are told."""

    type: str
    subject: str
    """The path as clients see it, or the name of the alarm."""
    data: dict[str, Any]
    key: str = ""
    """What it is known by: the same event found again has the same id. Empty: it is another one
    each time."""


class Receivers:
    """The receivers of a gateway, and the form of what they are sent.

    Args:
        gateway: its name.
        tables: what ``checks.receivers`` has accepted.
    """

    def __init__(self, gateway: str, tables: Sequence[Mapping[str, Any]]) -> None:
        self._gateway = gateway
        self._events_by_name = {table["name"]: table.get("events", ["*"]) for table in tables}
        self.names = list(self._events_by_name)

    def put(self, change: QueueChange, event: WebhookEvent, namespace: str) -> None:
        """Add an event to the queue of each receiver that wants it."""
        id, body = document(event, self._gateway, namespace)
        for name, patterns in self._events_by_name.items():
            if covers(patterns, event.type):
                change.put(name, id, body)


def document(event: WebhookEvent, gateway: str, namespace: str) -> tuple[str, bytes]:
    """Return the id of an event and what is sent of it."""
    digest = hashlib.blake2b(f"{namespace}/{event.type}/{event.key}".encode(), digest_size=12)
    id = f"evt_{digest.hexdigest() if event.key else secrets.token_hex(12)}"
    facts = {
        "id": id,
        "type": event.type,
        "timestamp": clock.rfc3339(clock.now_ns()),
        "gateway": gateway,
        "subject": event.subject,
        "data": event.data,
    }
    return id, json.dumps(facts).encode()


class EventFinder:
    """Finds events and puts them into the queue. Not safe to use from several threads.

    Args:
        settings: of the gateway.
        database: of the namespace.
        queue: that they are put into.
        status: returns the state of the gateway, for its alarms.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        queue: WebhookQueue,
        status: Callable[[], Status],
    ) -> None:
        self._export = settings.nfs.export
        self._database = database
        self._queue = queue
        self._status = status
        self._receivers = Receivers(settings.name, settings.webhooks.receiver)
        self._known = {kind: queue.seen(kind) for kind in (_STATE, _PLACE, _CHECKPOINT)}
        self._known |= {kind: queue.seen(kind) for kind in (_PROMOTION, _ACTION, _ALARM)}
        self._before: set[str] = set(self._known[_ALARM])
        """The alarms of the look before."""

    def look(self) -> int:
        """Find what became of checkpoints. Returns how many events were found.

        Raises TryAgain, sqlite3.Error.
        """
        with self._database.reading() as session:
            identity = session.one(sql.IDENTITY)
            assert identity is not None, "the volume row is missing"
            self._namespace = bytes(identity[0]).hex()
            found = _Found(self._known)
            self._checkpoints(session, found)
            self._promotions(session, found)
            self._actions(session, found)
        if not self._known[_STATE]:
            found.events.clear()
            found.see(_STATE, "begun", clock.rfc3339(clock.now_ns()))
        return self._put(found)

    def look_at_alarms(self) -> int:
        """Find which alarms began and ended: those that two looks agree about. Returns how many
        events were found.

        Raises UserError, TryAgain, sqlite3.Error.
        """
        status = self._status()
        now = {name: count for name, count in alarms.of(status).items() if count}
        texts = [alarm.text for alarm in alarms.alarms_of(status)][:TEXTS_MAX]
        found = _Found(self._known)
        for name in sorted(now.keys() & self._before - self._known[_ALARM].keys()):
            found.see(_ALARM, name, clock.rfc3339(clock.now_ns()))
            found.events.append(
                WebhookEvent(ALARM_RAISED, name, {"count": now[name], "texts": texts})
            )
        for name in sorted(self._known[_ALARM].keys() - now.keys() - self._before):
            since = self._known[_ALARM][name]
            found.forget(_ALARM, name)
            found.events.append(WebhookEvent(ALARM_CLEARED, name, {"since": since}))
        count = self._put(found)
        self._before = set(now)
        return count

    def _put(self, found: _Found) -> int:
        """Write what was found, in one transaction. Raises sqlite3.Error."""
        if not (found.events or found.changes):
            return 0
        with self._queue.changing() as change:
            for event in found.events:
                self._receivers.put(change, event, self._namespace)
            for (kind, name), value in found.changes.items():
                if value is None:
                    change.forget(kind, name)
                else:
                    change.see(kind, name, value)
        for (kind, name), value in found.changes.items():
            if value is None:
                self._known[kind].pop(name, None)
            else:
                self._known[kind][name] = value
        return len(found.events)

    _namespace = ""

    def _subject(self, path: bytes) -> str:
        return f"{self._export}/{text_of(bytes(path))}"

    def _checkpoints(self, session: Session, found: _Found) -> None:
        known, there = self._known[_CHECKPOINT], set()
        for row in map(RecordRow._make, session.all(_RECORDS)):
            name = str(row.ino)
            there.add(name)
            contents, _, flags = known.get(name, "").partition(" ")
            is_same = contents == row.contents
            is_broken = row.state == CheckpointState.BROKEN
            if row.state is None:
                is_broken = "b" in flags
            if not is_same:
                self._tell(found, COMPLETE, row)
            if row.is_durable and not (is_same and "d" in flags):
                self._tell(found, DURABLE, row)
            if is_broken and not (is_same and "b" in flags):
                self._tell(found, BROKEN, row)
            now = f"{row.contents} {'d' * bool(row.is_durable)}{'b' * is_broken}"
            if now != known.get(name):
                found.see(_CHECKPOINT, name, now)
        for name in known.keys() - there:
            found.forget(_CHECKPOINT, name)

    def _tell(self, found: _Found, type: str, row: RecordRow) -> None:
        data: dict[str, Any] = {
            "run": text_of(bytes(row.run)),
            "step": row.step,
            "files": row.files,
            "bytes": row.size,
            "complete_at": clock.rfc3339(row.complete_ns),
        }
        if type == DURABLE and row.durable_ns is not None:
            data["durable_at"] = clock.rfc3339(row.durable_ns)
        if type == BROKEN:
            data["reason"] = row.reason
        # While the catalogue is made again, only its run is known.
        path = row.run if row.path is None else row.path
        key = "" if type == BROKEN else f"{row.ino}/{row.contents}"
        found.events.append(WebhookEvent(type, self._subject(path), data, key))

    def _promotions(self, session: Session, found: _Found) -> None:
        known, there = self._known[_PROMOTION], set()
        for row in promotions.every(session):
            there.add(row.name)
            done = str(row.done_ns)
            if row.state != PromotionState.DONE or known.get(row.name) == done:
                continue
            data = {
                "name": row.name,
                "run": None if row.run is None else text_of(bytes(row.run)),
                "step": row.step,
                "files": row.files,
                "bytes": row.size,
                "by": row.asked_by,
                "note": row.note,
            }
            key = f"{row.name}/{done}"
            found.events.append(WebhookEvent(PROMOTED, self._subject(row.path), data, key))
            found.see(_PROMOTION, row.name, done)
        for name in known.keys() - there:
            found.forget(_PROMOTION, name)

    def _actions(self, session: Session, found: _Found) -> None:
        """Find what was put into the trash, by the log of policies."""
        after = self._last_action(session, found)
        waiting = self._known[_ACTION]
        rows = session.all(
            _ACTIONS,
            after=after,
            inos=numbers_of([int(name) for name in waiting]),
            most=ACTIONS_AT_ONCE + len(waiting),
        )
        there = set()
        for row in map(action_of, rows):
            name = str(row.id)
            there.add(name)
            if row.what == "trash" and row.finished_ns is None:
                if name not in waiting:
                    found.see(_ACTION, name, "")
            elif row.what == "trash" and (row.result or "").startswith(_DELETED):
                data = {
                    "run": text_of(row.run),
                    "step": row.step,
                    "by": row.author,
                    "reason": row.reason,
                    "result": row.result,
                }
                key = f"{row.id}/{row.began_ns}"
                found.events.append(WebhookEvent(DELETED, self._subject(row.path), data, key))
            if row.id > after:
                found.see(_PLACE, "action", f"{row.id} {row.began_ns}")
            if row.finished_ns is not None and name in waiting:
                found.forget(_ACTION, name)
        for name in waiting.keys() - there:
            found.forget(_ACTION, name)

    def _last_action(self, session: Session, found: _Found) -> int:
        """Return the action up to which all were seen."""
        last, last_ns = session.one(_LAST_ACTION) or (0, 0)
        id, _, began_ns = self._known[_PLACE].get("action", "").partition(" ")
        if not id:
            found.see(_PLACE, "action", f"{last} {last_ns}")
            return int(last)
        row = session.one(_ACTION_TIME, wanted=int(id))
        if row is not None and row[0] == int(began_ns):
            return int(id)
        # The log was shortened, or the database is another one, whose numbers say nothing.
        ((first,),) = session.all(_ACTION_SINCE, since=int(began_ns))
        return int(first) - 1 if first else int(last)


class _Found:
    """What a look has found, until it is written."""

    def __init__(self, known: Mapping[str, Mapping[str, str]]) -> None:
        self.events: list[WebhookEvent] = []
        self.changes: dict[tuple[str, str], str | None] = {}
        self._known = known

    def see(self, kind: str, name: str, value: str) -> None:
        if self._known[kind].get(name) != value:
            self.changes[kind, name] = value

    def forget(self, kind: str, name: str) -> None:
        self.changes[kind, name] = None
