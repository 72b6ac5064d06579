"""`spillway wait --durable PATH`: waits until the bucket alone could restore a file or a tree.

A file is durable when its present version is verified in the bucket at the key that is its path.
So files that are open, held or renamed are waited for too, unlike by `spillway drain --wait`. The
command reads the database, and one file again and again: all others only when that one is durable.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from gateway import clock, config, state
from gateway.cache.homes import Homes
from gateway.checkpoints import statements as stored
from gateway.checkpoints.catalogue import rules_of
from gateway.checkpoints.leftovers import Inside, Leftovers
from gateway.checkpoints.rules import Rules
from gateway.control.paths import browsing, follow
from gateway.control.queue import opened, path_of
from gateway.db.compiled import Session
from gateway.drain import queue
from gateway.drain.context import Context, View
from gateway.drain.paths import file_of
from gateway.errors import NotPossible, UserError
from gateway.namespace.lookup import is_trashed, way_up
from gateway.settings import Settings
from gateway.text import shown
from gateway.types import Kind
from gateway.units import size

DURABLE = 0
NOT_DURABLE = 1
POLL_SECONDS = 0.5
REST = 5
"""A look at a large tree is followed by a rest of this many times its length."""
PAGE = 1024


class Missing(NamedTuple):
    """A file that is not durable."""

    ino: int
    size: int
    """Bytes at the last close."""


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
    if not args.durable:
        raise UserError("it is not said what to wait for: spillway wait --durable PATH")
    settings = config.load(args.config)
    top = _find(settings, args.path)
    started = clock.monotonic_seconds()
    with opened(settings) as context:
        error = _wait(context, top, args.path, args.timeout)
    seconds = round(clock.monotonic_seconds() - started, 3)
    if args.json:
        print(json.dumps({"durable": error is None, "error": error, "seconds": seconds}, indent=2))
    elif error is not None:
        print(f"spillway: {error}", file=sys.stderr)
    return DURABLE if error is None else NOT_DURABLE


def _find(settings: Settings, path: str) -> int:
    """Return the inode of a path. Symbolic links are followed, as those of receipts. Raises
    UserError."""
    with browsing(settings) as browser:
        try:
            return follow(browser, settings, path).found().attr.ino
        except NotPossible as exc:
            raise UserError(str(exc)) from None


def _wait(context: Context, top: int, path: str, timeout: float | None) -> str | None:
    """Wait. Returns why it is not durable when the time is over, or None."""
    until = None if timeout is None else clock.monotonic_seconds() + timeout
    first: Missing | None = None
    rules = rules_of(context.settings)
    while True:
        before = clock.monotonic_seconds()
        with context.reading() as view:
            if file_of(view.session, top) is None:
                return f"{shown(path)} was removed meanwhile"
            if is_trashed(view.session, top):
                return (
                    f"{shown(path)} is not sent: a policy put it into the trash: take it back: "
                    "spillway undelete"
                )
            homes = Homes(view.session, context.settings.bucket.prefix)
            if first is None or not _is_waited_for(view.session, homes, top, first.ino):
                first = next(_missing(view.session, homes, top, rules), None)
                if first is None:
                    return None
        now = clock.monotonic_seconds()
        if until is not None and now >= until:
            why = _why(context, top, rules)
            return f"{shown(path)} is not durable after {timeout:g} s: {why}"
        rest = max(POLL_SECONDS, REST * (now - before))
        time.sleep(rest if until is None else min(rest, max(until - now, 0.01)))


def _is_waited_for(session: Session, homes: Homes, top: int, ino: int) -> bool:
    """Return whether a file is still at or below an inode, by first names, and not durable."""
    if _is_durable(session, homes, ino):
        return False
    return ino == top or any(parent == top for _at, parent, _name in way_up(session, ino))


def _is_durable(session: Session, homes: Homes, ino: int) -> bool:
    """Return whether a file is durable, or gone."""
    row = session.one(stored.STORED, ino=ino)
    return row is None or bool(row[1] and homes.is_at_home(ino, row[2]))


def _missing(session: Session, homes: Homes, top: int, rules: Rules) -> Iterator[Missing]:
    """Yield the files at or below an inode that are not durable, without what killed saves have
    left in checkpoints. Parameters: rules, which say what that is."""
    file = file_of(session, top)
    if file is not None and file.kind != Kind.DIRECTORY:
        if file.kind == Kind.REGULAR and not _is_durable(session, homes, top):
            yield Missing(top, file.size)
        return
    leftovers = Leftovers(session, rules)
    waiting: list[tuple[int, Inside | None]] = [(top, leftovers.at(top))]
    while waiting:
        (directory, inside), after = waiting.pop(), b""
        while True:
            rows = session.all(stored.MEMBERS, parent=directory, after=after, most=PAGE)
            for name, _ctime_ns, is_stored, key, _stored_ns, ino, kind, length, is_open, *_ in rows:
                after = name
                if kind == Kind.DIRECTORY:
                    waiting.append((ino, leftovers.below(ino, inside)))
                elif kind != Kind.REGULAR or (is_stored and homes.is_at_home(ino, key)):
                    continue
                elif is_open or not leftovers.has(inside, kind, bytes(name)):
                    yield Missing(ino, length)
            if len(rows) < PAGE:
                break


def _why(context: Context, top: int, rules: Rules) -> str:
    """Return what is missing and why, in one line."""
    with context.reading() as view:
        homes = Homes(view.session, context.settings.bucket.prefix)
        missing = list(_missing(view.session, homes, top, rules))
        if not missing:
            return "the last file became durable in this moment: ask again"
        first = missing[0]
        reason = _reason(context, view, first.ino)
        place = view.paths.place(first.ino)
    path = path_of(context.settings, None if place is None else place.parts)
    count = "1 file" if len(missing) == 1 else f"{len(missing)} files"
    return f"{count}, {size(sum(one.size for one in missing))}; {path}: {reason}"


def _reason(context: Context, view: View, ino: int) -> str:
    report: dict[str, Any] | None = state.read(context.settings, state.DRAIN)
    entry = next(queue.entries(context, ino), None)
    if entry is None:
        held = view.paths.key_of(ino) is None
        return (
            "its name is held (drain.hold_patterns, spillway queue)"
            if held
            else "its object is moved or verified first (spillway queue)"
        )
    if entry.is_stuck or entry.error:
        return f"{entry.state}: {shown(entry.error)}"
    if entry.state == queue.State.HELD:
        return (
            "held: by a pattern of drain.hold_patterns, by spillway queue hold, or superseded "
            "(spillway policy plan)"
        )
    if entry.state == queue.State.OPEN:
        return "open: a client writes it"
    if not state.alive(report):
        return f"{entry.state}: the drain is not running: start it: spillway up"
    bucket = (report or {}).get("bucket")
    error = bucket.get("error") if isinstance(bucket, dict) else None
    return f"{entry.state}: {shown(str(error))}" if error else str(entry.state)
