"""The colours of the pages: a cookie of the browser."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse

from admin_api.pages.render import THEME, THEMES
from admin_api.pages.visitor import local

router = APIRouter()
_YEAR_SECONDS = 365 * 86_400


@router.post("/theme")
def choose(theme: Annotated[str, Form()], back: Annotated[str, Form()] = "/") -> RedirectResponse:
    """Keep the colours that a person chose. Anything but light and dark: what the system says."""
    response = RedirectResponse(local(back), 303)
    if theme in THEMES:
        response.set_cookie(THEME, theme, _YEAR_SECONDS, samesite="lax", httponly=True)
    else:
        response.delete_cookie(THEME)
    return response
