"""Refusals of access. The audit has them, but no more of them than people can read."""

from __future__ import annotations

import logging
import sqlite3

from admin_api.access.tokens import MustWait, Refused
from admin_api.calls import Call
from admin_api.gateway import Gateway
from admin_api.problems import Problem
from admin_api.store import audit
from admin_api.store.audit import Outcome
from gateway.errors import NamespaceError

log = logging.getLogger("admin")

CHALLENGE = {"WWW-Authenticate": "Bearer"}


def refusal(
    gateway: Gateway,
    call: Call,
    status: int,
    detail: str,
    headers: dict[str, str] | None = None,
) -> Problem:
    """Return the problem that refuses a call, after the audit has it."""
    # Who sends refused calls without end must not fill the disk. The log has a line of each.
    if gateway.noted_refusals.failed("all"):
        try:
            with gateway.store.writing() as session:
                audit.add(session, call.origin, Outcome(status, detail))
        except (NamespaceError, sqlite3.Error) as exc:
            log.error("the audit log lacks a refusal (%s): %s", detail, exc)
    return Problem(status, detail, headers)


def refused_token(gateway: Gateway, call: Call, exc: Refused | MustWait) -> Problem:
    """Return the problem of a token that is not valid, or that is not looked at."""
    if isinstance(exc, MustWait):
        # The wrong tokens before it are in the audit.
        return Problem(429, str(exc), {"Retry-After": str(exc.seconds)})
    return refusal(gateway, call, 401, str(exc), CHALLENGE)
