"""Who looks at the pages: their login, and the forms that they send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends, Request


def csrf_of(_request: Request) -> str:
    """Return the token that a form of this login must carry."""
    return ""


async def _sent(request: Request) -> Mapping[str, str]:
    form = await request.form()
    return {name: value for name, value in form.items() if isinstance(value, str)}


Sent = Annotated[Mapping[str, str], Depends(_sent)]
"""The parameter of a view that takes a form: its values by name."""
