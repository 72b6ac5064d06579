"""What the bucket has at the end of a run: what is kept, and what is there after its deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.checkpointsettings import RetentionSettings
from gateway.sizing import capacity
from gateway.sizing.figure import DAY_SECONDS, Inputs, whole_down

SHORT_DAYS = RetentionSettings.trash_short_seconds / DAY_SECONDS
"""For so long the trash keeps also what is more than its limit."""


class Stock(NamedTuple):
    """Checkpoints of all jobs, in numbers of whole ones: a limit in bytes leaves a fraction."""

    kept: float
    trash: float = 0.0
    held: float = 0.0
    """What jobs removed themselves, and what stays until a newer one is durable."""
    noncurrent: float = 0.0
    """What was deleted in a bucket that keeps versions."""
    old: float = 0.0
    """How many of these are in the other storage class."""

    @property
    def total(self) -> float:
        return self.kept + self.trash + self.held + self.noncurrent


def through_gateway(inputs: Inputs) -> Stock:
    """Return what the bucket has behind gateways."""
    days = inputs.run_days
    there = Stock(
        inputs.jobs * kept(inputs),
        _trash(inputs, days),
        _held(inputs, days),
        _since(inputs, days, inputs.noncurrent_days, _removed),
    )
    return there._replace(old=_old(inputs, there))


def direct(inputs: Inputs) -> Stock:
    """Return what the bucket has without gateways, if something else deletes by the same rules."""
    days = inputs.run_days
    noncurrent = _since(inputs, days, inputs.noncurrent_days, _deleted)
    there = Stock(inputs.jobs * kept(inputs), noncurrent=noncurrent)
    return there._replace(old=_old(inputs, there))


def direct_all(inputs: Inputs) -> Stock:
    """Return what the bucket has without gateways, if nothing is deleted."""
    total = made(inputs, inputs.run_days)
    after = inputs.tier_after_days
    old = 0 if after is None else max(0, total - made(inputs, after))
    return Stock(inputs.jobs * total, old=inputs.jobs * old)


def kept(inputs: Inputs, newest: int | None = None, days: float | None = None) -> int:
    """Return how many checkpoints of a job stay at the end of the run.

    Parameters: newest, to count only among so many of the newest; days, for the end of a run of
    this length. A checkpoint stays if one of the rules keeps it, and the newest one always. Without
    rules all stay. A job that removes its own keeps nothing else.
    """
    total = made(inputs, inputs.run_days if days is None else days)
    limits = (one for one in (newest, inputs.job_keeps, total) if one is not None)
    return _by_rules(inputs, total, min(limits))


def made(inputs: Inputs, days: float) -> int:
    """Return the checkpoints that a job makes in so many days."""
    return whole_down(max(0.0, days) * inputs.checkpoints_per_day)


def _old(inputs: Inputs, there: Stock) -> float:
    """Return how many of what is there are in the other storage class."""
    if inputs.tier_after_days is None:
        return 0
    young = made(inputs, inputs.tier_after_days)
    old = there.kept - inputs.jobs * kept(inputs, young)
    window = _window(inputs, made(inputs, inputs.run_days))
    # What is deleted stays in the class that it had.
    is_moved_first = min(window, inputs.job_keeps or window) >= young
    return old + there.trash + there.noncurrent if is_moved_first else old


def _window(inputs: Inputs, total: int) -> int:
    """Return how many of the newest the rules keep, of so many that a job made."""
    if inputs.keep_days is inputs.keep_newest is inputs.keep_every is None:
        return total
    recent = 0 if inputs.keep_days is None else made(inputs, inputs.keep_days)
    return max(1, recent, inputs.keep_newest or 0)


def _by_rules(inputs: Inputs, total: int, counted: int) -> int:
    window = _window(inputs, total)
    if inputs.keep_every is None or counted <= window:
        return min(window, counted)
    older, uncounted = total - window, total - counted
    return window + older // inputs.keep_every - uncounted // inputs.keep_every


def _since(
    inputs: Inputs, days: float, last: float | None, until: Callable[[Inputs, float], float]
) -> float:
    """Return by how much a number grew in the last days before then. Without their number: 0."""
    return 0.0 if last is None else until(inputs, days) - until(inputs, days - last)


def _deleted(inputs: Inputs, days: float) -> float:
    """Return what policy and jobs deleted until then. This and the next ones are of all jobs."""
    return inputs.jobs * (made(inputs, days) - kept(inputs, days=days))


def _trashed(inputs: Inputs, days: float) -> float:
    """Return what the policy put into the trash until then."""
    total = made(inputs, days)
    if inputs.job_keeps is not None and _window(inputs, total) >= inputs.job_keeps:
        # The job removes each one before the policy would.
        return 0
    return inputs.jobs * (total - _by_rules(inputs, total, total))


def _trash(inputs: Inputs, days: float) -> float:
    """Return what is in the trash then."""
    there = _since(inputs, days, inputs.trash_days, _trashed)
    if inputs.trash_max_bytes is None:
        return there
    limit = capacity.gateways(inputs) * inputs.trash_max_bytes / inputs.size_bytes
    young = _since(inputs, days, min(SHORT_DAYS, inputs.trash_days), _trashed)
    return min(there, max(limit, young))


def _rotated(inputs: Inputs, days: float) -> float:
    """Return what the jobs removed themselves until then."""
    return _deleted(inputs, days) - _trashed(inputs, days)


def _held(inputs: Inputs, days: float) -> float:
    """Return what is held for a newer checkpoint then, at most."""
    if inputs.job_keeps is None:
        return 0
    return min(
        inputs.runs or inputs.jobs, _since(inputs, days, inputs.rotation_hours / 24, _rotated)
    )


def _removed(inputs: Inputs, days: float) -> float:
    """Return what was deleted from the bucket until then."""
    return _deleted(inputs, days) - _trash(inputs, days) - _held(inputs, days)
