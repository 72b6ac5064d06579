"""Problem details (RFC 9457) for every error, with one map from an error to a code.

Each problem has a code, which has a status. Programs decide by the code: it never changes its
meaning, while titles and details are for people, and change.

A problem says what happened and what to do. It never has a traceback, a secret or a database URL
with a password. An error that is not foreseen is logged with the request's id, and the answer names
the id.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Self

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from gateway.common import errors
from gateway.common.errors import (
    ControlSocketClosed,
    NamespaceError,
    NotPossible,
    SpillwayError,
    StoreError,
    TrashRefused,
    UserError,
)
from gateway.common.models import to_json
from gateway.common.text import shown

log = logging.getLogger("admin")

MEDIA_TYPE = "application/problem+json"
_NOT_JSON = "Content-Type: a body is JSON: send application/json"
_UNREADABLE = {"loc": ("body", 0), "msg": "it is no JSON in UTF-8"}
TYPE = "urn:spillway:problem:"
"""The ``type`` of a problem is this, and its code."""


class ProblemCode(StrEnum):
    """What kind of problem an answer tells of. A code keeps its meaning and its status. Later
    versions may have more codes: a program that does not know one decides by the status."""

    status: int
    """The status of HTTP that answers it."""
    meaning: str

    def __new__(cls, code: str, status: int, meaning: str) -> Self:
        made = str.__new__(cls, code)
        made._value_ = code
        made.status, made.meaning = status, meaning
        return made

    INVALID_CURSOR = "invalid_cursor", 400, "The cursor is not one of this list."
    INVALID_OPERATION = "invalid_operation", 400, "The namespace has no such operation."
    MISSING_TOKEN = "missing_token", 401, "The request has neither a token nor a session."
    INVALID_TOKEN = "invalid_token", 401, "The token is wrong, expired or revoked."
    ENDED_SESSION = "ended_session", 401, "The session of the pages has ended."
    INSUFFICIENT_ROLE = "insufficient_role", 403, "The caller has a lower role than is needed."
    INVALID_CSRF_TOKEN = "invalid_csrf_token", 403, "The CSRF token is missing or wrong."
    DENIED_ACCESS = "denied_access", 403, "The permissions of the file do not allow it."
    RESERVED_PATH = "reserved_path", 403, "Only the gateway changes what has this path."
    UNKNOWN_ROUTE = "unknown_route", 404, "The API has no such address."
    MISSING_RESOURCE = "missing_resource", 404, "There is nothing of this path, name or id."
    UNSUPPORTED_METHOD = "unsupported_method", 405, "The address does not have this method."
    SLOW_BODY = "slow_body", 408, "The body took too long."
    CONFLICTING_STATE = "conflicting_state", 409, "What is there does not allow it."
    EXISTING_RESOURCE = "existing_resource", 409, "There is one of this name already."
    REPLACED_FILE = "replaced_file", 409, "The path is that of another inode now."
    BUSY_FILE = "busy_file", 409, "The file is open, or the bucket does not have it as it is."
    NONEMPTY_DIRECTORY = "nonempty_directory", 409, "The directory has something in it."
    REFUSED_DELETION = "refused_deletion", 409, "The checkpoint is not what it was."
    ENDED_JOB = "ended_job", 409, "The job has ended."
    UNFINISHED_CALL = "unfinished_call", 409, "The first call with this key is under way."
    INTERRUPTED_CALL = "interrupted_call", 409, "It is not known how the first call ended."
    UNKEPT_ANSWER = "unkept_answer", 409, "The answer to the first call was not kept."
    REFUSED_EXPORT = "refused_export", 409, "The export cannot be as it was asked for."
    INVALID_CONFIGURATION = "invalid_configuration", 409, "A key of the configuration is wrong."
    SCHEMA_MISMATCH = "schema_mismatch", 409, "The database is of another version."
    IDENTITY_MISMATCH = "identity_mismatch", 409, "Database, files and bucket do not match."
    OTHER_SERVER = "other_server", 409, "Another gateway serves this namespace."
    LOCKED_DATA_DIRECTORY = "locked_data_directory", 409, "Another process has the directory."
    VERSION_CONFLICT = "version_conflict", 412, "It was changed since the caller read it."
    OVERSIZED_BODY = "oversized_body", 413, "The body is larger than the API takes."
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type", 415, "The body is no JSON."
    FOREIGN_HOST = "foreign_host", 421, "The Host header names another server."
    INVALID_REQUEST = "invalid_request", 422, "A parameter or the body is wrong: see `errors`."
    INVALID_POLICY = "invalid_policy", 422, "A policy cannot be used as it was written."
    INVALID_IDEMPOTENCY_KEY = "invalid_idempotency_key", 422, "The key has a wrong form."
    REUSED_IDEMPOTENCY_KEY = "reused_idempotency_key", 422, "The key is that of another request."
    MISSING_PRECONDITION = "missing_precondition", 428, "The change needs the header If-Match."
    REQUEST_LIMIT = "request_limit", 429, "Too many requests came at once."
    TOKEN_FAILURE_LIMIT = "token_failure_limit", 429, "Too many wrong tokens came from there."
    INTERNAL_ERROR = "internal_error", 500, "Nothing foresaw it: the log has the id."
    BUCKET_ERROR = "bucket_error", 502, "A request to the bucket failed."
    BUCKET_REFUSAL = "bucket_refusal", 502, "The bucket refuses all requests: see credentials."
    BUCKET_OWNER_CONFLICT = "bucket_owner_conflict", 502, "The prefix may be another gateway's."
    OBJECT_REFUSAL = "object_refusal", 502, "The bucket refuses this object."
    OCCUPIED_KEY = "occupied_key", 502, "Another object has the key."
    OVERSIZED_OBJECT = "oversized_object", 502, "The bucket takes no object of this size."
    CORRUPT_OBJECT = "corrupt_object", 502, "The bytes that came are not those that were stored."
    ARCHIVED_OBJECT = "archived_object", 502, "The object is on its way back from an archive."
    UNAVAILABLE_BUCKET = "unavailable_bucket", 503, "The bucket does not answer now."
    UNAVAILABLE_NFS_SERVER = "unavailable_nfs_server", 503, "The NFS server does not answer."
    UNAVAILABLE_DATABASE = "unavailable_database", 503, "A database cannot be used now."
    BUSY_NAMESPACE = "busy_namespace", 503, "Something else changes it now: try again."
    JOB_LIMIT = "job_limit", 503, "Too many jobs wait already."
    EVENT_STREAM_LIMIT = "event_stream_limit", 503, "Too many listeners follow the events."
    FULL_DISK = "full_disk", 507, "The local disk, or its share for dirty data, is full."


_CODE_OF_ERROR: tuple[tuple[type[SpillwayError], ProblemCode], ...] = (
    (errors.PolicyError, ProblemCode.INVALID_POLICY),
    (errors.ExportChanged, ProblemCode.VERSION_CONFLICT),
    (errors.ExportRefused, ProblemCode.REFUSED_EXPORT),
    (errors.ConfigError, ProblemCode.INVALID_CONFIGURATION),
    (errors.SchemaError, ProblemCode.SCHEMA_MISMATCH),
    (errors.IdentityError, ProblemCode.IDENTITY_MISMATCH),
    (errors.AnotherServer, ProblemCode.OTHER_SERVER),
    (errors.InUse, ProblemCode.LOCKED_DATA_DIRECTORY),
    (errors.UserError, ProblemCode.CONFLICTING_STATE),
    (errors.StoreUnavailable, ProblemCode.UNAVAILABLE_BUCKET),
    (errors.Deferred, ProblemCode.ARCHIVED_OBJECT),
    (errors.OtherOwner, ProblemCode.BUCKET_OWNER_CONFLICT),
    (errors.StoreRefused, ProblemCode.BUCKET_REFUSAL),
    (errors.Occupied, ProblemCode.OCCUPIED_KEY),
    (errors.ForeignObject, ProblemCode.OCCUPIED_KEY),
    (errors.TooLarge, ProblemCode.OVERSIZED_OBJECT),
    (errors.WrongBytes, ProblemCode.CORRUPT_OBJECT),
    (errors.ObjectRefused, ProblemCode.OBJECT_REFUSAL),
    (errors.StoreError, ProblemCode.BUCKET_ERROR),
    (errors.NotThere, ProblemCode.MISSING_RESOURCE),
    (errors.Changed, ProblemCode.VERSION_CONFLICT),
    (errors.NotPossible, ProblemCode.CONFLICTING_STATE),
    (errors.ControlSocketClosed, ProblemCode.UNAVAILABLE_NFS_SERVER),
    (errors.TrashRefused, ProblemCode.REFUSED_DELETION),
    (errors.NotFound, ProblemCode.MISSING_RESOURCE),
    (errors.Stale, ProblemCode.MISSING_RESOURCE),
    (errors.Exists, ProblemCode.EXISTING_RESOURCE),
    (errors.NotEmpty, ProblemCode.NONEMPTY_DIRECTORY),
    (errors.Busy, ProblemCode.BUSY_FILE),
    (errors.AccessDenied, ProblemCode.DENIED_ACCESS),
    (errors.NotPermitted, ProblemCode.DENIED_ACCESS),
    (errors.ReadOnly, ProblemCode.RESERVED_PATH),
    (errors.NoSpace, ProblemCode.FULL_DISK),
    (errors.TryAgain, ProblemCode.BUSY_NAMESPACE),
    (errors.NamespaceError, ProblemCode.INVALID_OPERATION),
)
"""The first class that fits an error decides."""
_RETRY_SECONDS = {
    ProblemCode.UNAVAILABLE_BUCKET: 5,
    ProblemCode.UNAVAILABLE_NFS_SERVER: 5,
    ProblemCode.BUSY_NAMESPACE: 1,
}
"""After so long a caller may try again."""
_CODE_OF_STATUS = {
    404: ProblemCode.UNKNOWN_ROUTE,
    405: ProblemCode.UNSUPPORTED_METHOD,
    408: ProblemCode.SLOW_BODY,
    413: ProblemCode.OVERSIZED_BODY,
}
"""The problems that the framework raises by status."""


class ProblemDetails(BaseModel):
    """A problem as the OpenAPI shows it (RFC 9457, section 3)."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    type: str = Field(examples=[f"{TYPE}{ProblemCode.MISSING_RESOURCE}"])
    """It ends in the code."""
    code: ProblemCode
    title: str
    status: int
    detail: str
    instance: str | None = None
    """The id of the request. Lines of the log have it too."""


