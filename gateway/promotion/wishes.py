"""What a person wants of the objects of a promoted copy: a legal hold, tags, keys at a prefix of
their own. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from gateway.errors import UserError

OURS = {"spillway": "promoted"}
"""The tag that each object of a copy gets, if the store keeps tags."""
TAGS_MAX = 10
"""The most tags of an object, with ours (S3)."""
_KEY_MAX, _VALUE_MAX = 128, 256
_TEXT = re.compile(r"[\w +\-=.:/@]*")
"""What S3 takes in tags: letters, digits and spaces of any script, and these."""


class Wishes(NamedTuple):
    """What a person wants of a promotion."""

    legal_hold: bool = False
    tags: tuple[tuple[str, str], ...] = ()
    released: str | None = None
    """The beginning of the keys. None: that of all promoted copies."""

    @property
    def tags_text(self) -> str | None:
        """The tags as the table ``promotion`` has them."""
        return json.dumps(dict(self.tags)) if self.tags else None


NO_WISHES = Wishes()


def wishes_of(prefix: str, legal_hold: bool, tags: Sequence[str], to: str | None) -> Wishes:
    """Return what a person wrote. Raises UserError.

    Parameters: prefix of the gateway's keys; tags, each ``key=value``; to, the beginning of keys.
    """
    found: dict[str, str] = {}
    for text in tags:
        key, equals, value = text.partition("=")
        why = "write key=value" if not equals else _why_not(key, value)
        why = "it is there twice" if key in found else why
        if why is not None:
            raise UserError(f"--tag {text!a}: {why}")
        found[key] = value
    if len(found) + len(OURS) > TAGS_MAX:
        raise UserError(f"an object has at most {TAGS_MAX} tags, and one is ours: leave some out")
    released = None if to is None else _released(prefix, to)
    return Wishes(legal_hold, tuple(found.items()), released)


def _why_not(key: str, value: str) -> str | None:
    if not key:
        return "the key is empty"
    if key in OURS:
        return "this key is ours"
    if key.lower().startswith("aws:"):
        return "keys with aws: belong to AWS"
    if len(key) > _KEY_MAX or len(value) > _VALUE_MAX:
        return f"S3 takes {_KEY_MAX} characters of the key and {_VALUE_MAX} of the value"
    if not _TEXT.fullmatch(key) or not _TEXT.fullmatch(value):
        return "S3 takes letters, digits, spaces and + - = . _ : / @"
    return None


def _released(prefix: str, to: str) -> str:
    name = to.strip("/")
    parts = name.split("/")
    if not name or {"", ".", ".."} & set(parts) or not name.isprintable():
        raise UserError(f"--to {to!a}: write the beginning of keys, like models/released")
    if not prefix:
        raise UserError("--to: any key may be of a client's file: set bucket.prefix first")
    ours = prefix.split("/")
    if parts[: len(ours)] == ours or ours[: len(parts)] == parts:
        raise UserError(f"--to {to!a}: it must be outside of {prefix}/, where clients' files are")
    return name
