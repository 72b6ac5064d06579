"""Service for jobs of the admin API, and the progress of long work for those who wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gateway.common.errors import NotThere
from gateway.common.models import Model, Nanoseconds
from gateway.common.text import shown

State = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]


@dataclass(frozen=True, slots=True)
class Job(Model):
    """Work that takes longer than a request may."""

    id: str = field(metadata={"examples": ["0123456789abcdef"]})
    kind: str = field(metadata={"examples": ["evict"]})
    arguments: dict[str, Any]
    state: State
    """interrupted: the gateway was restarted, and the text says what to do."""
    done: int
    """Names, files or bytes, as the text says."""
    total: int | None
    """None: it is not known."""
    text: str = field(metadata={"examples": ["1,024 files evicted"]})
    asked_by: str
    request_id: str
    created_ns: Nanoseconds
    updated_ns: Nanoseconds
    ended_ns: Nanoseconds | None
    cancel_asked: bool
    result: dict[str, Any] | None
    """None before it is done."""
    problem: dict[str, Any] | None
    """code, status and detail, once it has failed."""


class Jobs(Protocol):
    """The jobs of the admin API. Methods that take an id raise NotThere."""

    def every(self, most: int, state: str | None = None, kind: str | None = None) -> Iterable[Job]:
        """Return jobs, the newest first. Args: most, of them; state and kind, or None for all."""

    def get(self, id: str) -> Job:
        """Return one job."""

    def cancel(self, id: str) -> Job:
        """Have a job end. What it has done stays done. Raises NotPossible if it has ended."""


def missing(id: str) -> NotThere:
    """Return the error of a job that there is not. Old ones are forgotten."""
    return NotThere(f"there is no job {shown(id)}: spillway job list shows what is")


@dataclass(frozen=True, slots=True)
class Progress(Model):
    """How far long work is."""

    done: int
    """Names, files or bytes, as the text says."""
    total: int | None
    """None: it is not known."""
    text: str
    """One line."""
    in_bytes: bool = False
    """Whether done and total are bytes, so that a rate and the time to go can be told."""


Tell = Callable[[Progress], None]
"""Called now and then by long work. What it raises ends the work."""
