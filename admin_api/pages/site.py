"""Application of the pages, beside the API.

It is one of its own because its errors are pages, and because the API's description has no pages.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from admin_api import problems
from admin_api.access import sessions
from admin_api.access.principal import Principal
from admin_api.pages import (
    activity,
    checkpoints,
    dashboard,
    exports,
    files,
    login,
    policies,
    recovery,
    render,
    settings,
)
from admin_api.pages.render import STATIC, page
from admin_api.problems import Problem, ProblemCode
from gateway.common.errors import SpillwayError

PAGES = (
    dashboard.router,
    checkpoints.router,
    checkpoints.orders_router,
    login.router,
    dashboard.live_router,
    recovery.router,
    files.router,
    files.queue_router,
    policies.plan_router,
    policies.editor_router,
    policies.router,
    checkpoints.promotions_router,
    exports.router,
    activity.clients_router,
    checkpoints.trash_router,
    activity.router,
    activity.audit_router,
    settings.router,
    render.router,
)


def add(api: FastAPI, prefix: str) -> FastAPI:
    """Serve the pages beside the API: they get every request that no route of the API takes.

    Returns their application.

    Args:
        prefix: prefix of the API, below which there are no pages.
    """
    site = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    # One gateway, one store of logins: a dependency finds them by the application that it is in.
    site.state = api.state
    site.dependency_overrides = api.dependency_overrides
    for router in PAGES:
        site.include_router(router)
    site.mount("/static", _Static(directory=STATIC))
    _answer_errors(site)
    nothing = api.router.default

    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        is_api = f"{scope['path']}/".startswith(f"{prefix}/")
        await (nothing if is_api else site)(scope, receive, send)

    # A mount would also take the requests that the API answers with 405.
    api.router.default = other
    return site


class _Static(StaticFiles):
    """Files that browsers keep: another content has another address (``render.static``)."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _answer_errors(site: FastAPI) -> None:
    async def ours(request: Request, exc: Exception) -> Response:
        return await _page_of(request, exc if isinstance(exc, Problem) else problems.of(exc))

    async def http(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        detail = "there is no such page: see the navigation" if exc.status_code == 404 else ""
        return await _page_of(
            request, Problem(problems.of_status(exc.status_code), detail or str(exc.detail))
        )

    async def invalid(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        error = exc.errors()[0]
        return await _page_of(
            request, Problem(ProblemCode.INVALID_REQUEST, f"{error['loc'][-1]}: {error['msg']}")
        )

    async def unforeseen(request: Request, _exc: Exception) -> Response:
        # It is raised again after the answer, and logged then.
        detail = "an error that was not foreseen: the log of the admin API has it under this id"
        return await _page_of(request, Problem(ProblemCode.INTERNAL_ERROR, detail))

    site.add_exception_handler(SpillwayError, ours)
    site.add_exception_handler(Exception, unforeseen)
    site.add_exception_handler(RequestValidationError, invalid)
    site.add_exception_handler(HTTPException, http)


async def _page_of(request: Request, problem: Problem) -> Response:
    """Return an error as a page, or the way to the login for who is not logged in."""
    if problem.status == 401:
        wanted = request.url.path if request.method == "GET" else "/"
        return RedirectResponse(f"/login?next={quote(wanted)}", 303)
    facts = {
        "status": problem.status,
        "title": HTTPStatus(problem.status).phrase,
        "detail": problem.detail,
        "instance": request.state.call.request_id,
    }
    is_order = request.method != "GET"
    who = await _who(request)
    return page(request, "error.html", who, problem.status, problem=facts, is_order=is_order)


async def _who(request: Request) -> Principal | None:
    """Return who is told of an error, or None: who is not logged in, or cannot be looked up. A page
    that does not exist has asked for no login."""
    if request.state.call.principal is not None:
        principal: Principal = request.state.call.principal
        return principal
    try:
        return await run_in_threadpool(sessions.reader_of, request.app.state.gateway, request)
    except SpillwayError:
        return None  # the error is shown without a name
