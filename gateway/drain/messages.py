"""Messages between the drain and its sender processes.

They are pickled, so they must not be in the main module of the sender.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.common.errors import StoreError
from gateway.config.settings import Settings
from gateway.objectstore.checksums import ChecksumKind
from gateway.objectstore.objects import VerifiedObject
from gateway.objectstore.pace import RequestEnd
from gateway.objectstore.request import Conditions


class SmallObject(NamedTuple):
    """A small object to send."""

    key: str
    body: bytes
    metadata: dict[str, str]
    there: str | None = None
    """What is at the key, as ``S3Store.put`` takes it."""


Result = VerifiedObject | StoreError


class Handshake(NamedTuple):
    """The first message to a sender, on one of its connections."""

    settings: Settings
    address: str
    """The address of the bucket's objects, up to their keys."""
    kind: ChecksumKind
    """The kind of the checksum that goes with each object."""
    conditions: Conditions
    """What the store heeds."""


class Task(NamedTuple):
    """Objects that a sender is told to send."""

    reloads: int
    """How often the drain has asked for the credentials to be read again. The sender reads them
    again when this number changes."""
    objects: list[SmallObject]
    """The sender sends them one after the other, up to the first that the store does not take."""


class Attempt(NamedTuple):
    """The result of one object, and how its request ended. A sender answers with a list, in the
    order of the objects."""

    result: Result
    how: RequestEnd
