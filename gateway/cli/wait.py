"""`spillway wait --durable PATH`: waits until the bucket alone could restore a file or a tree.

Files that are open, held or renamed are waited for too, unlike by `spillway drain --wait`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from gateway import clock, config
from gateway.cli.progress import Line, Transfer
from gateway.control import durability
from gateway.control.queue import opened
from gateway.drain.context import Context
from gateway.errors import NotPossible, SpillwayError, UserError
from gateway.text import shown

DURABLE = 0
NOT_DURABLE = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--durable", action="store_true", help="until the bucket alone could restore it"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="give up after this long (exit status 1)"
    )
    parser.add_argument("path", metavar="PATH", help="a checkpoint, a file or a directory")


def run(args: argparse.Namespace) -> int:
    """Wait. Returns 0 when everything is durable, 1 when the time is over. Raises UserError."""
    require_said(args)
    settings = config.load(args.config)
    try:
        top = durability.find(settings, args.path)
    except NotPossible as exc:
        raise UserError(str(exc)) from None
    started = clock.monotonic_seconds()
    with opened(settings) as context:
        error = _wait(context, top, args)
    return show(error, clock.monotonic_seconds() - started, args.json)


def require_said(args: argparse.Namespace) -> None:
    """Raise UserError if it is not said what to wait for."""
    if not args.durable:
        raise UserError("it is not said what to wait for: spillway wait --durable PATH")


def late(path: str, timeout: float, why: str) -> str:
    """Return what is said when the time is over."""
    return f"{shown(path)} is not durable after {timeout:g} s: {why}"


def show(error: str | None, waited_seconds: float, as_json: bool) -> int:
    """Print what became of it. Returns the exit status. Parameters: error, why it is not
    durable."""
    seconds = round(waited_seconds, 3)
    if as_json:
        print(json.dumps({"durable": error is None, "error": error, "seconds": seconds}, indent=2))
    elif error is not None:
        print(f"spillway: {error}", file=sys.stderr)
    return DURABLE if error is None else NOT_DURABLE


class _Late(SpillwayError):
    """The time is over."""


def _wait(context: Context, top: int, args: argparse.Namespace) -> str | None:
    """Wait. Returns why it is not durable, or None."""
    until = None if args.timeout is None else clock.monotonic_seconds() + args.timeout
    course, line, transfer = durability.Course(context, top), Line(quiet=args.json), Transfer()

    def rest(seconds: float) -> None:
        left_seconds = seconds if until is None else until - clock.monotonic_seconds()
        if left_seconds <= 0:
            raise _Late
        if not args.json:
            course.look()
            transfer.note(course.done_bytes)
            line.show(transfer.told(course.total_bytes, course.text))
        time.sleep(min(seconds, max(left_seconds, 0.01)))

    try:
        durability.wait(context, top, args.path, rest)
    except NotPossible as exc:
        return str(exc)
    except _Late:
        return late(args.path, args.timeout, durability.why(context, top))
    finally:
        line.end()
    return None
