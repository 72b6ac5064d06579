"""Runs, and what each would lose if this gateway were lost now, with its alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway import clock, state
from gateway.checkpoints.risk import Newest, Risk
from gateway.escapes import text_of
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.units import duration, size


@dataclass(frozen=True, slots=True)
class NewestCheckpoint(Model):
    """The newest checkpoint of a kind, by the time at which it was complete."""

    name: str
    step: int | None
    complete_ns: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Run(Model):
    """A run. What is at risk would be lost with this gateway."""

    run: str
    """Path of the directory of its steps."""
    newest_complete: NewestCheckpoint | None
    newest_durable: NewestCheckpoint | None
    at_risk_seconds: float
    """The age of the work that is only here."""
    at_risk_bytes: int
    eta_seconds: float | None
    """Time until the bucket has it. null: the drain sends nothing."""
    alarm: str | None
    """Which threshold of `checkpoints.rpo_*` is exceeded."""


def models(settings: Settings, risks: Sequence[Risk]) -> list[Run]:
    """Return the runs."""
    drain = state.read(settings, state.DRAIN)
    rate = drain.get("bytes_per_second") if drain is not None and state.alive(drain) else None
    bytes_per_second = float(rate) if isinstance(rate, int) else 0.0
    now_ns = clock.now_ns()
    found = []
    for one in risks:
        eta_seconds = one.eta_seconds(bytes_per_second)
        found.append(
            Run(
                run=text_of(one.run),
                newest_complete=_newest(one.complete, now_ns),
                newest_durable=_newest(one.durable, now_ns),
                at_risk_seconds=round(one.seconds, 1),
                at_risk_bytes=one.size,
                eta_seconds=None if eta_seconds is None else round(eta_seconds, 1),
                alarm=alarm(settings, one),
            )
        )
    return found


def alarm(settings: Settings, risk: Risk) -> str | None:
    """Return which threshold a run exceeds, or None."""
    limits = settings.checkpoints
    if limits.rpo_seconds and risk.seconds > limits.rpo_seconds:
        least = duration(limits.rpo_seconds)
        return f"more than checkpoints.rpo_seconds ({least}) of its work is only here"
    if limits.rpo_bytes and risk.size > limits.rpo_bytes:
        return f"more than checkpoints.rpo_bytes ({size(limits.rpo_bytes)}) are only here"
    return None


def _newest(one: Newest | None, now_ns: int) -> NewestCheckpoint | None:
    if one is None:
        return None
    return NewestCheckpoint(
        name=text_of(one.path.rpartition(b"/")[2]),
        step=one.step,
        complete_ns=one.complete_ns,
        age_seconds=round(max(0, now_ns - one.complete_ns) / clock.NS, 1),
    )
