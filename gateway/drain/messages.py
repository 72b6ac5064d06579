"""What the drain and its senders tell each other (pickled: not in the sender's main module)."""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import BucketError
from gateway.objectstore.objects import Stored
from gateway.objectstore.pace import Ended


class Small(NamedTuple):
    """An object to be sent."""

    key: str
    body: bytes
    metadata: dict[str, str]


Result = Stored | BucketError


class Task(NamedTuple):
    """What the drain sends to a sender."""

    generation: int
    """Credentials are read again when it changes."""
    object: Small


class Answer(NamedTuple):
    """What a sender answers."""

    result: Result
    how: Ended
