"""Clients that share a name: the NFS server takes each for the other, and ends its lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway import clock, state
from gateway.escapes import display
from gateway.namespace import sharednames
from gateway.serialize import Model
from gateway.settings import Settings

RECENT_SECONDS = 3600
"""For so long after it was seen, a person is told of it."""
REMEDY = (
    "give each host a name of its own (hostnamectl), or set nfs4_unique_id of its module nfs, and "
    "mount again"
)


@dataclass(frozen=True, slots=True)
class SharedName(Model):
    """A name that clients share: the NFS server takes each for the other, and ends its lease."""

    name: str = field(metadata={"examples": ["Linux NFSv4.1 node7"]})
    addresses: list[str] = field(metadata={"examples": [["10.0.0.7", "10.0.0.8"]]})
    """The last two."""
    age_seconds: float
    """Time since it was seen last, an hour at most."""


def gather(settings: Settings) -> list[SharedName]:
    """Return the names that clients shared lately, with their last two addresses."""
    found = (state.read(settings, sharednames.REPORT) or {}).get("shared")
    now_ns = clock.now_ns()
    rows = [
        SharedName(
            name=one["name"],
            addresses=[str(address) for address in one["addresses"]],
            age_seconds=round(max(0, now_ns - one["at_ns"]) / clock.NS, 1),
        )
        for one in (found if isinstance(found, list) else ())
    ]
    return [one for one in rows if one.age_seconds < RECENT_SECONDS]


def text_of(one: SharedName) -> str:
    """Return what is wrong, for a person."""
    return (
        f"{' and '.join(one.addresses)} share the name {display(one.name)}, and take each other's "
        "leases, opens and locks"
    )


def lines(found: Sequence[SharedName]) -> list[str]:
    """Return a line for each name, for a person."""
    return [f"SHARED NAME: {text_of(one)}: {REMEDY}" for one in found]
