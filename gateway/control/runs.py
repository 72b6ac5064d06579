"""Runs, and what each would lose if this gateway were lost now, with its alarms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway import clock, state
from gateway.checkpoints.risk import Newest, Risk
from gateway.settings import Settings
from gateway.text import Text, printable
from gateway.units import duration, size


def facts_of(
    settings: Settings, risks: Sequence[Risk], text: Text = printable
) -> list[dict[str, Any]]:
    """Return the facts about each run, for people and programs. Parameters: text, of names."""
    drain = state.read(settings, state.DRAIN)
    rate = drain.get("bytes_per_second") if drain is not None and state.alive(drain) else None
    bytes_per_second = float(rate) if isinstance(rate, int) else 0.0
    now_ns = clock.now_ns()
    found = []
    for one in risks:
        eta_seconds = one.eta_seconds(bytes_per_second)
        found.append(
            {
                "run": text(one.run),
                "newest_complete": _newest(one.complete, now_ns, text),
                "newest_durable": _newest(one.durable, now_ns, text),
                "at_risk_seconds": round(one.seconds, 1),
                "at_risk_bytes": one.size,
                "eta_seconds": None if eta_seconds is None else round(eta_seconds, 1),
                "alarm": alarm(settings, one),
            }
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


def _newest(one: Newest | None, now_ns: int, text: Text) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "name": text(one.path.rpartition(b"/")[2]),
        "step": one.step,
        "complete_ns": one.complete_ns,
        "age_seconds": round(max(0, now_ns - one.complete_ns) / clock.NS, 1),
    }
