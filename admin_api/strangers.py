"""Callers whose token or session this process has not seen yet take turns, before other work.

Any host that reaches the port can ask for the login, or send wrong tokens. One such request is
answered at a time. Of what one host asks more at once than a browser does, the rest is refused,
late, so that who asks without a pause is slowed. Who is known passes, also from the same host.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admin_api import calls, connections
from admin_api.access import sessions
from admin_api.access.limiter import origin_of
from admin_api.access.refusals import refused_token
from admin_api.access.tokens import MustWait, Refused
from admin_api.gateway import Gateway
from admin_api.problems import Problem

OF_ONE_HOST = 16
"""The requests of strangers from one host that wait or are answered at once. A browser asks for the
login page and for what is in it."""
OF_ALL = 64
REFUSED_SECONDS = 1.0
"""A refusal is as late."""
STATE = "is_stranger"
"""The name in the state of a request that says whether a stranger sent it."""


class Strangers:
    """An ASGI application around another one.

    Parameters: app; gateway; exempt, the beginnings of the paths that probes ask for without a
    token. They never wait.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway, exempt: Collection[str]) -> None:
        self._app = app
        self._gateway = gateway
        self._exempt = tuple(exempt)
        self._turn = asyncio.Lock()
        self._present: Counter[str] = Counter()
        """The requests that wait or are answered, by the host."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._exempt):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if await self._is_known(request):
            await self._app(scope, receive, send)
            return
        scope["state"][STATE] = True
        # A turn that waited for the rest of a body would keep all others waiting.
        body = await _read(receive)
        if body is not None:
            async with self._turn_of(request):
                await self._app(scope, _again(body, receive), send)

    async def _is_known(self, request: Request) -> bool:
        """Return whether a request has a token or a session that is, or was, valid. Raises Problem
        for a token that is not."""
        verifier = self._gateway.verifier
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if not verifier.known.has(token):
                call = calls.current(request)
                async with self._turn_of(request):
                    try:
                        await run_in_threadpool(verifier.verify, token, call.address)
                    except (Refused, MustWait) as exc:
                        gateway = self._gateway
                        raise await run_in_threadpool(refused_token, gateway, call, exc) from None
            return True
        secret = request.cookies.get(sessions.COOKIE)
        if secret is None or verifier.known.has(secret):
            return secret is not None
        async with self._turn_of(request):
            try:
                return await run_in_threadpool(sessions.is_open, self._gateway, secret)
            except Refused:
                return False

    @asynccontextmanager
    async def _turn_of(self, request: Request) -> AsyncIterator[None]:
        """Wait for the turn of a stranger. Raises Problem if too many wait."""
        origin = origin_of(request.client.host) if request.client else ""
        if self._present[origin] >= OF_ONE_HOST or self._present.total() >= OF_ALL:
            await _refuse(request)
        self._present[origin] += 1
        try:
            async with self._turn:
                yield
        finally:
            self._present -= Counter({origin: 1})


async def _refuse(request: Request) -> None:
    connection = getattr(request.state, connections.STATE, None)
    if connection is not None:
        connection.is_refused = True
    await asyncio.sleep(REFUSED_SECONDS)
    raise Problem(
        429,
        "too many requests at once without a token that was seen here: wait, and ask for less",
        {"Retry-After": "5", "Connection": "close"},
    )


async def _read(receive: Receive) -> deque[Message] | None:
    """Return the messages that a body comes in, or None: its client is gone."""
    found: deque[Message] = deque()
    while not found or found[-1].get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        found.append(message)
    return found


def _again(body: deque[Message], receive: Receive) -> Receive:
    """Return what reads a body that was read."""

    async def read() -> Message:
        return body.popleft() if body else await receive()

    return read
