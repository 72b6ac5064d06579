"""`spillway wait --durable PATH`: waits until the bucket alone could restore a file or a tree.

Files that are open, held or renamed are waited for too, unlike by `spillway drain --wait`.
"""

from __future__ import annotations

import argparse

from gateway import clock
from gateway.cli import result
from gateway.cli.look import DONE, NOT_POSSIBLE, refuse
from gateway.cli.progress import showing
from gateway.control.gateway import Gateway
from gateway.errors import NotPossible, UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--durable", action="store_true", help="until the bucket alone could restore it"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="give up after this long (exit status 1)"
    )
    parser.add_argument("path", metavar="PATH", help="a checkpoint, a file or a directory")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Wait. Returns 0 when everything is durable, 1 when the time is over. Raises UserError."""
    if not args.durable:
        raise UserError("it is not said what to wait for: spillway wait --durable PATH")
    started = clock.monotonic_seconds()
    error = None
    try:
        with showing(args.json) as tell:
            gateway.files.wait(args.path, tell, timeout_seconds=args.timeout)
    except NotPossible as exc:
        error = exc
    if args.json:
        seconds = round(clock.monotonic_seconds() - started, 3)
        why = None if error is None else str(error)
        result.print_json({"durable": error is None, "error": why, "seconds": seconds})
        return DONE if error is None else NOT_POSSIBLE
    return DONE if error is None else refuse(error)
