"""`spillway warm`: asks for evicted files, and waits until their bytes are on the disk."""

from __future__ import annotations

import argparse
import sys

from gateway.cli import result
from gateway.cli.look import NOT_POSSIBLE, refuse_each
from gateway.cli.progress import showing
from gateway.control.files import Files
from gateway.control.gateway import Gateway
from gateway.control.warming import Requested, Warmed
from gateway.errors import START
from gateway.escapes import display
from gateway.text import shown
from gateway.units import duration, size

DAMAGED_SHOWN = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until all bytes are on the disk")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Ask for files. Returns exit status 1 if a path was not found or a file cannot be fetched.

    Raises UserError.
    """
    return (_wait if args.wait else _request)(gateway.files, args)


def _request(files: Files, args: argparse.Namespace) -> int:
    asked = files.request(args.paths)
    status = refuse_each(asked.failures)
    result.show(asked, _asked_for(asked), args.json)
    return status


def _asked_for(asked: Requested) -> str:
    """Return one line about what was asked for."""
    if asked.job is not None:
        return f"asked for: spillway jobs show {asked.job} shows how far it is"
    note = "" if asked.hydrator_alive else f"; the hydrator does not run: start it: {START}"
    there = _there(asked.resident_before_files or 0)
    return f"asked for: {_counted(asked.files or 0, asked.bytes or 0)}{there}{note}"


def _wait(files: Files, args: argparse.Namespace) -> int:
    with showing(args.json) as tell:
        done = files.warm(args.paths, tell)
    status = refuse_each([*done.failures, *filter(None, [done.error])])
    if args.json:
        result.print_json(done)
    elif done.error is None:
        print(_fetched(done))
    for one in done.damaged[:DAMAGED_SHOWN]:
        status = NOT_POSSIBLE
        if not args.json:
            print(f"spillway: {display(one.path)}: {shown(one.reason)}", file=sys.stderr)
    return status


def _fetched(done: Warmed) -> str:
    """Return one line about what was done."""
    there = _there(done.resident_before_files)
    return f"fetched: {_counted(done.files, done.bytes)} in {duration(done.seconds)}{there}"


def _counted(files: int, size_bytes: int) -> str:
    return f"{files:,} files, {size(size_bytes)}"


def _there(files: int) -> str:
    return f"; {files:,} files are on the disk" if files else ""
