"""Login page: a token for a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from admin_api.access import sessions
from admin_api.access.authentication import Viewer
from admin_api.audit import Recorded
from admin_api.pages.render import Sent, local, page
from admin_api.problems import Problem
from admin_api.requests import Governed

router = APIRouter()


@router.get("/login")
def show(request: Request, next: str = "/") -> Response:
    """Show the form."""
    return page(request, "login.html", None, next=local(next), wrong=None)


@router.post("/login")
def log_in(
    request: Request,
    gateway: Governed,
    call: Recorded,
    token: Annotated[str, Form(max_length=400)] = "",
    next: Annotated[str, Form(max_length=4096)] = "/",
) -> Response:
    """Open a session, and go to the page that was wanted."""
    try:
        opened = sessions.log_in(gateway, call, token)
    except Problem as exc:
        wrong = exc.detail[:1].upper() + exc.detail[1:]
        return page(request, "login.html", None, exc.status, next=local(next), wrong=wrong)
    response = RedirectResponse(local(next), 303)
    sessions.set_cookie(gateway, response, opened)
    return response


@router.post("/logout")
def log_out(gateway: Governed, request: Request, _who: Viewer, _sent: Sent) -> Response:
    """End the session."""
    response = RedirectResponse("/login", 303)
    sessions.log_out(gateway, request, response)
    return response
