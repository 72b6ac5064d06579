"""What the drain and its senders tell each other (pickled: not in the sender's main module)."""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import BucketError
from gateway.objectstore.checksums import Kind
from gateway.objectstore.objects import Stored
from gateway.objectstore.pace import Ended
from gateway.settings import Settings


class Small(NamedTuple):
    """An object to be sent."""

    key: str
    body: bytes
    metadata: dict[str, str]


Result = Stored | BucketError


class Handshake(NamedTuple):
    """What a sender is told first, on one of its connections."""

    settings: Settings
    address: str
    """Of the bucket's objects, up to their keys."""
    kind: Kind
    """Of the checksum that goes with each object."""


class Task(NamedTuple):
    """What the drain sends to a sender."""

    generation: int
    """Credentials are read again when it changes."""
    objects: list[Small]
    """One after the other; the first that the store does not take is the last that is sent."""


class Answer(NamedTuple):
    """What became of one object; a sender answers a list, in their order."""

    result: Result
    how: Ended
