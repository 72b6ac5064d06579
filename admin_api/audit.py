"""Audit of calls: each unsafe call has a row that says who asked for what, and how it ended.

Every unsafe call of a route that needs a role (admin_api.access.authentication) is recorded, also
one that was refused. No route has to ask for it. The row of the audit is committed before the route
runs and completed before the client has the answer, so nothing is changed without a row. A row
without a status says that the process died meanwhile. Answers are kept for repetitions of calls.

A route that changes something says what it was and what it is::

    @router.put("/things/{name}")
    def change(name: str, call: Recorded, ...) -> Thing:
        call.before = old
        call.after = new

Both are anything that FastAPI can make JSON of, and have no secrets.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.encoders import jsonable_encoder
from sqlalchemy import func, insert, select, update
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Scope

from admin_api import store
from admin_api.access.principal import Principal
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import GovernedGateway
from gateway.common import clock
from gateway.common.errors import SpillwayError
from gateway.common.models import to_json
from gateway.common.text import shown
from gateway.db.compiled import Session, Statement, b
from gateway.service.records import RecordedCall

BYTES_MAX = 4096
"""The most of a body that the audit log has."""
SECRET = frozenset({"token", "csrf", "secret", "password"})
HIDDEN = "…"


def asked(query: bytes, body: bytes, size_bytes: int, kind: str) -> str | None:
    """Return the parameters of a call as JSON, or None if it had none.

    Args:
        body: its first BYTES_MAX bytes.
        size_bytes: size bytes of the whole body.
        kind: its Content-Type.
    """
    pairs = _pairs(query)
    if size_bytes > len(body):
        pairs["body"] = f"{size_bytes} bytes"
    elif kind.startswith("application/x-www-form-urlencoded"):
        pairs.update(_pairs(body))
    elif body:
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        pairs.update(document if isinstance(document, dict) else {"body": f"{size_bytes} bytes"})
    visible = {name: HIDDEN if name in SECRET else value for name, value in pairs.items()}
    visible.pop("csrf", None)
    return json.dumps(visible) if visible else None


def _pairs(text: bytes) -> dict[str, Any]:
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="replace")
    return {shown(name): shown(value) for name, value in pairs}


_audit: Any = store.AuditTable.__table__

LAST = (1 << 63) - 1
"""The largest number that a column can have."""


class CallOrigin(NamedTuple):
    """A call as the audit names it."""

    who: str
    """The name of the token, or of the user of a command. Empty if it is not known."""
    token_id: str | None
    address: str
    request_id: str
    method: str
    path: str
    asked: str | None = None
    """JSON: its parameters, without secrets."""


class CallOutcome(NamedTuple):
    """How a call ended."""

    status: int
    detail: str | None = None
    before: str | None = None
    """JSON."""
    after: str | None = None
    """JSON."""


class AuditRow(NamedTuple):
    """A row of ``audit``: see admin_api.store."""

    id: int
    at_ns: int
    who: str
    token_id: str | None
    address: str
    request_id: str
    method: str
    path: str
    status: int | None
    before: str | None
    after: str | None
    detail: str | None
    asked: str | None


_BEGIN = Statement(
    insert(_audit)
    .values({name: b(name) for name in ("at_ns", *CallOrigin._fields)})
    .returning(_audit.c.id)
)
_COMPLETE = Statement(
    update(_audit)
    .where(_audit.c.id == b("entry"))
    .values({name: b(f"its_{name}") for name in CallOutcome._fields})
)
_LIST = (
    select(*(_audit.c[name] for name in AuditRow._fields))
    .where(
        _audit.c.id < b("below"),
        _audit.c.at_ns >= b("since"),
        _audit.c.at_ns < b("until"),
        func.substr(_audit.c.path, 1, func.length(b("below_path"))) == b("below_path"),
    )
    .order_by(_audit.c.id.desc())
    .limit(b("most"))
)
_ALL = Statement(_LIST)
_BY_WHO = Statement(_LIST.where((_audit.c.who == b("by")) | (_audit.c.token_id == b("by"))))


def begin_row(session: Session, origin: CallOrigin) -> int:
    """Add a call that is about to begin. Returns the id of its entry."""
    row = session.one(_BEGIN, at_ns=clock.now_ns(), **origin._asdict())
    assert row is not None
    row_id: int = row[0]
    return row_id


def complete(session: Session, entry_id: int, outcome: CallOutcome) -> None:
    """Say how a call ended."""
    values = {f"its_{name}": value for name, value in outcome._asdict().items()}
    session.run(_COMPLETE, entry=entry_id, **values)


def add(session: Session, origin: CallOrigin, outcome: CallOutcome) -> None:
    """Add a call that has ended."""
    complete(session, begin_row(session, origin), outcome)


def listed(
    session: Session,
    *,
    most: int,
    who: str | None = None,
    path: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    below_id: int | None = None,
) -> list[AuditRow]:
    """Return entries, the newest first.

    Args:
        most: how many at most.
        who: the name or the id of a token, or None for all.
        path: path with which the paths begin.
        since, until: the first moment and the one after the last.
        below_id: the id that the entries are before.
    """
    values = {
        "below_path": path,
        "since": 0 if since is None else _stored(since),
        "until": LAST if until is None else _stored(until),
        "below": LAST if below_id is None else max(0, min(below_id, LAST)),
        "most": most,
    }
    if who is not None:
        return [AuditRow(*row) for row in session.all(_BY_WHO, **values, by=who)]
    return [AuditRow(*row) for row in session.all(_ALL, **values)]


def _stored(moment: datetime) -> int:
    """Return a moment as the column has it. One that it cannot have becomes the nearest one."""
    return max(0, min(int(moment.timestamp()) * clock.NS, LAST))


def model(entry: AuditRow) -> RecordedCall:
    """Return an entry as people and scripts see it."""
    columns = entry._asdict()
    for name in ("before", "after", "asked"):
        columns[name] = None if columns[name] is None else json.loads(columns[name])
    return RecordedCall(**columns)


SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing (RFC 9110, 9.2.1)."""
KEY = "Idempotency-Key"
KEY_MAX = 200
KEPT_BYTES_MAX = 256 * 1024
KEPT_HEADERS = ("content-type", "etag", "location")


