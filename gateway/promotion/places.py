"""The names of promotions, in the namespace and in the bucket. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gateway.errors import UserError
from gateway.holds import Holds
from gateway.objectstore import keys
from gateway.types import NAME_MAX_BYTES

PROMOTED = b"promoted"
"""The directory in ``.spillway`` that has the promotions."""
MANIFEST_END = b".json"
NAME_MAX = NAME_MAX_BYTES - len(MANIFEST_END)
"""The longest name in bytes."""


def place_of(
    prefix: str, name: str, released: str | None, path: bytes
) -> tuple[str, tuple[bytes, ...]]:
    """Return the prefix and the parts of which the key of a member is made
    (``keys.promoted``).

    Parameters: prefix of the gateway; name of the promotion; released, the prefix of its own, or
    None; path of the member.
    """
    below = path.split(b"/") if path else ()
    return keys.promoted(prefix, released, (*keys.PROMOTED, name.encode(), *below))


def manifest_key(prefix: str, name: str) -> str:
    """Return the key of the manifest of a copy. Parameters: prefix of the keys; name."""
    return keys.key_of(prefix, (keys.RESERVED, PROMOTED, name.encode() + MANIFEST_END))


def staged_name(top: int) -> bytes:
    """Return the name that a copy has in the trash, where clients do not find it."""
    return b"promotion-%d" % top


def checked(text: str, hold_patterns: Sequence[str]) -> str:
    """Return the name of a promotion as a person wrote it. Raises UserError.

    Parameters: hold_patterns, of names that the drain keeps from the bucket.
    """
    try:
        name = os.fsencode(text).decode()
    except UnicodeDecodeError:
        raise UserError("the name of a promotion must be UTF-8: choose another name") from None
    why = _why_not(name)
    if why is None and Holds(list(hold_patterns)).holds((), name.encode()):
        why = "drain.hold_patterns has a pattern of it"
    if why is not None:
        raise UserError(f"{name!a} cannot be the name of a promotion: {why}: choose another name")
    return name


def _why_not(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name.startswith("."):
        return "it begins with a dot"
    if "/" in name:
        return "it has a slash, and is one name in .spillway/promoted"
    if not name.isprintable():
        return "it has characters that cannot be shown"
    if name.encode().endswith(MANIFEST_END):
        return "names with .json are of manifests"
    if len(name.encode()) > NAME_MAX:
        return f"it is longer than {NAME_MAX} bytes"
    return None
