"""Metadata of an object: of which namespace, inode and version it is.

Objects of earlier versions of Spillway have neither ``VOLUME`` nor ``GENERATION``. Some servers do
not keep any metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

VOLUME = "volume"
"""The id of the namespace, in hex."""
INO = "ino"
GENERATION = "generation"
CONTENT_VERSION = "content-version"
MODE = "mode"
"""The permissions, in octal digits."""
UID = "uid"
GID = "gid"
MTIME = "mtime-ns"
SNAPSHOT = "snapshot-ns"
"""The moment that the object of an open file shows."""
PATH_REST = "path-rest"
"""The part of the path that the key does not contain."""


class ObjectOrigin(NamedTuple):
    """Where an object came from, as its metadata says."""

    volume: str | None
    """The id of the namespace, or None if the object does not say."""
    ino: int | None
    """The inode, or None if the object does not say, or says something that is no number. The same
    holds for the version."""
    content_version: int | None
    generation: int | None
    """The generation: 0 if the object does not say, None if it says something that is no number."""


def origin_of(metadata: Mapping[str, str]) -> ObjectOrigin:
    """Return where an object came from, by its metadata."""
    return ObjectOrigin(
        metadata.get(VOLUME),
        _number(metadata, INO),
        _number(metadata, CONTENT_VERSION),
        _number(metadata, GENERATION) if GENERATION in metadata else 0,
    )


def with_rest(rest: str, others: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata with the part of the path that the key does not contain."""
    kept = {name: value for name, value in others.items() if name != PATH_REST}
    return {**kept, PATH_REST: rest} if rest else kept


def _number(metadata: Mapping[str, str], name: str) -> int | None:
    text = metadata.get(name, "")
    return int(text) if text.isdecimal() else None
