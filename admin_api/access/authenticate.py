"""Finds out who sends a request."""

from __future__ import annotations

from fastapi import Request

from admin_api.access.principal import Principal
from admin_api.problems import Problem


def authenticate(_request: Request) -> Principal:
    """Return who sends a request. Raises Problem without a token or a login that is valid."""
    raise Problem(401, "a token is needed: spillway token create", {"WWW-Authenticate": "Bearer"})
