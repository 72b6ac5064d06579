"""`spillway checkpoints`: lists runs and their checkpoints.

It reads rows and nothing else, so it works whether or not the gateway runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Any

from gateway import config
from gateway.checkpoints.catalogue import catalogue_of
from gateway.checkpoints.facts import NOT_MADE, State
from gateway.checkpoints.risk import measure
from gateway.checkpoints.shown import ALARMING, ARCHIVED, CATALOGUED, MEANING
from gateway.checkpoints.unrecognised import unrecognised
from gateway.cli import risk, table
from gateway.control import checkpoints, trash
from gateway.control.checkpoints import Sort, Wanted
from gateway.control.runs import facts_of
from gateway.db.opening import opened, reading
from gateway.settings import Settings
from gateway.text import printable, shown
from gateway.units import duration, size

RISKS_SHOWN = 5
COLUMNS = (">step", "state", "grade", ">size", "files", ">age", "checkpoint")
FACTS = (
    *("ino", "path", "run", "step", "rule", "state", "reason", "files", "size_bytes"),
    *("dirty_files", "dirty_bytes", "complete_ns", "durable_ns", "age_seconds", "manifest"),
    *("evidence", "storage_class", "grade"),
)
"""What ``gateway.control.checkpoints`` says of a checkpoint."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("--state", choices=CATALOGUED, help="only those in this state")
    parser.add_argument("--rule", type=shown, help="only those that this rule recognised")
    parser.add_argument("--text", help="only those with this in the path")
    parser.add_argument(
        "--sort", choices=list(Sort), default=Sort.RUN, help="default: run, by run and step"
    )
    parser.add_argument("--reverse", action="store_true", help="in the other direction")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N of this order")
    parser.add_argument(
        "--unrecognised",
        action="store_true",
        help="directories with files of tensors that belong to no checkpoint (reads all names)",
    )
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="only this run")


def run(args: argparse.Namespace) -> int:
    """List the checkpoints. Returns exit status 1 if there is no such run. Raises UserError."""
    settings = config.load(args.config)
    if args.unrecognised:
        return _show_unrecognised(settings, args)
    run = run_of(settings.nfs.export, args.run_name)
    wanted = Wanted(
        run=None if run is None else os.fsencode(run),
        state=args.state,
        rule=args.rule,
        text=os.fsencode(args.text) if args.text else None,
    )
    with opened(settings.database_url) as database, reading(database) as session:
        listed = checkpoints.every(session, settings, wanted, Sort(args.sort), args.reverse)
        facts: dict[str, Any] = {
            "is_made": checkpoints.is_made(session),
            "runs": facts_of(settings, measure(session)),
            "checkpoints": list(islice(listed, limit_of(args))),
        }
        expired = trash.named(settings, session)
    return show(facts, expired, settings.nfs.export, args)


def _show_unrecognised(settings: Settings, args: argparse.Namespace) -> int:
    """Print the directories that no rule knows. Raises UserError."""
    with opened(settings.database_url) as database:
        found = unrecognised(catalogue_of(settings, database))
    export = settings.nfs.export
    facts = [
        {
            "path": f"{export}/{printable(one.path)}".rstrip("/"),
            "files": one.files,
            "size_bytes": one.size,
            "first": printable(one.first),
        }
        for one in found
    ]
    if args.json:
        print(json.dumps({"unrecognised": facts}, indent=2))
        return 0
    for path, one in zip((one["path"] for one in facts), found, strict=True):
        count = "1 file" if one.files == 1 else f"{one.files} files"
        print(f"{path}: {count}, {size(one.size)}: {printable(one.first)}")
    if found:
        print("no rule knows these: say what they are with [[checkpoints.rule]]")
    else:
        print("every file of tensors belongs to a checkpoint")
    return 0


def run_of(export: str, name: str | None) -> str | None:
    """Return the name of a run from the path or name that a person gave. Parameters: export, its
    path."""
    return None if name is None else name.removeprefix(export).strip("/")


def limit_of(args: argparse.Namespace) -> int | None:
    """Return how many checkpoints are listed at most, or None for all."""
    return None if args.limit is None else max(0, args.limit)