@dataclass
class RequestRecord:
    """One request, from its first byte to its answer."""

    request_id: str
    method: str
    path: str
    address: str
    """The client's address."""
    key: str | None
    """Its Idempotency-Key."""
    query: bytes
    kind: str
    """Its Content-Type."""
    principal: Principal | None = None
    before: Any = None
    """What was changed, as it was. A route sets it."""
    after: Any = None
    """What was changed, as it is now. A route sets it."""
    keeps_answer: bool = True
    """A route sets it to False if the answer has a secret."""
    entry_id: int | None = None
    """The entry of the audit log, once the call has begun."""
    body: Any = field(default_factory=hashlib.sha256)
    """Hash of what was read of its body."""
    begun: bytes = b""
    """The first bytes of its body, for the audit."""
    size_bytes: int = 0
    """The bytes that were read of its body."""

    @staticmethod
    def of(scope: Scope, request_id: str) -> RequestRecord:
        """Return the call of an ASGI request."""
        client = scope.get("client")
        return RequestRecord(
            request_id=request_id,
            method=scope["method"],
            path=shown(scope["path"]),
            address=client[0] if client else "",
            key=Headers(scope=scope).get(KEY),
            query=scope.get("query_string", b""),
            kind=Headers(scope=scope).get("content-type", ""),
        )

    def took(self, chunk: bytes) -> None:
        """Take a part of its body, which was read."""
        self.body.update(chunk)
        self.size_bytes += len(chunk)
        self.begun += chunk[: BYTES_MAX - len(self.begun)]

    @property
    def is_unsafe(self) -> bool:
        """Whether it may change something."""
        return self.method not in SAFE

    @property
    def origin(self) -> CallOrigin:
        """The call as the audit names it."""
        who = self.principal
        return CallOrigin(
            who="" if who is None else who.name,
            token_id=None if who is None else who.token_id,
            address=self.address,
            request_id=self.request_id,
            method=self.method,
            path=self.path,
            # What strangers send is not kept.
            asked=None
            if who is None
            else asked(self.query, self.begun, self.size_bytes, self.kind),
        )

    @property
    def fingerprint(self) -> str:
        """What tells this request from another one with the same key."""
        head = f"{self.method} {self.path}?".encode() + self.query + b"\n"
        return hashlib.sha256(head + self.body.digest()).hexdigest()


