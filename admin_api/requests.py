"""Parts that the routes share: the gateway, entity tags, pages of lists, paths, bodies.

By entity tags two people who change one thing do not overwrite each other (RFC 9110, 13.1.1). The
cursor of a list is the key of the last row that was shown, so no page is read twice.

A name on NFS is any bytes. In paths, valid UTF-8 stays as it is. Other bytes and control characters
are written %XX, and so is a % that would read as such an escape: the form of object keys
(gateway.common.text). A path in an answer can be sent back as it is: in a query string it is
percent-encoded once more, as every value there.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Header, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from admin_api import store as answers
from admin_api.access.principal import Limiter
from admin_api.access.tokens import Verifier
from admin_api.problems import Problem, ProblemCode
from admin_api.store import open_store
from gateway.common.text import bytes_of
from gateway.common.text import encoded as encoded
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.service.paths import path_of as path_of


@dataclass(frozen=True)
class GovernedGateway:
    """One gateway, for the life of the process.

    It lives in ``app.state.gateway``. Routes open a transaction of a database with ``reading()`` or
    ``writing()`` and keep it no longer than they need.
    """

    settings: Settings
    database: Database
    """The namespace."""
    store: Database
    """The admin API's own database (admin_api.store)."""
    verifier: Verifier
    noted_refusals: Limiter
    """Which refusals the audit gets."""
    noted_logins: Limiter
    """Which logins the audit gets, by token."""


REFUSALS = 100
REFUSALS_PER_SECOND = 0.1
"""The rows of refusals that the audit gets: at once, and then in a second."""
LOGINS = 20
LOGINS_PER_SECOND = 1 / 600
"""The rows of logins that the audit gets of one token: at once, and then in a second."""


def open_gateway(settings: Settings) -> GovernedGateway:
    """Return the gateway with these settings. Raises UserError."""
    store = open_store(settings)
    with store.writing() as session:
        answers.interrupt(session)
    return GovernedGateway(
        settings,
        Database(settings.database_url),
        store,
        Verifier(store),
        Limiter(REFUSALS, REFUSALS_PER_SECOND),
        Limiter(LOGINS, LOGINS_PER_SECOND),
    )


async def _gateway(request: Request) -> GovernedGateway:
    gateway: GovernedGateway = request.app.state.gateway
    return gateway


Governed = Annotated[GovernedGateway, Depends(_gateway)]
"""The parameter of a route that needs the gateway."""


IfMatch = Annotated[
    str | None, Header(description="The ETag of what is to be changed, as it was read.")
]


def etag_of(version: int | str) -> str:
    """Return the strong entity tag of a version."""
    return f'"{version}"'


def require_match(
    if_match: str | None,
    version: int | str | None,
    current: Any,
    difference: Callable[[], Any] | None = None,
) -> None:
    """Raise Problem unless a change was made for the version that is there.

    Args:
        if_match: the header.
        version: that is there, or None if there is nothing.
        current: the representation that the answer shows when another caller changed it.
        difference: returns how what was sent differs from that, for the answer to show too.
    """
    if if_match is None:
        raise Problem(
            ProblemCode.MISSING_PRECONDITION,
            "If-Match is missing: read it first, and send its ETag as If-Match",
        )
    tags = _tags(if_match)
    if version is not None and ("*" in tags or etag_of(version) in tags):
        return
    raise changed(version, current, **({} if difference is None else {"difference": difference()}))


def changed(version: int | str | None, current: Any, **members: Any) -> Problem:
    """Return the problem of a change that was not made for what is there.

    Args:
        version: that is there, or None if there is nothing.
        current: its representation.
        members: what else the answer shows.
    """
    return Problem(
        ProblemCode.VERSION_CONFLICT,
        "it was changed meanwhile: compare `current` with yours, and send the new ETag",
        None if version is None else {"ETag": etag_of(version)},
        current=current,
        **members,
    )


def versions_of(if_match: str | None) -> frozenset[str] | None:
    """Return the versions for which a change is made, or None for any."""
    tags = ["*"] if if_match is None else _tags(if_match)
    return None if "*" in tags else frozenset(tag.strip('"') for tag in tags)


def _tags(if_match: str) -> list[str]:
    return [tag.strip() for tag in if_match.split(",")]


T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1000, description="Rows of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=4096, description="`next` of the page before. None: the first.")
]
LIMIT = 100


class Page(BaseModel, Generic[T]):
    """A page of a list."""

    items: list[T]
    next: str | None = None
    """The cursor of the next page, or None after the last one."""


