"""`spillway evict`: frees the local disk of files that are in the bucket."""

from __future__ import annotations

import argparse

from gateway.cli.look import refuse_each
from gateway.cli.progress import showing
from gateway.cli.result import print_json
from gateway.control.evicting import Evicted
from gateway.control.gateway import Gateway
from gateway.escapes import display
from gateway.units import size


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Evict files. Returns exit status 1 if a named path could not be evicted. Raises UserError."""
    with showing(args.json) as tell:
        done = gateway.files.evict(args.paths, tell)
    status = refuse_each(done.failures)
    if args.json:
        print_json(done)
    else:
        _show(done)
    return status


def _show(done: Evicted) -> None:
    print(f"{done.evicted_files:,} files evicted, {size(done.freed_bytes)} freed")
    if done.absent_before_files:
        print(f"{done.absent_before_files:,} files were evicted before")
    for why, count in done.skipped_files.items():
        print(f"{count:,} files skipped: {why}")
    for one in done.skipped_first:
        print(f"  {display(one.path)}: {one.reason}")
