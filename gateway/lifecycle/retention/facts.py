"""Inputs and results of retention plans: checkpoints, what protects them, decisions. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol

from gateway.catalogue.facts import TRUSTED, CheckpointState
from gateway.lifecycle.retention.policy import Best, Policy

MIN_REPLACEMENT_SHARE = 0.5
"""The default of ``retention.min_replacement_share``."""


class PlanCheckpoint(NamedTuple):
    """What a plan is told of a checkpoint: columns of its row and of its record."""

    ino: int
    path: bytes
    run: bytes
    step: int | None
    extent: int
    state: str
    reason: str | None
    files: int
    size: int
    complete_ns: int | None
    durable_ns: int | None
    evidence: str
    storage_class: str | None = None
    """The one that all of its objects were moved to."""
    grade: str | None = None
    """What shows that it is complete. None: it is not, or that is not known yet."""
    completion: int | None = None
    """Its place in the order in which the gateway saw checkpoints become complete. None: it has
    none yet."""
    recorded_ns: int | None = None
    """The time when it was complete first. None: it is not recorded."""
    parent: int = 0
    """The directory that has its name."""

    @property
    def is_complete(self) -> bool:
        is_whole = self.state not in (CheckpointState.WRITING, CheckpointState.BROKEN)
        return is_whole and self.complete_ns is not None

    @property
    def is_durable(self) -> bool:
        return (
            self.state == CheckpointState.DURABLE
            and self.is_complete
            and self.durable_ns is not None
        )

    @property
    def is_trusted(self) -> bool:
        """Whether an older one may be deleted for it."""
        return self.is_durable and self.completion is not None and self.grade in TRUSTED

    @property
    def ready_ns(self) -> int:
        """The time when it was complete. 0: it is not."""
        return self.complete_ns or 0


class Current(NamedTuple):
    """A policy with its version. Version 0: it is not stored."""

    policy: Policy
    version: int

    def __str__(self) -> str:
        return f"{self.policy.name} v{self.version}" if self.version else self.policy.name


class PlanProtected(Protocol):
    """What people said must stay."""

    @property
    def inos(self) -> Collection[int]:
        """The checkpoints that were promoted, while they are as they were."""

    @property
    def paths(self) -> Collection[bytes]:
        """Pinned paths below the export."""


class Pinned:
    """Pinned paths. A pin holds the checkpoint at, above or below it."""

    def __init__(self, paths: Collection[bytes]) -> None:
        self._paths = {path.strip(b"/") for path in paths}
        self._above = {above for path in self._paths for above in _ways(path)}

    def holds(self, path: bytes) -> bool:
        return bool(self._paths) and self._holds(path)

    def _holds(self, path: bytes) -> bool:
        return path in self._above or any(way in self._paths for way in (path, *_ways(path)))


def _ways(path: bytes) -> list[bytes]:
    """Return the paths above a path, with the root, which is empty."""
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(len(parts))]


class Measure(NamedTuple):
    """The metric of a checkpoint."""

    value: float | None
    why: str = ""
    """Why there is no value, for people."""
    is_unread: bool = False
    """Whether the file could not be read now, so that nothing is known."""


Measuring = Callable[[PlanCheckpoint, Best], Measure]


class PlanInputs(NamedTuple):
    """What a plan is made of, as one transaction saw it."""

    checkpoints: Sequence[PlanCheckpoint]
    policies: Sequence[Current]
    protected: PlanProtected
    now_ns: int
    """The known time (gateway.common.clock), to which ages are counted."""
    is_made: bool
    """Whether the catalogue has all checkpoints."""
    referred: Mapping[int, str] = MappingProxyType({})
    """Why checkpoints stay that links lead to or trackers name, by inode."""
    min_replacement_share: float = MIN_REPLACEMENT_SHARE
    """The share of the bytes of what is deleted that the newer one must have."""


class Fate(StrEnum):
    KEEP = "keep"
    DELETE = "delete"


class Transition(NamedTuple):
    """The objects of a checkpoint move to another storage class."""

    storage_class: str
    policy: str
    """The policy, with its version."""
    why: str
    """One line, for people."""


class Decision(NamedTuple):
    """What becomes of a checkpoint."""

    checkpoint: PlanCheckpoint
    fate: Fate
    why: str
    """One line, for people."""
    policies: tuple[str, ...] = ()
    """The policies that let it be deleted, with their versions."""
    successor: PlanCheckpoint | None = None
    """A newer checkpoint of its run that stays, is durable and trusted and not much smaller, if
    this one is to be deleted."""
    evict: str | None = None
    """The policies by which its bytes leave the local disk now. None: they stay."""
    transition: Transition | None = None
    """None: its objects stay in the storage class that they have."""

    @property
    def token(self) -> str:
        """A hash of what is deleted, and by which policies."""
        checkpoint = self.checkpoint
        basis = repr((checkpoint.ino, checkpoint.path, checkpoint.evidence, self.policies))
        return hashlib.blake2b(basis.encode(), digest_size=8).hexdigest()


class Plan:
    """What becomes of all checkpoints.

    Args:
        decisions: decisions in the order of runs and steps.
        selected: the policies that can delete, with their versions, by the inodes of the
            checkpoints that they select.
    """

    def __init__(
        self, decisions: Sequence[Decision], selected: Mapping[int, Sequence[str]]
    ) -> None:
        self.decisions = decisions
        self.selected = selected

    @cached_property
    def deletions(self) -> Sequence[Decision]:
        return [decision for decision in self.decisions if decision.fate is Fate.DELETE]

    @cached_property
    def evictions(self) -> Sequence[Decision]:
        return [decision for decision in self.decisions if decision.evict is not None]

    @cached_property
    def transitions(self) -> Sequence[Decision]:
        return [decision for decision in self.decisions if decision.transition is not None]


def id_of(tokens: Collection[str]) -> str:
    """Return the id of a set of deletions, given by their tokens."""
    text = "".join(sorted(tokens))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