def cursor_of(key: list[Any]) -> str:
    """Return the cursor of a row's key.

    Args:
        key: key of values that JSON can hold.
    """
    text = json.dumps(key, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def key_of(cursor: str | None, *kinds: type | tuple[type, ...]) -> list[Any] | None:
    """Return the key that a cursor has, or None without one.

    Raises Problem if the cursor was not made by ``cursor_of`` for this list.

    Args:
        kinds: the type of each value of the key.
    """
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        # Half a surrogate pair is no text of a database.
        json.dumps(key, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        key = None
    if (
        not isinstance(key, list)
        or len(key) != len(kinds)
        or not all(isinstance(part, kind) for part, kind in zip(key, kinds, strict=True))
    ):
        raise Problem(
            ProblemCode.INVALID_CURSOR, "cursor: it is not one of this list: begin without a cursor"
        )
    return key


def cursor_of_name(name: bytes) -> str:
    """Return the cursor of a name in a directory."""
    return cursor_of([name.hex()])


def name_of(cursor: str | None) -> bytes:
    """Return the name that a cursor of a directory has, b"" without one. Raises Problem."""
    key = key_of(cursor, str)
    try:
        return b"" if key is None else bytes.fromhex(key[0])
    except ValueError:
        raise Problem(
            ProblemCode.INVALID_CURSOR, "cursor: it is not one of this list: begin without a cursor"
        ) from None


PATH_MAX = 12_288
"""Characters. A path on Linux has at most 4,096 bytes, each of which is written as %XX at worst."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:")
INTEGER_MAX = (1 << 63) - 1
"""The largest integer of a database."""


class Body(BaseModel):
    """A body of a request: what it does not declare is refused, and a text is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


async def known_query(request: Request) -> None:
    """Raise RequestValidationError for a parameter of the query that the route does not declare: a
    guard with a wrong name would be dropped."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    if dependant is None:
        return
    unknown = request.query_params.keys() - _query_names(dependant)
    if unknown:
        wrong = "there is no such parameter: see GET /api/v1/openapi.json"
        raise RequestValidationError(
            [{"loc": ("query", name), "msg": wrong} for name in sorted(unknown)]
        )


def _query_names(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*map(_query_names, dependant.dependencies))


def _storable(text: str) -> str:
    """Return a text that a database can keep. Raises ValueError, which becomes the problem 422."""
    if "\0" in text:
        raise ValueError("it has a NUL character, which no database keeps: remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no character: remove it") from None
    return text


Storable = AfterValidator(_storable)
"""Has a text of a request be one that a database can keep."""


def _moment(value: object) -> object:
    """Let no number pass, which would be seconds since 1970. Raises ValueError."""
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError("it is no moment: write 2026-11-23T09:30:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]
"""A moment in a query: RFC 3339."""
Octal = Annotated[str, Field(pattern="^[0-7]{3,4}$", description="Permissions, octal.")]
Id = Annotated[int, Field(ge=0, le=(1 << 32) - 2)]
"""The number of a user or group, as clients have it."""
Ino = Annotated[int, Path(ge=1, le=INTEGER_MAX, description="`ino` of an answer.")]
Note = Annotated[
    str,
    Field(max_length=1000, description="Why, for other people.", examples=["the best by MMLU"]),
    Storable,
]
RunQuery = Annotated[
    str | None,
    Query(
        max_length=PATH_MAX,
        description="Only this run, as answers write it in `run`. Default: all.",
        examples=["jobs/llama-7b"],
    ),
]
"""The parameter ``run``, which ``gateway.common.text.bytes_of`` makes bytes of."""


_DESCRIPTION = (
    "A path as clients see it, from the export's path on. Bytes that are not UTF-8, control "
    "characters, and a % before two hexadecimal digits are written %XX."
)
_EXAMPLES = ["/checkpoints/run-7/step-100"]


def decoded(text: str) -> str:
    """Return a path of a request as the command line has it: str of ``os.fsdecode``.

    ``encoded`` is the inverse. Raises ValueError, which becomes the problem 422.
    """
    try:
        raw = bytes_of(text)
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no character: write bytes as %XX") from None
    if b"\0" in raw:
        raise ValueError("a path has no NUL byte")
    return os.fsdecode(raw)


PathText = Annotated[
    str,
    Field(min_length=1, max_length=PATH_MAX, description=_DESCRIPTION, examples=_EXAMPLES),
    AfterValidator(decoded),
]
"""A path in a body. The route gets it as the command line does: what ``gateway.service`` takes."""

PathQuery = Annotated[
    str,
    Query(
        alias="path",
        min_length=1,
        max_length=PATH_MAX,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    ),
    AfterValidator(decoded),
]
"""The same as the query parameter ``path``."""

PathOrAll = Annotated[
    str | None,
    Query(
        alias="path",
        min_length=1,
        max_length=PATH_MAX,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    ),
    AfterValidator(lambda text: None if text is None else decoded(text)),
]
"""The same, of a list that has everything without it."""
