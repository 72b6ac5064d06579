"""Answers errors as problem details (RFC 9457), with one map from an error to a status.

A problem says what happened and what to do. It never has a traceback, a secret or a database URL
with a password. An error that is not foreseen is logged with the request's id, and the answer names
the id.
"""

from __future__ import annotations

import errno
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from gateway.common.errors import (
    Changed,
    DoorClosed,
    ExportChanged,
    NamespaceError,
    NotPossible,
    NotThere,
    PolicyError,
    SpillwayError,
    StoreError,
    StoreUnavailable,
    TrashRefused,
    UserError,
)
from gateway.common.text import shown

log = logging.getLogger("admin")

MEDIA_TYPE = "application/problem+json"
_NOT_JSON = "Content-Type: a body is JSON: send application/json"
_UNREADABLE = {"loc": ("body", 0), "msg": "it is no JSON in UTF-8"}
_STATUS_OF_ERRNO = {
    errno.ENOENT: 404,
    errno.ESTALE: 404,
    errno.EEXIST: 409,
    errno.ENOTEMPTY: 409,
    errno.EBUSY: 409,
    errno.EACCES: 403,
    errno.EPERM: 403,
    errno.EROFS: 403,
    errno.ENOSPC: 507,
    errno.EAGAIN: 503,
}


class ProblemDetails(BaseModel):
    """A problem as the OpenAPI shows it (RFC 9457, section 3)."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str | None = None
    """The id of the request. Lines of the log have it too."""


class Problem(SpillwayError):
    """An answer that is not a success.

    Parameters: status of HTTP; detail, one line that says what happened and what to do; headers;
    members, further members of the answer (the current representation of what was changed, say).
    """

    def __init__(
        self, status: int, detail: str, headers: dict[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.members = members


def describe(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what a route declares as ``responses`` for the problems that it answers."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/ProblemDetails"},
                    "example": _example(status),
                }
            },
        }
        for status in statuses
    }


def _example(status: int) -> dict[str, Any]:
    return ProblemDetails(
        title=HTTPStatus(status).phrase,
        status=status,
        detail="one line that says what happened and what to do",
        instance="0123456789abcdef0123456789abcdef",
    ).model_dump()


def answer(request: Request, problem: Problem) -> Response:
    """Return a problem as a response."""
    body = ProblemDetails(
        title=HTTPStatus(problem.status).phrase,
        status=problem.status,
        detail=shown(problem.detail),
        instance=getattr(request.state, "request_id", None),
        **problem.members,
    )
    # In ASCII: a body may have had half a surrogate pair, which UTF-8 cannot say.
    text = json.dumps(body.model_dump(mode="json"))
    return Response(text, problem.status, problem.headers, media_type=MEDIA_TYPE)


def of(exc: Exception) -> Problem:
    """Return the problem of an error that the gateway raises on purpose."""
    detail = " ".join(str(exc).splitlines())
    if isinstance(exc, PolicyError):
        return Problem(422, detail)
    if isinstance(exc, StoreUnavailable | DoorClosed):
        return Problem(503, detail, {"Retry-After": "5"})
    if isinstance(exc, StoreError):
        return Problem(502, detail)
    if isinstance(exc, Changed | ExportChanged):
        return Problem(412, detail)
    if isinstance(exc, NotThere):
        return Problem(404, detail)
    if isinstance(exc, UserError | TrashRefused | NotPossible):
        return Problem(409, detail)
    if isinstance(exc, NamespaceError):
        status = _STATUS_OF_ERRNO.get(exc.errno, 400)
        return Problem(status, detail, {"Retry-After": "1"} if status == 503 else None)
    raise exc


def unforeseen(request: Request, exc: Exception) -> Response:
    """Log an error that nothing foresaw, and return what answers it."""
    log.error("unexpected", exc_info=exc)
    detail = "an error that was not foreseen: the log of the admin API has it under this id"
    return answer(request, Problem(500, detail))


def _methods_at(request: Request) -> set[str]:
    """Return the methods that the path of a request has."""
    return {
        method
        for route in iter_route_contexts(request.app.routes)
        if route.path_regex.match(request.scope["path"])
        for method in route.methods or ()
    }


def install(app: FastAPI, require_sender: Callable[[Request], Awaitable[None]]) -> None:
    """Have an application answer every error as a problem.

    Parameters: require_sender, called about a body that is wrong. Raises Problem for who may not
    send one.
    """

    async def ours(request: Request, exc: Exception) -> Response:
        return answer(request, exc if isinstance(exc, Problem) else of(exc))

    async def invalid(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        try:
            await require_sender(request)
        except Problem as problem:
            return answer(request, problem)
        if isinstance(exc.body, bytes):
            return answer(request, Problem(415, _NOT_JSON))
        errors = [
            {"where": shown(".".join(map(str, one["loc"]))), "what": shown(one["msg"])}
            for one in exc.errors()
        ]
        first = f"{errors[0]['where']}: {errors[0]['what']}" if errors else "the request is wrong"
        return answer(request, Problem(422, first, errors=errors))

    async def http(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        if exc.status_code == 400:
            # FastAPI could not read the body: it is not UTF-8.
            return await invalid(request, RequestValidationError([_UNREADABLE]))
        headers = dict(exc.headers or {})
        detail = str(exc.detail)
        if exc.status_code == 405:
            # The router knows only the first of the routes that have a path.
            headers["Allow"] = ", ".join(sorted(_methods_at(request)))
            detail = f"{request.method} is not possible here: {headers['Allow']}"
        return answer(request, Problem(exc.status_code, detail, headers))

    async def broken(request: Request, exc: Exception) -> Response:
        log.error("a database cannot be used", exc_info=exc)
        detail = "a database of the gateway cannot be used now: the log has the reason: try again"
        return answer(request, Problem(503, detail, {"Retry-After": "5"}))

    raised = (UserError, StoreError, TrashRefused, NotPossible, NamespaceError, DoorClosed)
    for kind in (Problem, *raised):
        app.add_exception_handler(kind, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(sqlite3.Error, broken)
