"""`spillway checkpoints`: lists runs and their checkpoints.

It reads the catalogue and nothing else, so it works whether or not the gateway runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from sqlalchemy import func, select

from gateway import clock, config
from gateway.checkpoints.facts import State
from gateway.checkpoints.risk import measure
from gateway.cli import risk
from gateway.db import schema
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.statements import catalogue, checkpoint, manifest
from gateway.errors import NamespaceError, UserError
from gateway.settings import Settings
from gateway.text import printable
from gateway.units import duration, size

_NAMES = (
    *("path", "run", "step", "rule", "state", "reason", "files", "size"),
    *("dirty_files", "dirty_size", "complete_ns", "durable_ns"),
)
_MANIFEST = (
    select(func.min(manifest.c.key))
    .where(
        manifest.c.ino == checkpoint.c.ino,
        manifest.c.evidence == checkpoint.c.evidence,
        manifest.c.etag.is_not(None),
    )
    .scalar_subquery()
)
LIST = Statement(
    select(*(checkpoint.c[name] for name in _NAMES), _MANIFEST).order_by(
        checkpoint.c.run,
        checkpoint.c.step.is_(None),
        checkpoint.c.step,
        checkpoint.c.path,
    )
)
COUNTS = Statement(select(checkpoint.c.state, func.count()).group_by(checkpoint.c.state))
RUNS = Statement(select(func.count(checkpoint.c.run.distinct())))
IS_MADE = Statement(select(catalogue.c.id))
RISKS_SHOWN = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="only this run")


def run(args: argparse.Namespace) -> int:
    """List the checkpoints. Returns exit status 1 if there is no such run. Raises UserError."""
    settings = config.load(args.config)
    schema.require_current(Database(settings.database_url))
    is_made, found, runs = _read(settings)
    if args.run_name is not None:
        wanted = args.run_name.removeprefix(settings.nfs.export).strip("/")
        found = [one for one in found if one["run"] == wanted]
        runs = [one for one in runs if one["run"] == wanted]
    if args.json:
        print(json.dumps({"is_made": is_made, "runs": runs, "checkpoints": found}, indent=2))
    else:
        for line in _lines(settings, found, runs):
            print(line)
        if not is_made:
            print("the namespace was not looked at as a whole yet: there may be more")
        elif not found:
            print("there are no checkpoints" + ("" if args.run_name is None else " of this run"))
    return 0 if found or args.run_name is None else 1


def gather(settings: Settings) -> dict[str, Any]:
    """Return the facts for ``spillway status``. Raises UserError."""
    with _reading(settings) as session:
        counts = {str(state): 0 for state in State}
        counts |= {row[0]: row[1] for row in session.all(COUNTS)}
        ((runs,),) = session.all(RUNS)
        facts = risk.facts_of(settings, measure(session))
    at_risk = sorted(
        (one for one in facts if one["at_risk_seconds"] or one["at_risk_bytes"]),
        key=lambda one: (one["alarm"] is None, -one["at_risk_seconds"]),
    )
    alarms = sum(one["alarm"] is not None for one in facts)
    return {"runs": runs, "checkpoints": counts, "at_risk": at_risk, "alarms": alarms}


def lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person, from the facts of ``gather``."""
    yield line(facts)
    shown = facts["at_risk"][:RISKS_SHOWN]
    for one in shown:
        name = one["run"] or "the export's root"
        if one["alarm"] is not None:
            remedy = "see that the drain keeps up: spillway queue"
            yield "AT RISK", f"{name}: {one['alarm']}; {risk.text(one)}; {remedy}"
        else:
            yield "at risk", f"{name}: {risk.text(one)}"
    if len(facts["at_risk"]) > len(shown):
        yield "at risk", f"and {len(facts['at_risk']) - len(shown)} more: spillway checkpoints"


def line(facts: dict[str, Any]) -> tuple[str, str]:
    """Return label and value of a line for a person, from the facts of ``gather``."""
    counts = [f"{count} {state}" for state, count in facts["checkpoints"].items() if count]
    runs = "1 run" if facts["runs"] == 1 else f"{facts['runs']} runs"
    return "catalogue", f"{runs}: {', '.join(counts)}" if counts else "none"


@contextmanager
def _reading(settings: Settings) -> Iterator[Session]:
    """Open a read transaction. Raises UserError."""
    database = Database(settings.database_url)
    try:
        with database.snapshot() as connection:
            yield Session(connection, database.dialect)
    except NamespaceError as exc:
        raise UserError(f"cannot read the database {database.url}: {exc}") from None
    finally:
        database.close()


def _read(settings: Settings) -> tuple[bool, list[dict[str, Any]], list[dict[str, Any]]]:
    """Return whether the catalogue is complete, its rows in the order of runs and steps, and the
    runs."""
    with _reading(settings) as session:
        made_with, rows = session.all(IS_MADE), session.all(LIST)
        runs = risk.facts_of(settings, measure(session))
    now_ns = clock.now_ns()
    found = []
    for row in rows:
        one = dict(zip((*_NAMES, "manifest"), row, strict=True))
        one["run"] = printable(bytes(one["run"]))
        one["path"] = f"{settings.nfs.export}/{printable(bytes(one['path']))}"
        one["size_bytes"], one["dirty_bytes"] = one.pop("size"), one.pop("dirty_size")
        complete_ns = one["complete_ns"]
        age_ns = None if complete_ns is None else max(0, now_ns - complete_ns)
        one["age_seconds"] = None if age_ns is None else round(age_ns / clock.NS, 1)
        found.append(one)
    return bool(made_with), found, runs


def _lines(
    settings: Settings, found: list[dict[str, Any]], runs: list[dict[str, Any]]
) -> Iterator[str]:
    risks = {one["run"]: one for one in runs}
    for name, group in groupby(found, lambda one: one["run"]):
        about = f": {risk.text(risks[name])}" if name in risks else ""
        yield (name or settings.nfs.export) + about
        for one in group:
            step = "-" if one["step"] is None else str(one["step"])
            age = "-" if one["age_seconds"] is None else duration(one["age_seconds"])
            files = f"{one['files']} file{'' if one['files'] == 1 else 's'}"
            text = f"  {step:>10}  {one['state']:<9} {size(one['size_bytes']):>10}"
            yield f"{text}  {files:<12} {age:>9}  {_remark(one)}".rstrip()


def _remark(one: dict[str, Any]) -> str:
    name = one["path"].rpartition("/")[2]
    if one["reason"] is not None:
        return f"{name}: {one['reason']}"
    if one["state"] == State.DRAINING:
        left = f"{one['dirty_files']} files, {size(one['dirty_bytes'])}"
        return f"{name}: {left} are not in the bucket yet"
    if one["state"] == State.DURABLE and one["manifest"] is None:
        return f"{name}: its manifest is not in the bucket yet"
    return str(name)
