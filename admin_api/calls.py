"""What is recorded of each call: the audit log, and the answer for a repetition.

Every unsafe call of a route that needs a role (admin_api.access.roles) is recorded. No route has to
ask for it. The row of the audit is committed before the route runs and completed before the client
has the answer, so nothing is changed without a row. A row without a status says that the process
died meanwhile.

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
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.encoders import jsonable_encoder
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Scope

from admin_api.access.principal import Principal
from admin_api.asked import BYTES_MAX, asked
from admin_api.gateway import Gateway
from admin_api.problems import Problem
from admin_api.store import answers, audit
from admin_api.store.audit import Origin, Outcome
from gateway.errors import SpillwayError
from gateway.text import shown

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing (RFC 9110, 9.2.1)."""
KEY = "Idempotency-Key"
KEY_MAX = 200
KEPT_BYTES_MAX = 256 * 1024
KEPT_HEADERS = ("content-type", "etag", "location")


@dataclass
class Call:
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
    def of(scope: Scope, request_id: str) -> Call:
        """Return the call of an ASGI request."""
        client = scope.get("client")
        return Call(
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
    def origin(self) -> Origin:
        """The call as the audit names it."""
        who = self.principal
        return Origin(
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


def current(request: Request) -> Call:
    """Return the call of a request."""
    found: Call = request.state.call
    return found


async def _call(request: Request) -> Call:
    return current(request)


Recorded = Annotated[Call, Depends(_call)]
"""The parameter of a route that says what it changed."""


class Replayed(SpillwayError):
    """The call was made before. Parameters: its answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__()
        self.status = status
        self.headers = headers
        self.body = body


def begin(gateway: Gateway, call: Call, principal: Principal) -> None:
    """Record that a caller with the role makes an unsafe call.

    Raises Replayed if it was made before, Problem if its key belongs to another call.
    """
    call.principal = principal
    key = call.key
    if key is not None and not (1 <= len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
        raise Problem(422, f"{KEY}: it must have 1 to {KEY_MAX} printable ASCII characters")
    with gateway.store.writing() as session:
        if key is not None:
            known = answers.find(session, principal.token_id, key)
            if known is not None:
                raise _repetition(call, known)
            answers.claim(session, principal.token_id, key, call.fingerprint, call.request_id)
        call.entry_id = audit.begin(session, call.origin)


def _repetition(call: Call, known: answers.Answer) -> Exception:
    """Return what answers a call whose key was used before."""
    if known.fingerprint != call.fingerprint:
        return Problem(422, f"{KEY}: it was used for another request: use another key")
    if known.status is None:
        return Problem(409, "the first call with this key is under way", {"Retry-After": "1"})
    if known.status == answers.INTERRUPTED:
        return Problem(
            409,
            "the first call with this key was interrupted: look whether it was done, and use "
            "another key",
        )
    if known.body is None:
        return Problem(
            409,
            f"the first call with this key was answered with {known.status}, and its answer is "
            "not kept: look at what it did, and use another key",
        )
    return Replayed(known.status, json.loads(known.headers or "{}"), known.body)


def finish(gateway: Gateway, call: Call, status: int, headers: MutableHeaders, body: bytes) -> None:
    """Complete the record of a call that has begun."""
    assert call.principal is not None and call.entry_id is not None
    outcome = Outcome(status, _detail(status, body), _json(call.before), _json(call.after))
    token_id = call.principal.token_id
    with gateway.store.writing() as session:
        audit.complete(session, call.entry_id, outcome)
        if call.key is None:
            return
        if status >= 500:
            # It failed, or is not known to be done. A repetition tries again.
            answers.forget(session, token_id, call.key)
            return
        kept = {name: headers[name] for name in KEPT_HEADERS if name in headers}
        is_kept = call.keeps_answer and len(body) <= KEPT_BYTES_MAX
        answers.keep(
            *(session, token_id, call.key, status, json.dumps(kept), body if is_kept else None)
        )


def _detail(status: int, body: bytes) -> str | None:
    """Return why a call failed, from the problem that its answer is."""
    if status < 400:
        return None
    try:
        found = json.loads(body).get("detail")
    except (ValueError, AttributeError):
        return None
    return str(found)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(jsonable_encoder(value))
