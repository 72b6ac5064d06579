"""Shows a person what each run would lose if this gateway were lost now."""

from __future__ import annotations

from typing import Any

from gateway.units import duration, size


def text(facts: dict[str, Any]) -> str:
    """Return what a person reads about a run, from the facts of gateway.control.runs."""
    durable, complete = facts["newest_durable"], facts["newest_complete"]
    words = ["nothing is durable" if durable is None else f"durable: {_named(durable)}"]
    if complete is not None and complete != durable:
        words.append(f"complete: {_named(complete)}")
    if not facts["at_risk_seconds"] and not facts["at_risk_bytes"]:
        return "; ".join([*words, "nothing newer is at risk"])
    eta_seconds = facts["eta_seconds"]
    eta = "the drain sends nothing" if eta_seconds is None else f"{duration(eta_seconds)} to go"
    words.append(
        f"at risk: {duration(facts['at_risk_seconds'])}, {size(facts['at_risk_bytes'])}, {eta}"
    )
    return "; ".join(words)


def _named(one: dict[str, Any]) -> str:
    what = one["name"] if one["step"] is None else f"step {one['step']}"
    return f"{what} ({duration(one['age_seconds'])} ago)"
