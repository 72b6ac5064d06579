"""Who looks at the pages: their login, and the forms that they send."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends, Request

from admin_api.problems import Problem
from gateway.escapes import bytes_of


async def _sent(request: Request) -> Mapping[str, str]:
    form = await request.form()
    sent = {name: value for name, value in form.items() if isinstance(value, str)}
    for name, value in sent.items():
        if "\0" in value:
            raise Problem(422, f"{name}: it has a NUL character, which no database keeps")
    return sent


Sent = Annotated[Mapping[str, str], Depends(_sent)]
"""The parameter of a view that takes a form: its values by name."""


def number_in(sent: Mapping[str, str], name: str) -> int:
    """Return a whole number of a form, or 0 if there is none."""
    text = sent.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 18 else 0


def path_in(text: str) -> str:
    """Return a path as ``gateway.control`` takes it. Parameters: text, with %XX (gateway.escapes).

    Raises Problem.
    """
    try:
        raw = bytes_of(text)
    except UnicodeEncodeError:
        raise Problem(422, "half a surrogate pair is no character: write bytes as %XX") from None
    if b"\0" in raw:
        raise Problem(422, "a path has no NUL byte")
    return os.fsdecode(raw)


def local(address: str) -> str:
    """Return an address if it is one of this site, and the dashboard's otherwise."""
    is_local = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_local and address.isprintable() else "/"
