"""Pages of lists: a cursor is the key of the last row that was shown, so no page is read twice."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from admin_api.problems import Problem

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
    """Return the cursor of a row's key. Parameters: key, of values that JSON can hold."""
    text = json.dumps(key, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def key_of(cursor: str | None, *kinds: type | tuple[type, ...]) -> list[Any] | None:
    """Return the key that a cursor has, or None without one.

    Parameters: kinds, the type of each value of the key. Raises Problem if the cursor was not made
    by ``cursor_of`` for this list.
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
        or not all(isinstance(one, kind) for one, kind in zip(key, kinds, strict=True))
    ):
        raise Problem(400, "cursor: it is not one of this list: begin without a cursor")
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
        raise Problem(400, "cursor: it is not one of this list: begin without a cursor") from None
