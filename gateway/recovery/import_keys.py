"""Names of imported objects: which path a key gets below the directory of an import, or why it
gets none. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gateway.objectstore.objects import ListedObject

NAME_MAX_BYTES = 255
GATEWAYS = b".spillway"
"""The first name of the keys that a gateway keeps for itself below its prefix."""


class KeyPath(NamedTuple):
    """The path of a key below the directory of its import."""

    parts: tuple[bytes, ...]
    is_directory: bool
    """Whether the object only says that there is a directory."""


def below(prefix: str) -> str:
    """Return what the keys below a prefix begin with."""
    return f"{prefix}/" if prefix else ""


def path_of(prefix: str, listed: ListedObject) -> KeyPath | str:
    """Return the path of an object.

    Args:
        prefix: of the import.
        listed: an object below it.

    Returns:
        The path, or why the object gets none, for people.
    """
    try:
        rest = listed.key[len(below(prefix)) :].encode()
    except UnicodeEncodeError:
        return "the key is not UTF-8"
    is_directory = rest.endswith(b"/") or not rest
    if is_directory and listed.size:
        return "the key ends with a slash, and the object has bytes"
    rest = rest.removesuffix(b"/")
    parts = tuple(rest.split(b"/")) if rest else ()
    if any(not part for part in parts):
        return "the key has an empty name (//)"
    if any(part in (b".", b"..") for part in parts):
        return "the key has the name . or .."
    if any(len(part) > NAME_MAX_BYTES for part in parts):
        return f"the key has a name of more than {NAME_MAX_BYTES} bytes"
    if b"\0" in rest:
        return "the key has a NUL"
    if parts and parts[0] == GATEWAYS:
        return "another gateway keeps the object for itself"
    return KeyPath(parts, is_directory)


def overlap(prefix: str, other: str) -> bool:
    """Return whether a key may be below two prefixes of one bucket."""
    return below(prefix).startswith(below(other)) or below(other).startswith(below(prefix))
