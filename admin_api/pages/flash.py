"""Carries one sentence from an order to the page that follows it, in a cookie that is read once."""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import quote, unquote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from admin_api.calls import Call
from admin_api.jobs.rows import Row

_COOKIE = "spillway_said"
_KINDS = ("ok", "info", "warn", "bad")
_MOST = 1000
"""Browsers refuse cookies of more than 4 KiB, and a quoted letter may take nine."""


class Message(NamedTuple):
    """What is shown above the next page."""

    kind: str
    text: str


def after(path: str, kind: str, text: str) -> RedirectResponse:
    """Return the answer to an order: the browser goes to a page, which says what happened.

    Parameters: path of the page; kind, ok, info, warn or bad; text, one sentence.
    """
    response = RedirectResponse(path, 303)
    value = quote(f"{kind}:{text[:_MOST]}"[: 3 * _MOST])[:3500]
    response.set_cookie(_COOKIE, value, max_age=60, httponly=True, samesite="strict", path="/")
    return response


def begun(call: Call, row: Row, text: str) -> RedirectResponse:
    """Return the answer to an order that began a job: the browser goes to the jobs. Parameters:
    text, what it does."""
    call.after = {"job": row.id, "kind": row.kind, "arguments": json.loads(row.arguments)}
    return after("/jobs", "info", f"{text}. This page shows how far it is.")


def read(request: Request) -> Message | None:
    """Return what the order before this page said."""
    kind, _, text = unquote(request.cookies.get(_COOKIE, "")).partition(":")
    return Message(kind, text) if kind in _KINDS and text else None


def clear(response: Response) -> None:
    """Have the browser forget it."""
    response.delete_cookie(_COOKIE, path="/")
