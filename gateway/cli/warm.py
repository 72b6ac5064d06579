"""`spillway warm`: asks for evicted files, and waits until their bytes are on the disk."""

from __future__ import annotations

import argparse
import sys
import time

from gateway import config, state
from gateway.cli import result
from gateway.cli.look import DONE, NOT_POSSIBLE, refuse
from gateway.cli.progress import Line, Transfer
from gateway.control.paths import browsing
from gateway.control.warming import Warmed, Warming
from gateway.db.opening import opened
from gateway.errors import START, NotPossible
from gateway.serialize import to_json
from gateway.text import shown
from gateway.units import duration, size

DAMAGED_SHOWN = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until all bytes are on the disk")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace) -> int:
    """Ask for files. Returns exit status 1 if a path was not found or a file cannot be fetched.

    Raises UserError.
    """
    settings = config.load(args.config)
    status = DONE
    with opened(settings.database_url) as database:
        warming = Warming(settings, database)
        with browsing(settings) as browser:
            for path in args.paths:
                try:
                    warming.ask(browser, path)
                except NotPossible as exc:
                    status = refuse(exc)
        error = _wait(warming, args.json) if args.wait else None
    is_fetching = state.alive(state.read(settings, state.CACHE))
    return max(status, show(warming.model(), error, args, is_fetching))


def show(done: Warmed, error: str | None, args: argparse.Namespace, is_fetching: bool) -> int:
    """Print what was done. Returns the exit status.

    Parameters: error, why a longer wait is useless; is_fetching, whether the hydrator runs.
    """
    status = DONE if error is None else refuse(NotPossible(error))
    if args.json:
        result.print_json({**to_json(done), "waited": args.wait, "error": error})
    elif error is None:
        print(_result(done, args.wait, is_fetching))
    for one in done.damaged[:DAMAGED_SHOWN]:
        status = NOT_POSSIBLE
        if not args.json:
            print(f"spillway: {one.path}: {shown(one.reason)}", file=sys.stderr)
    return status


def _wait(warming: Warming, as_json: bool) -> str | None:
    line, transfer = Line(quiet=as_json), Transfer()

    def rest(seconds: float) -> None:
        transfer.note(warming.done_bytes)
        text = transfer.text(warming.total_bytes, warming.files, warming.left_files)
        text += "" if warming.has_room else "; the disk is short of room"
        line.show(text if warming.outage is None else f"{text}; {warming.outage}")
        time.sleep(seconds)

    try:
        return warming.wait(rest)
    finally:
        line.end()


def _result(done: Warmed, has_waited: bool, is_fetching: bool) -> str:
    """Return one line about what was done."""
    counted = f"{done.files:,} files, {size(done.bytes)}"
    resident = done.resident_before_files
    there = f"; {resident:,} files are on the disk" if resident else ""
    if has_waited:
        return f"fetched: {counted} in {duration(done.seconds)}{there}"
    note = "" if is_fetching else f"; the hydrator does not run: start it: {START}"
    return f"asked for: {counted}{there}{note}"
