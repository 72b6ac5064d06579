"""Tells whether a caller who was let in may stay, for answers that last, like streams of events."""

from __future__ import annotations

from fastapi import Request

from admin_api.access import sessions
from admin_api.access.principal import Principal
from admin_api.access.tokens import Refused
from admin_api.gateway import Gateway
from admin_api.store import tokens
from gateway.errors import NamespaceError

CHECK_SECONDS = 5.0
"""A token or session that has ended ends its streams after so long."""


def lasts(gateway: Gateway, request: Request, principal: Principal) -> bool:
    """Return whether the token or the session of a request is still valid.

    While that cannot be read, it counts as valid: the next look decides.
    """
    try:
        if "authorization" not in request.headers and sessions.COOKIE in request.cookies:
            return sessions.is_open(gateway, request.cookies[sessions.COOKIE])
        with gateway.store.reading() as session:
            token = tokens.find(session, principal.token_id)
        if token is None:
            return False
        gateway.verifier.principal(token)
    except Refused:
        return False
    except NamespaceError:
        return True
    return True
