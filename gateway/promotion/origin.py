"""What the objects of a copy say of themselves, in their metadata. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.drain import metadata
from gateway.promotion.store import Promotion

if TYPE_CHECKING:
    from gateway.objectstore.objects import Head

VERSION = 1
"""The content version of every copy."""
REMEDY = "choose another name, or delete it"
"""What a person can do about another's object at the key of a copy."""


def described(of: Promotion, volume: str, ino: int) -> dict[str, str]:
    """Return the metadata of an object of a copy.

    Parameters: volume, the id of the namespace; ino, of the copied file. The manifest has that of
    the copy as a whole.
    """
    return {
        metadata.VOLUME: volume,
        metadata.INO: str(ino),
        metadata.GENERATION: str(of.generation),
        metadata.CONTENT_VERSION: str(VERSION),
    }


def is_ours(head: Head, of: Promotion, volume: str, ino: int, otherwise: bool) -> bool:
    """Return whether an object is one of a copy, as its metadata says.

    Parameters: otherwise, the answer if the server does not keep metadata.
    """
    origin = metadata.origin_of(head.metadata)
    if origin.volume is None and origin.ino is None:
        return otherwise
    return (origin.volume, origin.ino, origin.generation) == (volume, ino, of.generation)