def current(request: Request) -> RequestRecord:
    """Return the call of a request."""
    record: RequestRecord = request.state.call
    return record


async def _call(request: Request) -> RequestRecord:
    return current(request)


Recorded = Annotated[RequestRecord, Depends(_call)]
"""The parameter of a route that says what it changed."""


class Replayed(SpillwayError):
    """The call was made before.

    Args:
        status, headers, body: those of its answer.
    """

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__()
        self.status = status
        self.headers = headers
        self.body = body


def begin(gateway: GovernedGateway, call: RequestRecord, principal: Principal) -> None:
    """Record that a caller with the role makes an unsafe call.

    Raises Replayed if it was made before, Problem if its key belongs to another call.
    """
    call.principal = principal
    key = call.key
    if key is not None and not (1 <= len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
        raise Problem(
            ProblemCode.INVALID_IDEMPOTENCY_KEY,
            f"{KEY}: it must have 1 to {KEY_MAX} printable ASCII characters",
        )
    with gateway.store.writing() as session:
        if key is not None:
            known = store.find(session, principal.token_id, key)
            if known is not None:
                raise _repetition(call, known)
            store.claim(session, principal.token_id, key, call.fingerprint, call.request_id)
        call.entry_id = begin_row(session, call.origin)


def _repetition(call: RequestRecord, known: store.RecordedAnswer) -> Exception:
    """Return what answers a call whose key was used before."""
    if known.fingerprint != call.fingerprint:
        return Problem(
            ProblemCode.REUSED_IDEMPOTENCY_KEY,
            f"{KEY}: it was used for another request: use another key",
        )
    if known.status is None:
        return Problem(
            ProblemCode.UNFINISHED_CALL,
            "the first call with this key is under way",
            {"Retry-After": "1"},
        )
    if known.status == store.INTERRUPTED:
        return Problem(
            ProblemCode.INTERRUPTED_CALL,
            "the first call with this key was interrupted: look whether it was done, and use "
            "another key",
        )
    if known.body is None:
        return Problem(
            ProblemCode.UNKEPT_ANSWER,
            f"the first call with this key was answered with {known.status}, and its answer is "
            "not kept: look at what it did, and use another key",
        )
    return Replayed(known.status, json.loads(known.headers or "{}"), known.body)


def finish(
    gateway: GovernedGateway, call: RequestRecord, status: int, headers: MutableHeaders, body: bytes
) -> None:
    """Complete the record of a call that has begun."""
    assert call.principal is not None and call.entry_id is not None
    outcome = CallOutcome(status, _detail(status, body), _json(call.before), _json(call.after))
    token_id = call.principal.token_id
    with gateway.store.writing() as session:
        complete(session, call.entry_id, outcome)
        if call.key is None:
            return
        if status >= 500:
            # It failed, or is not known to be done. A repetition tries again.
            store.forget(session, token_id, call.key)
            return
        kept = {name: headers[name] for name in KEPT_HEADERS if name in headers}
        is_kept = call.keeps_answer and len(body) <= KEPT_BYTES_MAX
        store.keep(
            *(session, token_id, call.key, status, json.dumps(kept), body if is_kept else None)
        )


def _detail(status: int, body: bytes) -> str | None:
    """Return why a call failed, from the problem that its answer is."""
    if status < 400:
        return None
    try:
        detail = json.loads(body).get("detail")
    except (ValueError, AttributeError):
        return None
    return str(detail)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(jsonable_encoder(to_json(value)))
