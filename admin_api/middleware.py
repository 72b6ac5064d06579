"""Middleware around every request and every answer, whatever the route.

The id, the check of the Host header, the limit of the body, the record of unsafe calls, the headers
for browsers, the line in the log, and the answer to an error that was not foreseen.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from functools import partial

from anyio import to_thread
from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admin_api import audit, problems
from admin_api.audit import RequestRecord
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import GovernedGateway
from gateway.common import clock, logs
from gateway.common.network import is_loopback
from gateway.common.text import shown
from gateway.config.settings import TLS_OFF, Settings

log = logging.getLogger("admin")

BODY_BYTES_MAX = 1024 * 1024
BODY_SECONDS = 60.0
"""The time for the body of a request."""
SLOW_SECONDS = 1.0
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::[0-9]{1,5})?")

HEADERS = {
    # Scripts, styles and data come from this process only, and no script is in a page.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every answer, unless a route sets another value."""
HSTS = "max-age=31536000"


class CallMiddleware:
    """An ASGI application around the one with the routes."""

    def __init__(self, app: ASGIApp, gateway: GovernedGateway) -> None:
        self._app = app
        self._gateway = gateway
        self._headers = dict(HEADERS)
        self._over_tls = self._headers
        if gateway.settings.admin.tls != TLS_OFF:
            self._over_tls = {**self._headers, "Strict-Transport-Security": HSTS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        call = RequestRecord.of(scope, secrets.token_hex(16))
        scope.setdefault("state", {}).update(call=call, request_id=call.request_id)
        logs.request_id.set(call.request_id)
        began = clock.monotonic_seconds()
        # For localhost it would keep all other servers of that machine from being reached by HTTP.
        is_here = is_loopback(_name_of(Headers(scope=scope).get("host", "")))
        headers = self._headers if is_here else self._over_tls
        answer = _Answer(self._gateway, call, send, headers)
        try:
            self._require_host(scope)
            await self._app(scope, _limited(receive, call), answer.send)
        except HTTPException as exc:
            problem = Problem(problems.of_status(exc.status_code), exc.detail)
            await problems.answer(Request(scope), problem)(scope, receive, answer.send)
        except Problem as problem:
            await problems.answer(Request(scope), problem)(scope, receive, answer.send)
        except Exception as exc:
            # A client gets a problem with the id of its request, also if this was not foreseen.
            if answer.has_begun:
                raise
            answer.forget()
            unforeseen = problems.unforeseen(Request(scope), exc)
            await unforeseen(scope, receive, answer.send)
        finally:
            _say(call, answer.status, clock.monotonic_seconds() - began)

    def _require_host(self, scope: Scope) -> None:
        """Raise Problem if a page of another site made a browser call this machine.

        Such a page can have its own name lead to 127.0.0.1 (DNS rebinding). Then the browser takes
        our answers for that site's. The Host header still has the name of the site.
        """
        host = Headers(scope=scope).get("host", "")
        if not is_host_allowed(self._gateway.settings, host):
            raise Problem(
                ProblemCode.FOREIGN_HOST,
                f"Host {shown(host)!r}: on a loopback address only localhost and 127.0.0.1 are "
                "answered: use one of them, or have the proxy send it",
            )


def is_host_allowed(settings: Settings, host: str) -> bool:
    """Return whether a Host header is one that this process answers to."""
    bind = settings.admin.bind
    if not is_loopback(bind):
        return True
    name = _name_of(host)
    return name == bind or is_loopback(name)


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, or an empty text."""
    match = _HOST.fullmatch(host)
    return "" if match is None else match[1].strip("[]").lower().removesuffix(".")


def _limited(receive: Receive, call: RequestRecord) -> Receive:
    """Return what reads a body: it hashes it, and refuses a large one, or one that comes late."""
    until = asyncio.get_running_loop().time() + BODY_SECONDS
    is_read = False

    async def read() -> Message:
        nonlocal is_read
        try:
            # What comes after the body is the end of the connection.
            async with asyncio.timeout_at(None if is_read else until):
                message = await receive()
        except TimeoutError:
            raise HTTPException(
                408, f"the body took over {BODY_SECONDS:.0f} s: send it faster"
            ) from None
        is_read = not message.get("more_body", False)
        chunk = message.get("body", b"")
        if call.size_bytes + len(chunk) > BODY_BYTES_MAX:
            raise HTTPException(413, f"the body has over {BODY_BYTES_MAX:,} bytes: send less")
        call.took(chunk)
        return message

    return read


class _Answer:
    """Passes an answer on. That of a recorded call is kept until its record is complete."""

    def __init__(
        self, gateway: GovernedGateway, call: RequestRecord, send: Send, headers: dict[str, str]
    ) -> None:
        self._gateway = gateway
        self._call = call
        self._send = send
        self._headers = headers
        self._kept: list[Message] = []
        self.status = 0
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self._call.request_id
        if self._call.entry_id is None:
            self.has_begun = True
            await self._send(message)
            return
        self._kept.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._finish()

    def forget(self) -> None:
        """Drop what was kept: another answer follows."""
        self._kept.clear()

    async def _finish(self) -> None:
        start, *rest = self._kept
        body = b"".join(message.get("body", b"") for message in rest)
        headers = MutableHeaders(scope=start)
        try:
            finish = partial(audit.finish, self._gateway, self._call, start["status"])
            await to_thread.run_sync(finish, headers, body)
        except Exception:
            # What was done is done, and the client must know it. The row says who began it.
            log.exception("the audit log is not complete: entry %s", self._call.entry_id)
        self._call.entry_id = None
        self.has_begun = True
        for message in self._kept:
            await self._send(message)


def _say(call: RequestRecord, status: int, seconds: float) -> None:
    """Log a call that changes something, fails, or takes long."""
    # Who is refused as one of too many, or goes away before the answer, must not fill the log.
    is_nothing = status in (0, 429)
    quiet = is_nothing or (not call.is_unsafe and status < 400 and seconds < SLOW_SECONDS)
    who = call.principal
    logs.event(
        *(log, logging.DEBUG if quiet else logging.INFO),
        method=call.method,
        path=call.path,
        status=status,
        seconds=round(seconds, 3),
        address=call.address,
        who="-" if who is None else shown(who.name),
        token="-" if who is None else who.token_id,
    )
