"""`spillway evict`: frees the local disk of files that are in the bucket."""

from __future__ import annotations

import argparse

from gateway import config
from gateway.cli.look import DONE, refuse
from gateway.cli.progress import Line
from gateway.cli.result import print_json
from gateway.control.evicting import Evicted, evicting
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
    show(eviction.model(), args.json)
    return status


def show(done: Evicted, as_json: bool) -> None:
    """Print what was evicted."""
    if as_json:
        print_json(done)
        return
    print(f"{done.evicted_files:,} files evicted, {size(done.freed_bytes)} freed")
    if done.absent_before_files:
        print(f"{done.absent_before_files:,} files were evicted before")
    for why, count in done.skipped_files.items():
        print(f"{count:,} files skipped: {why}")
    for one in done.skipped_first:
        print(f"  {one.path}: {one.reason}")
