"""What bodies, parameters and answers of several routes have in common."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

INTEGER_MAX = (1 << 63) - 1
"""The largest integer of a database."""


class Body(BaseModel):
    """A body of a request: what it does not declare is refused, and a text is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


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
Ino = Annotated[int, Path(ge=1, le=INTEGER_MAX, description="`ino` of an answer.")]
Note = Annotated[
    str,
    Field(max_length=1000, description="Why, for other people.", examples=["the best by MMLU"]),
    Storable,
]
RunQuery = Annotated[
    str | None,
    Query(
        max_length=32_768,
        description="Only this run, as answers write it in `run`. Default: all.",
        examples=["jobs/llama-7b"],
    ),
]
"""The parameter ``run``, which ``gateway.escapes.bytes_of`` makes bytes of."""