def show(
    facts: dict[str, Any], expired: Sequence[dict[str, Any]], export: str, args: argparse.Namespace
) -> int:
    """Print the checkpoints, and what each run would lose. Returns the exit status.

    Parameters: facts, at least of the wanted run; expired, the facts of what is in the trash;
    export, its path.
    """
    is_sorted = args.sort != Sort.RUN or args.reverse
    if not (is_sorted or args.state or args.rule or args.text or args.limit is not None):
        facts["checkpoints"] += map(_expired, expired)
    run = run_of(export, args.run_name)
    for name, key in (("runs", _run_key), ("checkpoints", _key)):
        wanted = [one for one in facts[name] if run in (None, one["run"])]
        is_kept = is_sorted and name == "checkpoints"
        facts[name] = wanted if is_kept else sorted(wanted, key=key)
    found = facts["checkpoints"]
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        if is_sorted:
            rows = [_cells(one, one["path"]) for one in found]
            table.show(COLUMNS, rows, map(_line, rows))
        else:
            _show_runs(export, found, facts["runs"])
        for text in _meanings(found):
            print(text)
        if not facts["is_made"]:
            print(f"{NOT_MADE}: there may be more")
        elif not found:
            print("there are no checkpoints" + ("" if args.run_name is None else " of this run"))
    return 0 if found or args.run_name is None else 1


def lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person, from the facts of gateway.control."""
    yield line(facts)
    first = facts["at_risk"][:RISKS_SHOWN]
    for one in first:
        name = one["run"] or "the export's root"
        if one["alarm"] is not None:
            remedy = "see that the drain keeps up: spillway queue"
            yield "AT RISK", f"{name}: {one['alarm']}; {risk.text(one)}; {remedy}"
        else:
            yield "at risk", f"{name}: {risk.text(one)}"
    if len(facts["at_risk"]) > len(first):
        yield "at risk", f"and {len(facts['at_risk']) - len(first)} more: spillway checkpoints"
    unknown = facts["unrecognised"]
    if unknown is not None and (count := unknown["directories"]):
        where = unknown["first"] or "the export's root"
        what = "1 directory with files" if count == 1 else f"{count} directories with files"
        said = f"{what} of tensors that no rule knows, first {where}"
        yield "unrecognised", f"{said}: spillway checkpoints --unrecognised"


def line(facts: dict[str, Any]) -> tuple[str, str]:
    """Return label and value of a line for a person, from the facts of gateway.control."""
    counts = [f"{count} {state}" for state, count in facts["checkpoints"].items() if count]
    runs = "1 run" if facts["runs"] == 1 else f"{facts['runs']} runs"
    return "catalogue", f"{runs}: {', '.join(counts)}" if counts else "none"


def _show_runs(export: str, found: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    risks = {one["run"]: one for one in runs}
    for name, group in groupby(found, lambda one: one["run"]):
        about = f": {risk.text(risks[name])}" if name in risks else ""
        title = (name or export) + about
        rows = [_cells(one, one["path"].rpartition("/")[2]) for one in group]
        table.show(COLUMNS, rows, chain([title], map(_line, rows)), title=title)


def _run_key(one: dict[str, Any]) -> tuple[Any, ...]:
    """Return the place of a run: the numbers in its name count as numbers."""
    parts = re.split("([0-9]+)", one["run"])
    parts[1::2] = map(int, parts[1::2])
    return parts, one["run"]


def _key(one: dict[str, Any]) -> tuple[Any, ...]:
    return *_run_key(one), one["step"] is None, one["step"] or 0, one["path"]


def _expired(one: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a checkpoint in the trash, like those of the others."""
    names = ("path", "run", "step", "state", "files", "size_bytes")
    known = {name: one[name] for name in names}
    reason = f"in the trash: spillway undelete {one['id']}"
    return {**dict.fromkeys(FACTS), **known, "reason": reason}


def _cells(one: dict[str, Any], name: str) -> tuple[str, ...]:
    step = "-" if one["step"] is None else str(one["step"])
    age = "-" if one["age_seconds"] is None else duration(one["age_seconds"])
    files = f"{one['files']} file{'' if one['files'] == 1 else 's'}"
    grade = one["grade"] or "-"
    return step, one["state"], grade, size(one["size_bytes"]), files, age, _remark(one, name)


def _line(cells: tuple[str, ...]) -> str:
    step, state, grade, length, files, age, remark = cells
    first = f"  {step:>10}  {state:<9} {grade:<6} {length:>10}"
    return f"{first}  {files:<12} {age:>9}  {remark}".rstrip()


def _meanings(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what a person must know of the states and grades that were listed."""
    for word in ALARMING:
        if any(word in (one["state"], one["grade"]) for one in found):
            yield f"{word}: {MEANING[word]}"


def _remark(one: dict[str, Any], name: str) -> str:
    if one["reason"] is not None:
        return f"{name}: {one['reason']}"
    if one["state"] == State.DRAINING:
        left = f"{one['dirty_files']} files, {size(one['dirty_bytes'])}"
        return f"{name}: {left} are not in the bucket yet"
    if one["state"] in (State.DURABLE, ARCHIVED) and one["manifest"] is None:
        return f"{name}: its manifest is not in the bucket yet"
    return name
