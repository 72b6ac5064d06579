"""`spillway checkpoints`: lists runs and their checkpoints.

It reads the catalogue and nothing else, so it works whether or not the gateway runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from sqlalchemy import func, select

from gateway import clock, config
from gateway.checkpoints.facts import State
from gateway.cli.units import duration, size
from gateway.db import schema
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.statements import catalogue, checkpoint
from gateway.errors import NamespaceError, UserError
from gateway.settings import Settings
from gateway.text import printable

_NAMES = (
    *("path", "run", "step", "rule", "state", "reason", "files", "size"),
    *("dirty_files", "dirty_size", "complete_ns", "durable_ns"),
)
LIST = Statement(
    select(*(checkpoint.c[name] for name in _NAMES)).order_by(
        checkpoint.c.run,
        checkpoint.c.step.is_(None),
        checkpoint.c.step,
        checkpoint.c.path,
    )
)
COUNTS = Statement(select(checkpoint.c.state, func.count()).group_by(checkpoint.c.state))
RUNS = Statement(select(func.count(checkpoint.c.run.distinct())))
IS_MADE = Statement(select(catalogue.c.id))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="only this run")


def run(args: argparse.Namespace) -> int:
    """List the checkpoints. Returns exit status 1 if there is no such run. Raises UserError."""
    settings = config.load(args.config)
    schema.require_current(Database(settings.database_url))
    is_made, found = _read(settings)
    if args.run_name is not None:
        wanted = args.run_name.removeprefix(settings.nfs.export).strip("/")
        found = [one for one in found if one["run"] == wanted]
    if args.json:
        print(json.dumps({"is_made": is_made, "checkpoints": found}, indent=2))
    else:
        for line in _lines(settings, found):
            print(line)
        if not is_made:
            print("the namespace was not looked at as a whole yet: there may be more")
        elif not found:
            print("there are no checkpoints" + ("" if args.run_name is None else " of this run"))
    return 0 if found or args.run_name is None else 1


def gather(settings: Settings) -> dict[str, Any]:
    """Return the facts for ``spillway status``. Raises UserError."""
    with_counts, ((runs,),) = _query(settings, COUNTS, RUNS)
    counts = {str(state): 0 for state in State} | {row[0]: row[1] for row in with_counts}
    return {"runs": runs, "checkpoints": counts}


def line(facts: dict[str, Any]) -> tuple[str, str]:
    """Return label and value of a line for a person, from the facts of ``gather``."""
    counts = [f"{count} {state}" for state, count in facts["checkpoints"].items() if count]
    runs = "1 run" if facts["runs"] == 1 else f"{facts['runs']} runs"
    return "catalogue", f"{runs}: {', '.join(counts)}" if counts else "none"


def _query(settings: Settings, *statements: Statement) -> list[list[Any]]:
    """Return the rows of statements. Raises UserError."""
    database = Database(settings.database_url)
    try:
        with database.snapshot() as connection:
            session = Session(connection, database.dialect)
            return [list(session.all(statement)) for statement in statements]
    except NamespaceError as exc:
        raise UserError(f"cannot read the database {database.url}: {exc}") from None
    finally:
        database.close()


def _read(settings: Settings) -> tuple[bool, list[dict[str, Any]]]:
    """Return whether the catalogue is complete, and its rows in the order of runs and steps."""
    made_with, rows = _query(settings, IS_MADE, LIST)
    now_ns = clock.now_ns()
    found = []
    for row in rows:
        one = dict(zip(_NAMES, row, strict=True))
        one["run"] = printable(bytes(one["run"]))
        one["path"] = f"{settings.nfs.export}/{printable(bytes(one['path']))}"
        one["size_bytes"], one["dirty_bytes"] = one.pop("size"), one.pop("dirty_size")
        complete_ns = one["complete_ns"]
        age_ns = None if complete_ns is None else max(0, now_ns - complete_ns)
        one["age_seconds"] = None if age_ns is None else round(age_ns / clock.NS, 1)
        found.append(one)
    return bool(made_with), found


def _lines(settings: Settings, found: list[dict[str, Any]]) -> Iterator[str]:
    for name, group in groupby(found, lambda one: one["run"]):
        yield name or settings.nfs.export
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
    return str(name)
