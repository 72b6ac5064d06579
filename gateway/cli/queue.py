"""`spillway queue`: lists the files that wait for the bucket, holds them, puts them first."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from gateway import clock, config
from gateway.db import schema
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.drain import queue
from gateway.drain.context import Context
from gateway.errors import NamespaceError, UserError
from gateway.settings import Settings
from gateway.text import printable, shown
from gateway.units import duration, size

SHOWN = 50
VERBS = {"bump": False, "hold": True, "release": None}
"""The order of each verb: hold (True), put first (False), or no order (None)."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"files shown (default {SHOWN})"
    )
    parser.add_argument(
        "verb",
        nargs="?",
        choices=["list", *VERBS],
        default="list",
        help="bump: drain before everything else; hold: do not drain; release: neither",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace) -> int:
    """List the queue, or change it. Raises UserError."""
    settings = config.load(args.config)
    with opened(settings) as context:
        if args.verb == "list":
            _list(context, args)
            return 0
        if not args.paths:
            raise UserError(f"nothing to {args.verb}: name a PATH: spillway queue {args.verb} PATH")
        for path, ino in resolve(context, args.paths).items():
            before = queue.say(context, ino, VERBS[args.verb])
            if args.verb == "release" and not before:
                raise UserError(f"nothing was said of {path}: spillway queue shows what was")
            print(f"{path}: {'released' if args.verb == 'release' else args.verb}")
    return 0


@contextmanager
def opened(settings: Settings) -> Iterator[Context]:
    """Open the database as the drain does. Raises UserError."""
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store

    database = Database(settings.database_url)
    schema.require_current(database)
    try:
        yield Context(settings, database, S3Store(settings))
    except NamespaceError as exc:
        raise UserError(f"cannot use {database.url}: {exc}: try again") from None
    finally:
        database.close()


def resolve(context: Context, paths: Iterable[str]) -> dict[str, int]:
    """Return the inodes of paths that a person gave. Raises UserError."""
    export = context.settings.nfs.export
    with context.reading() as view:
        return {path: queue.find(view, export, path) for path in paths}


def path_of(settings: Settings, path: tuple[bytes, ...] | None) -> str:
    """Return a path as clients see it, escaped so that it can be shown."""
    if path is None:
        return "?"
    return "/".join([settings.nfs.export, *map(printable, path)])


def _list(context: Context, args: argparse.Namespace) -> None:
    now_ns = clock.now_ns()
    settings = context.settings
    tops = resolve(context, args.paths).values() or [ROOT_INO]
    everything = (entry for top in tops for entry in queue.entries(context, top))
    files = [_facts(settings, entry, now_ns) for entry in islice(everything, max(0, args.limit))]
    more = sum(1 for _ in everything)
    said = [
        {"path": path_of(settings, item.path), "said": "hold" if item.hold else "bump"}
        for item in queue.said(context)
    ]
    if args.json:
        print(json.dumps({"files": files, "more_files": more, "said": said}, indent=2))
        return
    for facts in files:
        print(_line(facts))
    if more:
        print(f"... and {more} more: --limit {len(files) + more}")
    if not files:
        print("nothing waits for the bucket")
    for item in said:
        print(f"{item['said']:<10} {item['path']}")


def _facts(settings: Settings, entry: queue.Entry, now_ns: int) -> dict[str, Any]:
    return {
        "path": path_of(settings, entry.path),
        "state": str(entry.state),
        "bumped": entry.bumped,
        "size_bytes": entry.size_bytes,
        "age_seconds": round(max(0, now_ns - entry.sealed_ns) / clock.NS, 1)
        if entry.sealed_ns
        else None,
        "tries": entry.tries,
        "error": entry.error or None,
        "next_try_seconds": round(max(0, entry.next_ns - now_ns) / clock.NS, 1)
        if entry.tries
        else None,
    }


def _line(facts: dict[str, Any]) -> str:
    age = "-" if facts["age_seconds"] is None else duration(facts["age_seconds"])
    text = f"{facts['state']:<10} {size(facts['size_bytes']):>10} {age:>9}  {facts['path']}"
    if facts["bumped"]:
        text += " (bumped)"
    if facts["tries"]:
        again = duration(facts["next_try_seconds"])
        text += f": {facts['tries']} tries, next in {again}: {shown(facts['error'] or '')}"
    return text
