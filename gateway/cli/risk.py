"""Shows a person what each run would lose if this gateway were lost now."""

from __future__ import annotations

from gateway.control.runs import NewestCheckpoint, Run
from gateway.escapes import display
from gateway.units import duration, size


def text(run: Run) -> str:
    """Return what a person reads about a run."""
    durable, complete = run.newest_durable, run.newest_complete
    words = ["nothing is durable" if durable is None else f"durable: {_named(durable)}"]
    if complete is not None and complete != durable:
        words.append(f"complete: {_named(complete)}")
    if not run.at_risk_seconds and not run.at_risk_bytes:
        return "; ".join([*words, "nothing newer is at risk"])
    left = run.eta_seconds
    eta = "the drain sends nothing" if left is None else f"{duration(left)} to go"
    words.append(f"at risk: {duration(run.at_risk_seconds)}, {size(run.at_risk_bytes)}, {eta}")
    return "; ".join(words)


def _named(one: NewestCheckpoint) -> str:
    what = display(one.name) if one.step is None else f"step {one.step}"
    return f"{what} ({duration(one.age_seconds)} ago)"
