"""`spillway queue`: lists the files that wait for the bucket, holds them, puts them first."""

from __future__ import annotations

import argparse
import sys
from itertools import chain, islice
from typing import TypeVar

from gateway.cli import result, table
from gateway.control.gateway import Gateway
from gateway.control.queue import Order, Queue, Retried, Waiting
from gateway.errors import UserError
from gateway.escapes import display
from gateway.text import shown
from gateway.units import duration, size

M = TypeVar("M", Order, Retried)
Told = tuple[M, str]
"""What a script is told, and what a person is."""
SHOWN = 50
COLUMNS = ("state", ">size", ">age", "file")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"files shown (default {SHOWN})"
    )
    parser.add_argument(
        "verb",
        nargs="?",
        choices=["list", *ACTS],
        default="list",
        help="bump: drain before everything else; hold: do not drain; cancel: end the upload, and "
        "hold; release: neither; retry: now",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """List the queue, or change it. Raises UserError."""
    if args.verb == "list":
        return _list(gateway.queue, args)
    if not args.paths:
        raise UserError(f"nothing to {args.verb}: name a PATH: spillway queue {args.verb} PATH")
    act = ACTS[args.verb]
    with result.Results(args.json) as results:
        for path in args.paths:
            results.add(*act(gateway.queue, path))
    return 0


def _bump(queue: Queue, path: str) -> Told[Order]:
    return queue.order(path, "bump"), f"{shown(path)}: bump"


def _hold(queue: Queue, path: str) -> Told[Order]:
    return queue.order(path, "hold"), f"{shown(path)}: hold"


def _cancel(queue: Queue, path: str) -> Told[Order]:
    text = f"its upload ends, and it is held: spillway queue release {shown(path)}"
    return queue.cancel(path), f"{shown(path)}: {text}"


def _release(queue: Queue, path: str) -> Told[Order]:
    return queue.release(path), f"{shown(path)}: released"


def _retry(queue: Queue, path: str) -> Told[Retried]:
    done = queue.retry(path)
    text = "is tried again" if done.had_failed else "nothing of it has failed"
    return done, f"{shown(path)}: {text}"


ACTS = {"bump": _bump, "hold": _hold, "cancel": _cancel, "release": _release, "retry": _retry}


def _list(queue: Queue, args: argparse.Namespace) -> int:
    everything = chain.from_iterable(queue.files(path) for path in args.paths or [None])
    files = list(islice(everything, max(0, args.limit)))
    _show(files, sum(1 for _ in everything), queue.orders(), args.json)
    why = queue.outage() if files else None
    if why is not None:
        print(f"spillway: {why}: all of these wait for it", file=sys.stderr)
    return 0


def _show(files: list[Waiting], more: int, orders: list[Order], as_json: bool) -> None:
    """Print what waits. Args: more, files that are not shown."""
    if as_json:
        result.print_json({"files": files, "more_files": more, "orders": orders})
        return
    rows = [_cells(one) for one in files]
    if rows:
        table.show(COLUMNS, rows, map(_line, rows))
    if more:
        print(f"... and {more} more: --limit {len(files) + more}")
    if not files:
        print("nothing waits for the bucket")
    given = [(str(one.order), _path(one.path)) for one in orders]
    if given:
        lines = (f"{order:<10} {path}" for order, path in given)
        table.show(("order", "file or directory"), given, lines)


def _cells(one: Waiting) -> tuple[str, ...]:
    age = "-" if one.age_seconds is None else duration(one.age_seconds)
    text = _path(one.path)
    if one.bumped:
        text += " (bumped)"
    if one.tries and one.next_try_seconds is not None:
        again = duration(one.next_try_seconds)
        text += f": {one.tries} tries, next in {again}: {shown(one.error or '')}"
    elif one.waits_for:
        text += f": {shown(one.waits_for)}"
    return one.state, size(one.size_bytes), age, text


def _path(path: str | None) -> str:
    return "?" if path is None else display(path)


def _line(cells: tuple[str, ...]) -> str:
    state, length, age, text = cells
    return f"{state:<10} {length:>10} {age:>9}  {text}"
