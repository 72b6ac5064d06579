"""Paths in requests and answers: UTF-8, with %XX for what a text cannot carry, reversibly.

A name on NFS is any bytes. Valid UTF-8 stays as it is. Other bytes and control characters are
written %XX, and so is a % that would read as such an escape: the form of object keys
(gateway.escapes). A path in an answer can be sent back as it is: in a query string it is
percent-encoded once more, as every value there.
"""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator, Field

from admin_api.shapes import PATH_MAX
from gateway.control.paths import path_of as path_of
from gateway.escapes import bytes_of
from gateway.escapes import encoded as encoded

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
"""A path in a body. The route gets it as the command line does: what ``gateway.control`` takes."""

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
