"""`spillway evict`: frees the local disk of files that are in the bucket."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gateway import config
from gateway.cli.look import DONE, refuse
from gateway.cli.progress import Line
from gateway.control.evicting import evicting
from gateway.errors import DoorClosed, NotPossible
from gateway.units import size


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace) -> int:
    """Evict files. Returns exit status 1 if a named path could not be evicted. Raises UserError."""
    status = DONE
    line = Line(quiet=args.json)
    with evicting(config.load(args.config)) as eviction:
        for path in args.paths:
            try:
                try:
                    eviction.path(path, lambda count: line.show(f"{count:,} files evicted"))
                finally:
                    line.end()  # what is said of an error has a line of its own
            except NotPossible as exc:
                status = refuse(exc)
            except DoorClosed as exc:
                status = refuse(NotPossible(f"{exc}: what was done stays done: repeat"))
                break
    show(eviction.facts(), args.json)
    return status


def show(facts: dict[str, Any], as_json: bool) -> None:
    """Print what was evicted."""
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(f"{facts['evicted_files']:,} files evicted, {size(facts['freed_bytes'])} freed")
    if facts["absent_before_files"]:
        print(f"{facts['absent_before_files']:,} files were evicted before")
    for why, count in facts["skipped_files"].items():
        print(f"{count:,} files skipped: {why}")
    for one in facts["skipped_first"]:
        print(f"  {one['path']}: {one['reason']}")
