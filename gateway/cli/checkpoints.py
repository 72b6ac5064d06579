"""Commands `spillway checkpoint list`, `show` and `delete`, and the recovery points of runs.

`list` and `show` read rows and nothing else, so they work whether or not the gateway runs. `delete`
puts a checkpoint into the trash.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from gateway.catalogue.display_state import ALARMING, ARCHIVED, CATALOGUED, MEANING
from gateway.catalogue.facts import NOT_MADE, CheckpointState
from gateway.cli import files, output
from gateway.cli.files import each
from gateway.common.models import json_name, to_json
from gateway.common.text import display, shown
from gateway.common.units import duration, size
from gateway.service.checkpoints import (
    CatalogueStatus,
    Checkpoint,
    ListOptions,
    NewestCheckpoint,
    Run,
    Sort,
    UnknownDirectory,
)
from gateway.service.gateway import Gateway
from gateway.service.trash import Expired


def text(run: Run) -> str:
    """Return what a person reads about a run."""
    durable, complete = run.newest_durable, run.newest_complete
    words = ["nothing is durable" if durable is None else f"durable: {_named(durable)}"]
    if complete is not None and complete != durable:
        words.append(f"complete: {_named(complete)}")
    if not run.at_risk_seconds and not run.at_risk_bytes:
        return "; ".join([*words, "nothing newer is at risk"])
    left = run.eta_seconds
    eta = "the drain sends nothing"
    if left is not None:
        eta = f"the whole queue takes {duration(left)}"
    words.append(f"at risk: {duration(run.at_risk_seconds)}, {size(run.at_risk_bytes)}, {eta}")
    return "; ".join(words)


def _named(one: NewestCheckpoint) -> str:
    what = display(one.name) if one.step is None else f"step {one.step}"
    return f"{what} ({duration(one.age_seconds)} ago)"


RISKS_SHOWN = 5
AT_RISK_REMEDY = "see that the drain keeps up: spillway queue list"
COLUMNS = (">step", "state", "grade", ">size", "files", ">age", "checkpoint")
UNRECOGNISED_COLUMNS = (">files", ">size", "directory", "first file")
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
        output.print_json({"is_made": listing.is_made, "runs": runs, "checkpoints": rows})
    else:
        if options.is_sorted:
            cells = [_cells(one, one.path) for one in found]
            output.show_table(COLUMNS, cells)
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
        output.print_json({"unrecognised": found})
        return 0
    rows = [
        (f"{one.files:,}", size(one.size_bytes), display(one.path), display(one.first))
        for one in found
    ]
    output.show_table(UNRECOGNISED_COLUMNS, rows)
    if found:
        print("no rule knows these: say what they are with [[checkpoints.rule]]")
    else:
        print("every file of tensors belongs to a checkpoint")
    return 0


def lines(catalogue: CatalogueStatus) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person."""
    yield line(catalogue)
    first = catalogue.at_risk[:RISKS_SHOWN]
    for one in first:
        name = display(one.run) or "the export's root"
        if one.alarm is not None:
            yield "AT RISK", f"{name}: {one.alarm}; {text(one)}; {AT_RISK_REMEDY}"
        else:
            yield "at risk", f"{name}: {text(one)}"
    if (more := len(catalogue.at_risk) - len(first)) > 0:
        yield "at risk", f"and {more} more: spillway checkpoint list"
    unknown = catalogue.unrecognised
    if unknown is not None and (count := unknown.directories):
        where = unknown.first or "the export's root"
        what = "1 directory with files" if count == 1 else f"{count} directories with files"
        message = f"{what} of tensors that no rule knows, first {where}"
        yield "unrecognised", f"{message}: spillway checkpoint list --unrecognised"


def line(catalogue: CatalogueStatus) -> tuple[str, str]:
    """Return label and value of a line for a person."""
    counts = [f"{count} {state}" for state, count in catalogue.checkpoints.items() if count]
    count = "1 run" if catalogue.runs == 1 else f"{catalogue.runs} runs"
    return "catalogue", f"{count}: {', '.join(counts)}" if counts else "none"


def _show_runs(export: str, found: Sequence[Listed], runs: Sequence[Run]) -> None:
    risks = {one.run: one for one in runs}
    for name, group in groupby(found, lambda one: one.run):
        title = display(name or export)
        if name in risks:
            title += f": {text(risks[name])}"
        if name in risks and (alarm := risks[name].alarm) is not None:
            title += f"; AT RISK: {alarm}: {AT_RISK_REMEDY}"
        rows = [_cells(one, one.path.rpartition("/")[2]) for one in group]
        output.show_table(COLUMNS, rows, title=title)


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
    names = (json_name(field.name) for field in fields(Checkpoint))
    return {**{name: known.get(name) for name in names}, "reason": _reason(one)}


def _reason(one: Expired) -> str:
    return f"in the trash: spillway trash restore {one.id}"


def _cells(one: Listed, name: str) -> tuple[str, ...]:
    step = "-" if one.step is None else str(one.step)
    files = f"{one.files} file{'' if one.files == 1 else 's'}"
    grade, age = "-", "-"
    if isinstance(one, Checkpoint):
        grade = one.grade or "-"
        age = "-" if one.age_seconds is None else duration(one.age_seconds)
    return step, one.state, grade, size(one.size_bytes), files, age, _remark(one, name)


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
    if one.state == CheckpointState.DRAINING:
        left = f"{one.dirty_files} files, {size(one.dirty_bytes)}"
        return f"{name}: {left} are not in the bucket yet"
    if one.state in (CheckpointState.DURABLE, ARCHIVED) and one.manifest is None:
        return f"{name}: its manifest is not in the bucket yet"
    return name


def show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a checkpoint")


def show(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show what is known of checkpoints. Returns exit status 1 if a path is none. Raises
    UserError."""
    ways = {"path": _name, "run": _name, "state": _meaning, "grade": _meaning}
    return files.show_found(gateway.checkpoints.one, args, ways)


def _name(text: str) -> Iterator[str]:
    """Yield a path or name as people see it."""
    yield display(text)


def _meaning(word: str | None) -> Iterator[str]:
    """Yield a state or grade, with what it means."""
    yield str(word) if word is None else f"{word}: {MEANING[word]}"


def delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="although it is the newest, or no newer one is durable"
    )
    parser.add_argument("--reason", type=shown, metavar="TEXT", help="why, for other people")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a checkpoint")


def delete(args: argparse.Namespace, gateway: Gateway) -> int:
    """Move checkpoints into the trash. Returns exit status 1 if one stays. Raises UserError."""

    def act(path: str) -> None:
        made = gateway.checkpoints.delete(path, args.reason, insists=args.force)
        back = f"spillway trash restore {made.id} restores it"
        results.add(made, f"{display(made.path)}: in the trash as {made.id}: {back}")

    with output.Results(args.json) as results:
        return each(args.paths, act)
