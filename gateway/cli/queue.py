"""`spillway queue`: lists the files that wait for the bucket, holds them, puts them first."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from typing import Any

from gateway import clock, config
from gateway.cli import result, table
from gateway.control import outage
from gateway.control.queue import Said, Waiting, model, opened, orders, resolve
from gateway.db.models import ROOT_INO
from gateway.drain import queue
from gateway.drain.context import Context
from gateway.errors import UserError
from gateway.text import shown
from gateway.units import duration, size

SHOWN = 50
COLUMNS = ("state", ">size", ">age", "file")
VERBS = {"bump": False, "hold": True, "cancel": True, "release": None}
"""The order of each verb: hold (True), put first (False), or no order (None). The drain also ends
the upload of what is held."""
RETRY = "retry"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"files shown (default {SHOWN})"
    )
    parser.add_argument(
        "verb",
        nargs="?",
        choices=["list", *VERBS, RETRY],
        default="list",
        help="bump: drain before everything else; hold: do not drain; cancel: end the upload, and "
        "hold; release: neither; retry: now",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace) -> int:
    """List the queue, or change it. Raises UserError."""
    settings = config.load(args.config)
    with opened(settings) as context:
        if args.verb == "list":
            _list(context, args)
            return 0
        require_paths(args)
        with result.Results(args.json) as results:
            for path, ino in resolve(context, args.paths).items():
                if args.verb == RETRY:
                    results.add(*retried(path, queue.retry(context, ino)))
                    continue
                before = queue.say(context, ino, VERBS[args.verb])
                if args.verb == "release" and not before:
                    raise UserError(f"nothing was said of {path}: spillway queue shows what was")
                results.add(*ordered(path, args.verb))
    return 0


def require_paths(args: argparse.Namespace) -> None:
    """Raise UserError if an order is for no path."""
    if not args.paths:
        raise UserError(f"nothing to {args.verb}: name a PATH: spillway queue {args.verb} PATH")


def ordered(path: str, verb: str) -> tuple[dict[str, Any], str]:
    """Return what a script and a person are told of an order that was given or withdrawn."""
    said = None if verb == "release" else verb
    texts = {
        "release": "released",
        "cancel": f"its upload ends, and it is held: spillway queue release {path}",
    }
    return {"path": path, "said": said}, f"{path}: {texts.get(verb, verb)}"


def retried(path: str, had_failed: bool) -> tuple[dict[str, Any], str]:
    """Return what a script and a person are told of an order to try again."""
    text = "is tried again" if had_failed else "nothing of it has failed"
    return {"path": path, "had_failed": had_failed}, f"{path}: {text}"


def _list(context: Context, args: argparse.Namespace) -> None:
    now_ns = clock.now_ns()
    settings = context.settings
    tops = resolve(context, args.paths).values() or [ROOT_INO]
    everything = (entry for top in tops for entry in queue.entries(context, top))
    files = [model(settings, entry, now_ns) for entry in islice(everything, max(0, args.limit))]
    show(files, sum(1 for _ in everything), orders(context), args.json)
    warn(outage.of_drain(settings), files)


def warn(why: str | None, files: list[Waiting]) -> None:
    """Say on standard error why nothing of what waits is sent. Parameters: why, None: it is."""
    if why is not None and files:
        print(f"spillway: {why}: all of these wait for it", file=sys.stderr)


def show(files: list[Waiting], more: int, said: list[Said], as_json: bool) -> None:
    """Print what waits. Parameters: more, files that are not shown; said, the orders of people."""
    if as_json:
        result.print_json({"files": files, "more_files": more, "said": said})
        return
    rows = [_cells(one) for one in files]
    if rows:
        table.show(COLUMNS, rows, map(_line, rows))
    if more:
        print(f"... and {more} more: --limit {len(files) + more}")
    if not files:
        print("nothing waits for the bucket")
    given = [(one.said, one.path or "?") for one in said]
    if given:
        lines = (f"{order:<10} {path}" for order, path in given)
        table.show(("order", "file or directory"), given, lines)


def _cells(one: Waiting) -> tuple[str, ...]:
    age = "-" if one.age_seconds is None else duration(one.age_seconds)
    text = one.path or "?"
    if one.bumped:
        text += " (bumped)"
    if one.tries and one.next_try_seconds is not None:
        again = duration(one.next_try_seconds)
        text += f": {one.tries} tries, next in {again}: {shown(one.error or '')}"
    elif one.waits_for:
        text += f": {shown(one.waits_for)}"
    return one.state, size(one.size_bytes), age, text


def _line(cells: tuple[str, ...]) -> str:
    state, length, age, text = cells
    return f"{state:<10} {length:>10} {age:>9}  {text}"
