"""Commands about what waits for the bucket: `spillway queue` and `spillway drain --wait`.

`queue` lists the files that wait, holds them, and puts them first. `drain --wait` waits until the
bucket has what it can have now, and shows progress.

The bucket has a file when it has the file's present version at the key of its path. The wait leaves
out files that are open for writing or held, and those that name a checkpoint which is not whole: it
is not known when they will be ready. When only files are left that need a person, it ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeVar

from gateway.cli import output
from gateway.cli.output import ProgressLine, Transfer
from gateway.common import clock
from gateway.common.errors import START, UserError
from gateway.common.text import display, shown
from gateway.common.units import duration, size
from gateway.config import datadir, loader
from gateway.db.models import ROOT_INO
from gateway.drain import queue
from gateway.drain.admission.retries import FOR_GOOD
from gateway.drain.context import Context
from gateway.drain.queue import Renamed, RenameWait, is_durable
from gateway.service.gateway import Gateway
from gateway.service.queue import Queue, QueueOrder, Retried, WaitingFile, find, opened, path_of

M = TypeVar("M", QueueOrder, Retried)
Reply = tuple[M, str]
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
    with output.Results(args.json) as results:
        for path in args.paths:
            results.add(*act(gateway.queue, path))
    return 0


def _bump(queue: Queue, path: str) -> Reply[QueueOrder]:
    return queue.order(path, "bump"), f"{shown(path)}: bump"


def _hold(queue: Queue, path: str) -> Reply[QueueOrder]:
    return queue.order(path, "hold"), f"{shown(path)}: hold"


def _cancel(queue: Queue, path: str) -> Reply[QueueOrder]:
    text = f"its upload ends, and it is held: spillway queue release {shown(path)}"
    return queue.cancel(path), f"{shown(path)}: {text}"


def _release(queue: Queue, path: str) -> Reply[QueueOrder]:
    return queue.release(path), f"{shown(path)}: released"


def _retry(queue: Queue, path: str) -> Reply[Retried]:
    done = queue.retry(path)
    text = "is tried again" if done.had_failed else "nothing of it has failed"
    return done, f"{shown(path)}: {text}"


ACTS = {"bump": _bump, "hold": _hold, "cancel": _cancel, "release": _release, "retry": _retry}


def _list(queue: Queue, args: argparse.Namespace) -> int:
    limit = max(0, args.limit)
    # One more says whether there are more. To count them all takes long, and status does it.
    waiting_files = chain.from_iterable(
        queue.files(path, limit + 1) for path in args.paths or [None]
    )
    files = list(islice(waiting_files, limit + 1))
    _show(files[:limit], len(files) > limit, queue.orders(), args.json)
    why = queue.outage() if files else None
    if why is not None:
        print(f"spillway: {why}: all of these wait for it", file=sys.stderr)
    return 0


def _show(
    files: list[WaitingFile], has_more: bool, orders: list[QueueOrder], as_json: bool
) -> None:
    """Print what waits. Args: has_more, whether there are files that are not shown."""
    if as_json:
        output.print_json({"files": files, "has_more": has_more, "orders": orders})
        return
    rows = [_cells(file) for file in files]
    if rows:
        output.show_table(COLUMNS, rows)
    if has_more:
        print("... and more: --limit N shows N")
    elif not files:
        print("nothing waits for the bucket")
    given = [(str(order.order), _path(order.path)) for order in orders]
    if given:
        output.show_table(("order", "file or directory"), given)


def _cells(file: WaitingFile) -> tuple[str, ...]:
    age = "-" if file.age_seconds is None else duration(file.age_seconds)
    text = _path(file.path)
    if file.bumped:
        text += " (bumped)"
    if file.tries and file.next_try_seconds is not None:
        again = duration(file.next_try_seconds)
        text += f": {file.tries} tries, next in {again}: {shown(file.error or '')}"
    elif file.waits_for:
        text += f": {shown(file.waits_for)}"
    return file.state, size(file.size_bytes), age, text


def _path(path: str | None) -> str:
    return "?" if path is None else display(path)


DRAINED = 0
NEEDS_A_PERSON = 1
POLL_SECONDS = 0.5
ABSENT_SECONDS = 10.0
"""The time that the drain may be away: `spillway up` restarts it."""
STUCK_SHOWN = 3


def drain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until the bucket has everything")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="give up after this long (exit status 1)"
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these files or directories")


def drain(args: argparse.Namespace) -> int:
    """Wait. Returns 0 if the bucket has all, 1 if a person must act or the time is over.

    Raises UserError.
    """
    if not args.wait:
        raise UserError("the drain runs by itself: to wait for it: spillway drain --wait [PATH...]")
    settings = loader.load(args.config)
    with opened(settings) as context:
        tops = [find(context, path) for path in args.paths] or [ROOT_INO]
        progress = DrainProgress()
        error = _wait(context, tops, args, progress)
    if args.json:
        facts = {"drained": error is None, "error": error, **progress.facts()}
        print(json.dumps(facts, indent=2))
    elif error is not None:
        print(f"spillway: {error}", file=sys.stderr)
    else:
        print(progress.result())
    return DRAINED if error is None else NEEDS_A_PERSON


@dataclass
class DrainProgress:
    """The progress that was seen so far."""

    seen: dict[int, int] = field(default_factory=dict)
    """Size in bytes of every file that the command ever waited for, by inode."""
    waiting: dict[int, int] = field(default_factory=dict)
    sent_bytes: int = 0
    """Bytes sent of files that are not in the bucket as a whole yet."""
    held_files: int = 0
    open_files: int = 0
    behind_files: int = 0
    """Files that name a checkpoint which is not whole: nothing says when they are sent."""
    failing: str = ""
    stuck: dict[int, str] = field(default_factory=dict)
    """Path and reason of every file that needs a person, by inode."""
    renames: set[int] = field(default_factory=set)
    """Files and directories whose new names the bucket has not followed."""
    following: RenameWait = field(default_factory=RenameWait)
    started: float = field(default_factory=clock.monotonic_seconds)
    transfer: Transfer = field(default_factory=Transfer)

    def measure(self, context: Context, tops: list[int]) -> None:
        """Look at the database and at what the drain reports."""
        report = datadir.read(context.settings, datadir.DRAIN) or {}
        sent = {u["key"]: u["done_bytes"] for u in report.get("uploads", [])}
        self.waiting, self.sent_bytes, self.failing = {}, 0, ""
        self.stuck, self.renames = {}, set()
        others: defaultdict[str, set[int]] = defaultdict(set)
        for top in tops:
            for entry in queue.entries(context, top):
                if not entry.is_waited_for:
                    others[entry.state].add(entry.ino)
                    continue
                self.waiting[entry.ino] = entry.size_bytes
                self.sent_bytes += min(entry.size_bytes, sent.get(entry.key or "", 0))
                self.failing = self.failing or entry.error
                self._note(context, entry)
            with context.reading() as view:
                for rename in self.following.look(view, top):
                    self.renames.add(rename.ino)
                    self._note(context, rename)
        self.held_files, self.open_files, self.behind_files = (
            len(others[state])
            for state in (queue.QueueState.HELD, queue.QueueState.OPEN, queue.QueueState.BEHIND)
        )
        self.seen.update(self.waiting)
        self.transfer.note(self.total_bytes - sum(self.waiting.values()) + self.sent_bytes)

    def _note(self, context: Context, item: queue.QueueEntry | Renamed) -> None:
        if item.is_stuck:
            reason = item.error.removeprefix(FOR_GOOD)
            self.stuck[item.ino] = f"{path_of(context.settings, item.path)}: {shown(reason)}"

    @property
    def is_stuck(self) -> bool:
        """Whether all files that are left need a person."""
        return bool(self.stuck) and self.stuck.keys() >= self.waiting.keys() | self.renames

    @property
    def total_bytes(self) -> int:
        return sum(self.seen.values())

    def line(self) -> str:
        text = self.transfer.text(self.total_bytes, len(self.seen), len(self.waiting))
        return text + (f"; failing: {shown(self.failing)}" if self.failing else "")

    def result(self) -> str:
        seconds = clock.monotonic_seconds() - self.started
        text = f"drained: {len(self.seen)} files, {size(self.total_bytes)} in {duration(seconds)}"
        if self.held_files or self.open_files or self.behind_files:
            text += f"; not waited for: {self.held_files} held, {self.open_files} open for writing"
            text += f", {self.behind_files} behind others" if self.behind_files else ""
        return text

    def facts(self) -> dict[str, Any]:
        return {
            "files": len(self.seen),
            "bytes": self.total_bytes,
            "waiting_files": len(self.waiting),
            "waiting_bytes": sum(self.waiting.values()),
            "waiting_renames": len(self.renames),
            "held_files": self.held_files,
            "open_files": self.open_files,
            "behind_files": self.behind_files,
            "seconds": round(clock.monotonic_seconds() - self.started, 3),
        }


def _wait(
    context: Context, tops: list[int], args: argparse.Namespace, progress: DrainProgress
) -> str | None:
    """Wait until everything is drained. Returns why a longer wait is useless, or None."""
    line = ProgressLine(quiet=args.json)
    alive_at = clock.monotonic_seconds()
    try:
        while True:
            before = clock.monotonic_seconds()
            progress.measure(context, tops)
            is_empty = not progress.waiting and not progress.renames
            if is_empty and is_durable(context, tops):
                return None
            if progress.is_stuck:
                return f"{len(progress.stuck)} files need a person: {_first(progress)}"
            line.show(progress.line())
            now = clock.monotonic_seconds()
            report = datadir.read(context.settings, datadir.DRAIN)
            if datadir.alive(report):
                alive_at = now
            if now - alive_at > ABSENT_SECONDS:
                return f"the drain is not running: start it: {START} ({_left(progress)})"
            if (reason := _refused(report, bool(progress.renames))) is not None:
                return f"the bucket refuses the drain: {reason} ({_left(progress)})"
            if args.timeout is not None and now - progress.started >= args.timeout:
                return f"not drained within {args.timeout:g} s ({_left(progress)})"
            time.sleep(max(POLL_SECONDS, 5 * (now - before)))
    finally:
        line.end()


def _refused(report: dict[str, Any] | None, has_renames: bool) -> str | None:
    """Return why the bucket refuses uploads or moves, or None. Nothing waits for deletions."""
    bucket = (report or {}).get("bucket")
    if not datadir.alive(report) or not isinstance(bucket, dict) or bucket["state"] != "refused":
        return None
    refused = bucket.get("refused")
    if refused and "uploads" not in refused and not (has_renames and "copies" in refused):
        return None
    return str(bucket["error"])


def _left(progress: DrainProgress) -> str:
    text = f"{len(progress.waiting)} files, {size(sum(progress.waiting.values()))} left"
    return text + (f", {len(progress.renames)} renames to follow" if progress.renames else "")


def _first(progress: DrainProgress) -> str:
    reasons = list(progress.stuck.values())
    more = len(reasons) - STUCK_SHOWN
    return "; ".join(reasons[:STUCK_SHOWN]) + (f"; and {more} more" if more > 0 else "")
