"""Sessions of the pages: a login with a token gives a cookie.

The cookie is a random secret, of which the database has a hash. A session ends after
``admin.session_hours``, by a logout, and with its token. Calls that change something must also have
the CSRF token of the session, which a page of another site cannot read. It is computed from the
cookie, so it is not stored.

A page logs in and out with ``log_in``, ``set_cookie`` and ``log_out``, and puts ``csrf_of`` into
its forms (field ``csrf``) or into the header ``X-CSRF-Token``.

Refusals of access are recorded in the audit log, but no more of them than people can read.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import sqlite3
from typing import NamedTuple

from fastapi import Request, Response

from admin_api import audit
from admin_api.access import tokens
from admin_api.access.principal import Principal
from admin_api.access.tokens import InvalidToken, MustWait
from admin_api.audit import CallOutcome, RequestRecord, current
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import GovernedGateway
from gateway.common import clock
from gateway.common.errors import NamespaceError
from gateway.config.settings import TLS_OFF
from gateway.db.compiled import Session

log = logging.getLogger("admin")

CHALLENGE = {"WWW-Authenticate": "Bearer"}


def refusal(
    gateway: GovernedGateway,
    call: RequestRecord,
    code: ProblemCode,
    detail: str,
    headers: dict[str, str] | None = None,
) -> Problem:
    """Return the problem that refuses a call, after the audit has it."""
    # Who sends refused calls without end must not fill the disk. The log has a line of each.
    if gateway.noted_refusals.failed("all"):
        try:
            with gateway.store.writing() as session:
                audit.add(session, call.origin, CallOutcome(code.status, detail))
        except (NamespaceError, sqlite3.Error) as exc:
            log.error("the audit log lacks a refusal (%s): %s", detail, exc)
    return Problem(code, detail, headers)


def refused_token(
    gateway: GovernedGateway, call: RequestRecord, exc: InvalidToken | MustWait
) -> Problem:
    """Return the problem of a token that is not valid, or that is not looked at."""
    if isinstance(exc, MustWait):
        # The wrong tokens before it are in the audit.
        return Problem(ProblemCode.TOKEN_FAILURE_LIMIT, str(exc), {"Retry-After": str(exc.seconds)})
    return refusal(gateway, call, ProblemCode.INVALID_TOKEN, str(exc), CHALLENGE)


COOKIE = "spillway_session"
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf"


class Login(NamedTuple):
    """A session that was just opened."""

    principal: Principal
    secret: str
    """The value of the cookie."""


def log_in(gateway: GovernedGateway, call: RequestRecord, token: str) -> Login:
    """Open a session for the owner of a token.

    Raises Problem (401, or 429 after too many wrong ones). The audit has both.

    Args:
        call: that of the request.
        token: the text that its owner sent.
    """
    try:
        principal = gateway.verifier.verify(token.strip(), call.address)
    except (InvalidToken, MustWait) as exc:
        raise refused_token(gateway, call, exc) from None
    secret, now_ns = secrets.token_urlsafe(32), clock.now_ns()
    hours = gateway.settings.admin.session_hours
    with gateway.store.writing() as session:
        expires_ns = now_ns + int(hours * 3600 * clock.NS)
        tokens.open_session(session, _id_of(secret), principal.token_id, now_ns, expires_ns)
        call.principal = principal
        _note(gateway, session, call, "logged in")
    gateway.verifier.known.add(secret)
    return Login(principal, secret)


def _note(gateway: GovernedGateway, session: Session, call: RequestRecord, detail: str) -> None:
    """Note a login or a logout in the audit, unless there are too many of its token: they must not
    fill the disk. The log has a line of each."""
    assert call.principal is not None
    if gateway.noted_logins.failed(call.principal.token_id):
        audit.add(session, call.origin, CallOutcome(200, detail))


def set_cookie(gateway: GovernedGateway, response: Response, login: Login) -> None:
    """Give the browser a session."""
    admin = gateway.settings.admin
    response.set_cookie(
        COOKIE,
        login.secret,
        max_age=int(admin.session_hours * 3600),
        httponly=True,
        # With "strict" a link in a chat would lead to the login. Orders need the CSRF token.
        samesite="lax",
        secure=admin.tls != TLS_OFF,
    )


def log_out(gateway: GovernedGateway, request: Request, response: Response) -> None:
    """End the session of a request, if it has one."""
    secret = request.cookies.get(COOKIE)
    if secret:
        with gateway.store.writing() as session:
            if tokens.close_session(session, _id_of(secret)):
                _note(gateway, session, current(request), "logged out")
    response.delete_cookie(COOKIE)


def csrf_of(request: Request) -> str:
    """Return the CSRF token of the session of a request, or an empty text without a session."""
    secret = request.cookies.get(COOKIE)
    return csrf_from(secret) if secret else ""


def csrf_from(secret: str) -> str:
    """Return the CSRF token of a session.

    Args:
        secret: the value of its cookie.
    """
    return hmac.digest(secret.encode(errors="replace"), b"spillway csrf", "sha256").hex()


def is_open(gateway: GovernedGateway, secret: str) -> bool:
    """Return whether a session is valid, with its token. Raises Refused if the token has ended,
    TryAgain.

    Args:
        secret: secret of its cookie.
    """
    with gateway.store.reading() as session:
        session_row = tokens.of_session(session, _id_of(secret))
    if session_row is None or session_row[1] <= clock.now_ns():
        return False
    gateway.verifier.principal(session_row[0])
    gateway.verifier.known.add(secret)
    return True


def principal_of(
    gateway: GovernedGateway, request: Request, call: RequestRecord, csrf: str | None
) -> Principal:
    """Return whose session a request has. Raises Problem.

    Args:
        csrf: the CSRF token that came with the request.
    """
    principal = reader_of(gateway, request)
    if principal is None:
        raise Problem(ProblemCode.ENDED_SESSION, "the session has ended: log in again", CHALLENGE)
    sent = (csrf or "").encode()
    if call.is_unsafe and not hmac.compare_digest(csrf_of(request).encode(), sent):
        call.principal = principal
        detail = f"{CSRF_HEADER} is missing or wrong: load the page again"
        raise refusal(gateway, call, ProblemCode.INVALID_CSRF_TOKEN, detail)
    return principal


def reader_of(gateway: GovernedGateway, request: Request) -> Principal | None:
    """Return whose session a request has, or None if it has none that is valid. It may read: an
    order also needs the CSRF token (``principal_of``). Raises TryAgain."""
    secret = request.cookies.get(COOKIE)
    if not secret:
        return None
    with gateway.store.reading() as session:
        session_row = tokens.of_session(session, _id_of(secret))
    if session_row is None or session_row[1] <= clock.now_ns():
        return None
    try:
        return gateway.verifier.principal(session_row[0])
    except InvalidToken:
        return None


def _id_of(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
