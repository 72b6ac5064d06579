"""Who looks at the pages: their login, and the token that their forms carry."""

from __future__ import annotations

from fastapi import Request


def csrf_of(_request: Request) -> str:
    """Return the token that a form of this login must carry."""
    return ""
