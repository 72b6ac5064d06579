"""What an object carries beside its bytes: of which namespace, inode and version it is.

Objects of earlier versions of Spillway have neither ``VOLUME`` nor ``GENERATION``; some servers
forget all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

VOLUME = "volume"
"""The id of the namespace, in hex."""
INO = "ino"
GENERATION = "generation"
CONTENT_VERSION = "content-version"
SNAPSHOT = "snapshot-ns"
"""Of the object of a file that was open: the moment it shows."""
PATH_REST = "path-rest"
"""What the key does not tell of the path."""


class Origin(NamedTuple):
    """Where an object came from, as its metadata says."""

    volume: str | None
    """None: the object does not say."""
    ino: int | None
    """None: the object does not say, or not a number; of the version too."""
    content_version: int | None
    generation: int | None
    """0: the object does not say. None: it says what is no number."""


def origin_of(metadata: Mapping[str, str]) -> Origin:
    """Read the metadata of an object."""
    return Origin(
        metadata.get(VOLUME),
        _number(metadata, INO),
        _number(metadata, CONTENT_VERSION),
        _number(metadata, GENERATION) if GENERATION in metadata else 0,
    )


def with_rest(rest: str, others: Mapping[str, str]) -> dict[str, str]:
    """The metadata with what the key does not tell of the path."""
    kept = {name: value for name, value in others.items() if name != PATH_REST}
    return {**kept, PATH_REST: rest} if rest else kept


def _number(metadata: Mapping[str, str], name: str) -> int | None:
    text = metadata.get(name, "")
    return int(text) if text.isdecimal() else None
