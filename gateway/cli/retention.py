"""Shows plans of retention to people and programs; also its line in `spillway status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from gateway import clock
from gateway.checkpoints.catalogue import catalogue_of
from gateway.db.engine import Database
from gateway.errors import NamespaceError, UserError
from gateway.retention import knowntime, store
from gateway.retention.facts import Current, Decision, Fate
from gateway.retention.planning import Planned, Planning
from gateway.settings import Settings
from gateway.text import printable
from gateway.units import duration, size


def planned(settings: Settings, database: Database, others: Sequence[Current]) -> Planned:
    """Return the plan as it is now. Raises UserError, TryAgain.

    Parameters: others, policies that are not stored.
    """
    return Planning(settings, catalogue_of(settings, database)).plan(others)


def facts(settings: Settings, planned: Planned, run_name: str | None) -> dict[str, Any]:
    """Return what a plan says.

    Parameters: run_name, of the only run whose checkpoints are listed, or None.
    """
    decisions = planned.plan.decisions
    listed = [_facts(settings, one, planned.superseded) for one in decisions]
    deletions = planned.plan.deletions
    asked = planned.asked
    used = {name for one in decisions for name in _under(planned, one)}
    return {
        "catalogue_is_made": planned.is_made,
        "ages_until_ns": planned.time.now_ns,
        "clock_ahead_seconds": round(planned.time.ahead_ns / clock.NS, 1),
        "asked": None if asked is None else _asked(asked.plan, len(asked.deletions), asked.size),
        "why_asked": None if asked is None else asked.why,
        "kept": len(decisions) - len(deletions),
        "deleted": len(deletions),
        "deleted_bytes": sum(one.checkpoint.size for one in deletions),
        "evicted": len(planned.plan.evictions),
        "unused_policies": [str(one) for one in planned.policies if str(one) not in used],
        "checkpoints": [one for one in listed if run_name in (None, one["run"])],
    }


def _under(planned: Planned, one: Decision) -> Iterator[str]:
    found = one.checkpoint
    for current in planned.policies:
        if current.policy.selects(found.run, found.path):
            yield str(current)


def _asked(plan: str, checkpoints: int, size_bytes: int) -> dict[str, Any]:
    return {"plan": plan, "checkpoints": checkpoints, "bytes": size_bytes}


def _facts(settings: Settings, decision: Decision, superseded: frozenset[int]) -> dict[str, Any]:
    one = decision.checkpoint
    return {
        "path": f"{settings.nfs.export}/{printable(one.path)}",
        "run": printable(one.run),
        "step": one.step,
        "state": one.state,
        "size_bytes": one.size,
        "fate": str(decision.fate),
        "why": decision.why,
        "policies": list(decision.policies),
        "evicted_by": decision.evict,
        "superseded": one.ino in superseded,
    }


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a plan for a person, from the facts of ``facts``."""
    for run, group in groupby(facts["checkpoints"], lambda one: one["run"]):
        yield run or "/"
        for one in group:
            yield _line(one)
    if not facts["checkpoints"]:
        yield "there are no checkpoints"
    yield (
        f"{facts['kept']:,} checkpoints are kept, {facts['deleted']:,} are deleted "
        f"({size(facts['deleted_bytes'])}), {facts['evicted']:,} leave the local disk"
    )
    if not facts["catalogue_is_made"]:
        yield "nothing is deleted: the namespace was not looked at as a whole yet"
    if facts["clock_ahead_seconds"]:
        yield clock_text(int(facts["clock_ahead_seconds"] * clock.NS))
    for name in facts["unused_policies"]:
        yield f"policy {name} selects no checkpoint"
    if facts["asked"] is not None:
        yield f"{facts['why_asked']}: {asked_text(facts['asked'])}"


def _line(one: dict[str, Any]) -> str:
    step = "-" if one["step"] is None else str(one["step"])
    fate = "delete" if one["fate"] == Fate.DELETE else "keep"
    name = one["path"].rpartition("/")[2]
    text = f"  {step:>10}  {fate:<6}  {one['state']:<9} {size(one['size_bytes']):>10}  {name}: "
    leaves = f"; leaves the local disk ({one['evicted_by']})" if one["evicted_by"] else ""
    held = "; superseded, and not uploaded meanwhile" if one["superseded"] else ""
    return f"{text}{one['why']}{leaves}{held}"


def asked_text(asked: dict[str, Any]) -> str:
    """Return what a person must do about a plan that is asked about."""
    what = f"{asked['checkpoints']:,} checkpoints, {size(asked['bytes'])}"
    return f"{what} are not deleted before: spillway policy approve {asked['plan']}"


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


def gather(settings: Settings) -> dict[str, Any]:
    """Return the facts for ``spillway status``. Raises UserError."""
    database = Database(settings.database_url)
    try:
        with database.reading() as session:
            policies = store.current(session)
            waiting = [one for one in store.approvals(session) if one.approved_ns is None]
            known = store.known_time(session)
            last = store.actions(session, 1)
    except NamespaceError as exc:
        raise UserError(f"cannot read the database {database.url}: {exc}") from None
    finally:
        database.close()
    ahead_ns = 0
    if known is not None and policies:
        ahead_ns = knowntime.judge(knowntime.reading(), known, None).ahead_ns
    asked = waiting[0] if waiting else None
    return {
        "policies": len(policies),
        "asked": None if asked is None else _asked(asked.plan, asked.checkpoints, asked.size),
        "clock_ahead_seconds": round(ahead_ns / clock.NS, 1),
        "last_action_ns": last[0].began_ns if last else None,
        "last_result": last[0].result if last else None,
    }


def status_lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person, from the facts of ``gather``."""
    count = facts["policies"]
    text = {0: "no policy deletes anything", 1: "1 policy"}.get(count, f"{count} policies")
    if facts["last_action_ns"] is not None:
        result = facts["last_result"] or "under way"
        text += f"; last action {moment(facts['last_action_ns'])}: {result}"
    yield "retention", text
    if facts["asked"] is not None:
        yield "retention", "ASKS: " + asked_text(facts["asked"])
    if facts["clock_ahead_seconds"]:
        yield "retention", clock_text(int(facts["clock_ahead_seconds"] * clock.NS))
