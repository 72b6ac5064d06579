"""Shows plans of retention to a person; also its line in `spillway status`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain, groupby

from gateway import clock
from gateway.checkpoints.facts import NOT_MADE
from gateway.cli import table
from gateway.control.retention import Asked, Plan, PlannedCheckpoint, RetentionSummary
from gateway.escapes import display
from gateway.retention.facts import Fate
from gateway.units import duration, size

COLUMNS = (">step", "fate", "state", ">size", "checkpoint", "why")


def show(plan: Plan) -> None:
    """Print a plan for a person."""
    for run, group in groupby(plan.checkpoints, lambda one: one.run):
        rows, title = [_cells(one) for one in group], display(run) or "/"
        table.show(COLUMNS, rows, chain([title], map(_line, rows)), title=title)
    for line in _summary(plan):
        print(line)


def _summary(plan: Plan) -> Iterator[str]:
    if not plan.checkpoints:
        yield "there are no checkpoints"
    if plan.more_checkpoints:
        yield f"... and {plan.more_checkpoints:,} more: --run RUN shows those of one run"
    yield (
        f"{plan.kept:,} checkpoints are kept, {plan.deleted:,} expire into the trash "
        f"({size(plan.deleted_bytes)}{_waiting(plan.asked)}), {plan.evicted:,} leave "
        f"the local disk, {plan.moved:,} transition to another storage class"
    )
    if not plan.catalogue_is_made:
        yield f"nothing expires: {NOT_MADE}"
    if plan.clock_ahead_seconds:
        yield clock_text(int(plan.clock_ahead_seconds * clock.NS))
    for name in plan.unused_policies:
        yield f"policy {name} selects no checkpoint"
    if plan.asked is not None:
        waits = f"{_amount(plan.asked)} wait for an approval once the policies are stored"
        yield f"{plan.why_asked}: {asked_text(plan.asked) if plan.is_stored else waits}"


def _cells(one: PlannedCheckpoint) -> tuple[str, ...]:
    step = "-" if one.step is None else str(one.step)
    fate = "expire" if one.fate == Fate.DELETE else "keep"
    name = display(one.path.rpartition("/")[2])
    leaves = f"; leaves the local disk ({one.evicted_by})" if one.evicted_by else ""
    held = "; superseded, and not uploaded meanwhile" if one.superseded else ""
    moves = f"; transitions to {one.moves_to} ({one.moved_by})" if one.moves_to else ""
    kept = f"; in {one.storage_class}" if one.storage_class else ""
    why = f"{one.why}{leaves}{moves}{kept}{held}"
    return step, fate, one.state, size(one.size_bytes), name, why


def _line(cells: tuple[str, ...]) -> str:
    step, fate, state, length, name, why = cells
    return f"  {step:>10}  {fate:<6}  {state:<9} {length:>10}  {name}: {why}"


def _waiting(asked: Asked | None) -> str:
    return f"; {asked.checkpoints:,} of them after an approval" if asked else ""


def asked_text(asked: Asked) -> str:
    """Return what a person must do about a plan that is asked about."""
    return (
        f"{_amount(asked)} wait, and go into the trash once a person has approved exactly these: "
        f"spillway policy approve {asked.plan}"
    )


def _amount(asked: Asked) -> str:
    return f"{asked.checkpoints:,} checkpoints, {size(asked.bytes)}"


def clock_text(ahead_ns: int) -> str:
    """Return what a person must know of a clock that jumped."""
    return (
        f"the clock is {duration(ahead_ns / clock.NS)} ahead of the time that is known to have "
        "passed, and ages are counted without that; if the clock is right: spillway policy clock "
        "--confirm"
    )


def moment(time_ns: int) -> str:
    """Return a time as people write it."""
    return datetime.fromtimestamp(time_ns / clock.NS).astimezone().isoformat(" ", "seconds")


def status_lines(found: RetentionSummary) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person."""
    count = found.policies
    text = {0: "no policy deletes anything", 1: "1 policy"}.get(count, f"{count} policies")
    if found.last_action_ns is not None:
        result = found.last_result or "under way"
        text += f"; last action {moment(found.last_action_ns)}: {result}"
    yield "retention", text
    if found.asked is not None:
        yield "retention", "ASKS: " + asked_text(found.asked)
    if found.clock_ahead_seconds:
        yield "retention", clock_text(int(found.clock_ahead_seconds * clock.NS))