class Problem(SpillwayError):
    """An answer that is not a success.

    Args:
        code: Which one it is. It has the status of HTTP.
        detail: One line that says what happened and what to do.
        headers: Of the answer.
        members: Further members of the answer: the current representation of what was changed, say.
    """

    def __init__(
        self,
        code: ProblemCode,
        detail: str,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = code.status
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


def _codes_of(status: int) -> list[ProblemCode]:
    return [code for code in ProblemCode if code.status == status]


def _example(status: int) -> dict[str, Any]:
    detail = "one line that says what happened and what to do"
    instance = "0123456789abcdef0123456789abcdef"
    return _details(Problem(_codes_of(status)[0], detail), instance).model_dump(mode="json")


def _details(problem: Problem, instance: str | None) -> ProblemDetails:
    return ProblemDetails(
        type=f"{TYPE}{problem.code}",
        code=problem.code,
        title=HTTPStatus(problem.status).phrase,
        status=problem.status,
        detail=shown(problem.detail),
        instance=instance,
        **to_json(problem.members),
    )


def describe_details(schemas: dict[str, Any]) -> None:
    """Add the schema of problems to those of the OpenAPI document."""
    made = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(made.pop("$defs"))
    lines = (f"- `{code}` ({code.status}): {code.meaning}" for code in ProblemCode)
    described = schemas[ProblemCode.__name__]
    described["description"] = "\n".join([described["description"], "", *lines])
    schemas[ProblemDetails.__name__] = made


def answer(request: Request, problem: Problem) -> Response:
    """Return a problem as a response."""
    body = _details(problem, getattr(request.state, "request_id", None))
    # In ASCII: a body may have had half a surrogate pair, which UTF-8 cannot say.
    text = json.dumps(body.model_dump(mode="json"))
    return Response(text, problem.status, problem.headers, media_type=MEDIA_TYPE)


def of(exc: Exception) -> Problem:
    """Return the problem of an error that the gateway raises on purpose."""
    code = next((code for kind, code in _CODE_OF_ERROR if isinstance(exc, kind)), None)
    if code is None:
        raise exc
    seconds = _RETRY_SECONDS.get(code)
    headers = None if seconds is None else {"Retry-After": str(seconds)}
    return Problem(code, " ".join(str(exc).splitlines()), headers)


def of_status(status: int) -> ProblemCode:
    """Return the code of a problem that the framework raises. One that it is not known to raise is
    shown as a request that is wrong."""
    return _CODE_OF_STATUS.get(status, ProblemCode.INVALID_REQUEST)


def unforeseen(request: Request, exc: Exception) -> Response:
    """Log an error that nothing foresaw, and return what answers it."""
    log.error("unexpected", exc_info=exc)
    detail = "an error that was not foreseen: the log of the admin API has it under this id"
    return answer(request, Problem(ProblemCode.INTERNAL_ERROR, detail))


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

    Raises Problem for who may not send one.

    Args:
        require_sender: called about a body that is wrong.
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
            return answer(request, Problem(ProblemCode.UNSUPPORTED_MEDIA_TYPE, _NOT_JSON))
        wrong = [
            {"where": shown(".".join(map(str, error["loc"]))), "what": shown(error["msg"])}
            for error in exc.errors()
        ]
        first = f"{wrong[0]['where']}: {wrong[0]['what']}" if wrong else "the request is wrong"
        return answer(request, Problem(ProblemCode.INVALID_REQUEST, first, errors=wrong))

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
        return answer(request, Problem(of_status(exc.status_code), detail, headers))

    async def broken(request: Request, exc: Exception) -> Response:
        log.error("a database cannot be used", exc_info=exc)
        detail = "a database of the gateway cannot be used now: the log has the reason: try again"
        again = {"Retry-After": "5"}
        return answer(request, Problem(ProblemCode.UNAVAILABLE_DATABASE, detail, again))

    raised = (UserError, StoreError, TrashRefused, NotPossible, NamespaceError, ControlSocketClosed)
    for kind in (Problem, *raised):
        app.add_exception_handler(kind, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(sqlite3.Error, broken)
