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


def _named(checkpoint: NewestCheckpoint) -> str:
    title = display(checkpoint.name) if checkpoint.step is None else f"step {checkpoint.step}"
    return f"{title} ({duration(checkpoint.age_seconds)} ago)"


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
    listed: list[Listed] = [*listing.checkpoints, *listing.expired]
    runs = sorted(listing.runs, key=_run_key)
    if not options.is_sorted:
        listed.sort(key=_key)
    if args.json:
        rows = [_expired(entry) if isinstance(entry, Expired) else entry for entry in listed]
        output.print_json({"is_made": listing.is_made, "runs": runs, "checkpoints": rows})
    else:
        if options.is_sorted:
            cells = [_cells(entry, entry.path) for entry in listed]
            output.show_table(COLUMNS, cells)
        else:
            _show_runs(listing.export, listed, runs)
        for text in _meanings(listed):
            print(text)
        if not listing.is_made:
            print(f"{NOT_MADE}: there may be more")
        elif not listed:
            print("there are no checkpoints" + ("" if args.run_name is None else " of this run"))
    return 0 if listed or args.run_name is None else 1


def _show_unrecognised(directories: Sequence[UnknownDirectory], as_json: bool) -> int:
    """Print the directories that no rule knows. Returns the exit status."""
    if as_json:
        output.print_json({"unrecognised": directories})
        return 0
    rows = [
        (
            f"{directory.files:,}",
            size(directory.size_bytes),
            display(directory.path),
            display(directory.first),
        )
        for directory in directories
    ]
    output.show_table(UNRECOGNISED_COLUMNS, rows)
    if directories:
        print("no rule knows these: say what they are with [[checkpoints.rule]]")
    else:
        print("every file of tensors belongs to a checkpoint")
    return 0


def lines(catalogue: CatalogueStatus) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person."""
    yield line(catalogue)
    first = catalogue.at_risk[:RISKS_SHOWN]
    for run_summary in first:
        name = display(run_summary.run) or "the export's root"
        if run_summary.alarm is not None:
            yield "AT RISK", f"{name}: {run_summary.alarm}; {text(run_summary)}; {AT_RISK_REMEDY}"
        else:
            yield "at risk", f"{name}: {text(run_summary)}"
    if (more := len(catalogue.at_risk) - len(first)) > 0:
        yield "at risk", f"and {more} more: spillway checkpoint list"
    unknown = catalogue.unrecognised
    if unknown is not None and (count := unknown.directories):
        where = unknown.first or "the export's root"
        directories = "1 directory with files" if count == 1 else f"{count} directories with files"
        message = f"{directories} of tensors that no rule knows, first {where}"
        yield "unrecognised", f"{message}: spillway checkpoint list --unrecognised"


def line(catalogue: CatalogueStatus) -> tuple[str, str]:
    """Return label and value of a line for a person."""
    counts = [f"{count} {state}" for state, count in catalogue.checkpoints.items() if count]
    count = "1 run" if catalogue.runs == 1 else f"{catalogue.runs} runs"
    return "catalogue", f"{count}: {', '.join(counts)}" if counts else "none"


def _show_runs(export: str, listed: Sequence[Listed], runs: Sequence[Run]) -> None:
    risks = {summary.run: summary for summary in runs}
    for name, group in groupby(listed, lambda entry: entry.run):
        title = display(name or export)
        if name in risks:
            title += f": {text(risks[name])}"
        if name in risks and (alarm := risks[name].alarm) is not None:
            title += f"; AT RISK: {alarm}: {AT_RISK_REMEDY}"
        rows = [_cells(entry, entry.path.rpartition("/")[2]) for entry in group]
        output.show_table(COLUMNS, rows, title=title)


def _run_key(entry: Run | Listed) -> tuple[Any, ...]:
    """Return the place of a run: the numbers in its name count as numbers."""
    parts = re.split("([0-9]+)", entry.run)
    parts[1::2] = map(int, parts[1::2])
    return parts, entry.run


def _key(entry: Listed) -> tuple[Any, ...]:
    return *_run_key(entry), entry.step is None, entry.step or 0, entry.path


def _expired(entry: Expired) -> dict[str, Any]:
    """Return a checkpoint in the trash with the names that the others have."""
    known = to_json(entry)
    names = (json_name(field.name) for field in fields(Checkpoint))
    return {**{name: known.get(name) for name in names}, "reason": _reason(entry)}


def _reason(entry: Expired) -> str:
    return f"in the trash: spillway trash restore {entry.id}"


def _cells(entry: Listed, name: str) -> tuple[str, ...]:
    step = "-" if entry.step is None else str(entry.step)
    files = f"{entry.files} file{'' if entry.files == 1 else 's'}"
    grade, age = "-", "-"
    if isinstance(entry, Checkpoint):
        grade = entry.grade or "-"
        age = "-" if entry.age_seconds is None else duration(entry.age_seconds)
    return step, entry.state, grade, size(entry.size_bytes), files, age, _remark(entry, name)


def _meanings(listed: Sequence[Listed]) -> Iterator[str]:
    """Yield what a person must know of the states and grades that were listed."""
    words = {entry.state for entry in listed}
    words |= {entry.grade for entry in listed if isinstance(entry, Checkpoint) and entry.grade}
    for word in ALARMING:
        if word in words:
            yield f"{word}: {MEANING[word]}"


def _remark(entry: Listed, name: str) -> str:
    name = display(name)
    if isinstance(entry, Expired):
        return f"{name}: {_reason(entry)}"
    if entry.reason is not None:
        return f"{name}: {entry.reason}"
    if entry.state == CheckpointState.DRAINING:
        left = f"{entry.dirty_files} files, {size(entry.dirty_bytes)}"
        return f"{name}: {left} are not in the bucket yet"
    if entry.state in (CheckpointState.DURABLE, ARCHIVED) and entry.manifest is None:
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
