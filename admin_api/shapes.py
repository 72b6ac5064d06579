"""What bodies, parameters and answers of several routes have in common."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

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
"""A moment in a query: ISO 8601 with its offset from UTC."""
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
"""The parameter ``run``, which ``gateway.escapes.bytes_of`` makes bytes of."""
