"""Entity tags: two people who change one thing do not overwrite each other (RFC 9110, 13.1.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header

from admin_api.problems import Problem

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

    Parameters: if_match, the header; version that is there, or None if there is nothing; current,
    the representation that the answer shows when another caller changed it; difference, which
    returns how what was sent differs from that, for the answer to show too.
    """
    if if_match is None:
        raise Problem(428, "If-Match is missing: read it first, and send its ETag as If-Match")
    tags = _tags(if_match)
    if version is not None and ("*" in tags or etag_of(version) in tags):
        return
    raise changed(version, current, **({} if difference is None else {"difference": difference()}))


def changed(version: int | str | None, current: Any, **members: Any) -> Problem:
    """Return the problem of a change that was not made for what is there.

    Parameters: version that is there, or None if there is nothing; current, its representation;
    members, what else the answer shows.
    """
    return Problem(
        412,
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
