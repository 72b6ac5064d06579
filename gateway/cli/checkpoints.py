"""`spillway checkpoints`: lists runs and their checkpoints.

It reads rows and nothing else, so it works whether or not the gateway runs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import chain, groupby
from typing import Any

from gateway.checkpoints.facts import NOT_MADE, State
from gateway.checkpoints.shown import ALARMING, ARCHIVED, CATALOGUED, MEANING
from gateway.cli import result, risk, table
from gateway.control.checkpoints import (
    Catalogue,
    Checkpoint,
    ListOptions,
    Sort,
    UnknownDirectory,
)
from gateway.control.gateway import Gateway
from gateway.control.runs import Run
from gateway.control.trash import Expired
from gateway.escapes import display
from gateway.serialize import to_json
from gateway.text import shown
from gateway.units import duration, size

RISKS_SHOWN = 5
COLUMNS = (">step", "state", "grade", ">size", "files", ">age", "checkpoint")
Listed = Checkpoint | Expired
"""What a list has: the catalogue's, and what is in the trash."""


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


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """List the checkpoints. Returns exit status 1 if there is no such run. Raises UserError."""
    if args.unrecognised:
        return _show_unrecognised(gateway.checkpoints.unrecognised(), args.json)
    options = ListOptions(
        run=args.run_name,
        state=args.state,
        rule=args.rule,
        text=args.text,
        sort=Sort(args.sort),
        is_descending=args.reverse,
        most=None if args.limit is None else max(0, args.limit),
    )
    listing = gateway.checkpoints.listing(options)
    found: list[Listed] = [*listing.checkpoints, *listing.expired]
    runs = sorted(listing.runs, key=_run_key)
    if not options.is_sorted:
        found.sort(key=_key)
    if args.json:
        rows = [_expired(one) if isinstance(one, Expired) else one for one in found]
        result.print_json({"is_made": listing.is_made, "runs": runs, "checkpoints": rows})
    else:
        if options.is_sorted:
            cells = [_cells(one, one.path) for one in found]
            table.show(COLUMNS, cells, map(_line, cells))
        else:
            _show_runs(listing.export, found, runs)
        for text in _meanings(found):
            print(text)
        if not listing.is_made:
            print(f"{NOT_MADE}: there may be more")
        elif not found:
            print("there are no checkpoints" + ("" if args.run_name is None else " of this run"))
    return 0 if found or args.run_name is None else 1


def _show_unrecognised(found: Sequence[UnknownDirectory], as_json: bool) -> int:
    """Print the directories that no rule knows. Returns the exit status."""
    if as_json:
        result.print_json({"unrecognised": found})
        return 0
    for one in found:
        count = "1 file" if one.files == 1 else f"{one.files} files"
        print(f"{display(one.path)}: {count}, {size(one.size_bytes)}: {display(one.first)}")
    if found:
        print("no rule knows these: say what they are with [[checkpoints.rule]]")
    else:
        print("every file of tensors belongs to a checkpoint")
    return 0


def lines(catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person."""
    yield line(catalogue)
    first = catalogue.at_risk[:RISKS_SHOWN]
    for one in first:
        name = display(one.run) or "the export's root"
        if one.alarm is not None:
            remedy = "see that the drain keeps up: spillway queue"
            yield "AT RISK", f"{name}: {one.alarm}; {risk.text(one)}; {remedy}"
        else:
            yield "at risk", f"{name}: {risk.text(one)}"
    if (more := len(catalogue.at_risk) - len(first)) > 0:
        yield "at risk", f"and {more} more: spillway checkpoints"
    unknown = catalogue.unrecognised
    if unknown is not None and (count := unknown["directories"]):
        where = unknown["first"] or "the export's root"
        what = "1 directory with files" if count == 1 else f"{count} directories with files"
        said = f"{what} of tensors that no rule knows, first {where}"
        yield "unrecognised", f"{said}: spillway checkpoints --unrecognised"


def line(catalogue: Catalogue) -> tuple[str, str]:
    """Return label and value of a line for a person."""
    counts = [f"{count} {state}" for state, count in catalogue.checkpoints.items() if count]
    count = "1 run" if catalogue.runs == 1 else f"{catalogue.runs} runs"
    return "catalogue", f"{count}: {', '.join(counts)}" if counts else "none"


def _show_runs(export: str, found: Sequence[Listed], runs: Sequence[Run]) -> None:
    risks = {one.run: one for one in runs}
    for name, group in groupby(found, lambda one: one.run):
        about = f": {risk.text(risks[name])}" if name in risks else ""
        title = display(name or export) + about
        rows = [_cells(one, one.path.rpartition("/")[2]) for one in group]
        table.show(COLUMNS, rows, chain([title], map(_line, rows)), title=title)


def _run_key(one: Run | Listed) -> tuple[Any, ...]:
    """Return the place of a run: the numbers in its name count as numbers."""
    parts = re.split("([0-9]+)", one.run)
    parts[1::2] = map(int, parts[1::2])
    return parts, one.run


def _key(one: Listed) -> tuple[Any, ...]:
    return *_run_key(one), one.step is None, one.step or 0, one.path


def _expired(one: Expired) -> dict[str, Any]:
    """Return a checkpoint in the trash with the names that the others have."""
    known = to_json(one)
    names = (field.name for field in fields(Checkpoint))
    return {**{name: known.get(name) for name in names}, "reason": _reason(one)}


def _reason(one: Expired) -> str:
    return f"in the trash: spillway undelete {one.id}"


def _cells(one: Listed, name: str) -> tuple[str, ...]:
    step = "-" if one.step is None else str(one.step)
    files = f"{one.files} file{'' if one.files == 1 else 's'}"
    grade, age = "-", "-"
    if isinstance(one, Checkpoint):
        grade = one.grade or "-"
        age = "-" if one.age_seconds is None else duration(one.age_seconds)
    return step, one.state, grade, size(one.size_bytes), files, age, _remark(one, name)


def _line(cells: tuple[str, ...]) -> str:
    step, state, grade, length, files, age, remark = cells
    first = f"  {step:>10}  {state:<9} {grade:<6} {length:>10}"
    return f"{first}  {files:<12} {age:>9}  {remark}".rstrip()


def _meanings(found: Sequence[Listed]) -> Iterator[str]:
    """Yield what a person must know of the states and grades that were listed."""
    words = {one.state for one in found}
    words |= {one.grade for one in found if isinstance(one, Checkpoint) and one.grade}
    for word in ALARMING:
        if word in words:
            yield f"{word}: {MEANING[word]}"


def _remark(one: Listed, name: str) -> str:
    name = display(name)
    if isinstance(one, Expired):
        return f"{name}: {_reason(one)}"
    if one.reason is not None:
        return f"{name}: {one.reason}"
    if one.state == State.DRAINING:
        left = f"{one.dirty_files} files, {size(one.dirty_bytes)}"
        return f"{name}: {left} are not in the bucket yet"
    if one.state in (State.DURABLE, ARCHIVED) and one.manifest is None:
        return f"{name}: its manifest is not in the bucket yet"
    return name
