"""Says which receipts the whole checkpoints of a run have. Pure.

The names of a run become directories below ``runs`` and ``checkpoints``, so that ``a/b`` has
``runs/a/b/latest-complete``. A name that a receipt could have is escaped as in object keys.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.checkpoints.facts import State
from gateway.checkpoints.shown import shown_state
from gateway.manifests.document import name_of
from gateway.text import printable

Path = tuple[bytes, ...]
"""Names below ``/.spillway``."""

LATEST_COMPLETE = b"latest-complete"
LATEST_DURABLE = b"latest-durable"
_ESCAPED = {
    b".": b"%2E",
    b"..": b"%2E%2E",
    LATEST_COMPLETE: b"%6Catest-complete",
    LATEST_DURABLE: b"%6Catest-durable",
}
_END = b".json"


class Fact(NamedTuple):
    """What is told of a checkpoint: the columns of its row."""

    ino: int
    path: bytes
    """Path below the export's root."""
    run: bytes
    step: int | None
    state: str
    complete_ns: int | None
    durable_ns: int | None
    storage_class: str | None = None
    completion: int | None = None
    """Its place in the order in which checkpoints became complete. None: it has none yet."""


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: bytes
    ino: int = field(default=0, compare=False)
    """The checkpoint to which it leads, or 0 if it was read."""
    seen: int = field(default=0, compare=False)
    """The number of the imprint of that checkpoint while it was complete, or 0."""


class Document(NamedTuple):
    """A file."""

    text: bytes


Receipt = Link | Document


def receipts(run: bytes, facts: Collection[Fact]) -> dict[Path, Receipt]:
    """Return the receipts of a run, by path.

    Parameters: facts, of its checkpoints that are complete or more. Broken ones are not.
    """
    names = _names(run)
    found: dict[Path, Receipt] = {}
    durable = [one for one in facts if one.state == State.DURABLE]
    for name, among in ((LATEST_COMPLETE, facts), (LATEST_DURABLE, durable)):
        if among:
            # Relative, because clients mount the export where they like.
            latest = _latest(among)
            target = b"../" * (len(names) + 2) + latest.path
            found[b"runs", *names, name] = Link(target, latest.ino)
    taken: set[bytes] = set()
    for one in sorted(facts, key=lambda one: one.ino):
        name = name_of(one.path, one.step)
        if name in taken:
            name = name_of(one.path, one.step, one.ino)
        taken.add(name)
        found[b"checkpoints", *names, name] = Document(document(one))
    return found


def links(run: bytes) -> list[Path]:
    """Return the paths of the links that a run can have."""
    return [(b"runs", *_names(run), name) for name in (LATEST_COMPLETE, LATEST_DURABLE)]


def document(fact: Fact) -> bytes:
    """Return the text of a checkpoint's document: only what nothing else on a mount tells. Its name
    is that of the manifest in the bucket, which has everything else."""
    facts = {
        "path": printable(fact.path),
        "state": shown_state(fact.state, fact.storage_class),
        "complete_ns": fact.complete_ns,
        "durable_ns": fact.durable_ns,
    }
    return json.dumps(facts, indent=1).encode() + b"\n"


def _latest(facts: Iterable[Fact]) -> Fact:
    """Return the newest checkpoint: the one that was complete last, whatever its step is. One that
    has no place in the order yet counts only among its like."""
    return max(facts, key=_place)


def _place(one: Fact) -> tuple[int, int, int]:
    completion = -1 if one.completion is None else one.completion
    return completion, one.complete_ns or 0, one.ino


def _names(run: bytes) -> Path:
    return tuple(_escaped(name) for name in run.split(b"/") if name)


def _escaped(name: bytes) -> bytes:
    if name.endswith(_END):
        return name[: -len(_END)] + b"%2Ejson"
    return _ESCAPED.get(name, name)
