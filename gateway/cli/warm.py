"""`spillway warm`: asks for evicted files, and waits until their bytes are on the disk."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

from gateway import clock, config, state
from gateway.cache import warming
from gateway.cli.look import DONE, NOT_POSSIBLE, refuse
from gateway.cli.progress import Line, Transfer
from gateway.control.paths import browsing, files_below, follow
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import NamespaceError, NotPossible, UserError
from gateway.namespace.browse import Browser
from gateway.settings import Settings
from gateway.text import shown
from gateway.types import Residency
from gateway.units import duration, size

TOGETHER = 1024
"""The files of one transaction, and of one query."""
POLL_SECONDS = 0.5
DEAD_SECONDS = 10.0
"""The time that the hydrator may be away: `spillway up` restarts it."""
ROOM_SECONDS = 60.0
"""The time for which the disk may be short of room: the evictor makes room, if it can."""
DAMAGED_SHOWN = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until all bytes are on the disk")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def run(args: argparse.Namespace) -> int:
    """Ask for files. Returns exit status 1 if a path was not found or a file cannot be fetched.

    Raises UserError.
    """
    settings = config.load(args.config)
    status = DONE
    database = Database(settings.database_url)
    warm = _Warm(settings, database)
    try:
        with browsing(settings) as browser:
            for path in args.paths:
                try:
                    warm.ask(browser, path)
                except NotPossible as exc:
                    status = refuse(exc)
        error = warm.wait(args.json) if args.wait else None
    except NamespaceError as exc:
        raise UserError(f"cannot use {database.url}: {exc}: try again") from None
    finally:
        database.close()
    if error is not None:
        status = refuse(NotPossible(error))
    if args.json:
        print(json.dumps({**warm.facts(), "waited": args.wait, "error": error}, indent=2))
    elif error is None:
        print(warm.result(args.wait))
    for path, why in warm.damaged()[:DAMAGED_SHOWN]:
        status = NOT_POSSIBLE
        if not args.json:
            print(f"spillway: {path}: {shown(why)}", file=sys.stderr)
    return status


class _Warm:
    """The files of one command."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._sizes: dict[int, int] = {}
        """Size in bytes of every file that was asked for, by inode."""
        self._paths: dict[int, str] = {}
        self._left: dict[int, warming.Left] = {}
        self._resident = 0
        self._started = clock.monotonic_seconds()
        self._transfer = Transfer()

    def ask(self, browser: Browser, path: str) -> None:
        """Ask for a file, or for all files below a directory.

        Raises NotPossible, NamespaceError.
        """
        files = files_below(browser, follow(browser, self._settings, path))
        while page := list(islice(files, TOGETHER)):
            absent = {}
            for below, entry in page:
                if entry.attr.residency == Residency.ABSENT:
                    absent[entry.attr.ino] = entry.attr.size
                    self._paths[entry.attr.ino] = below
                else:
                    self._resident += 1
            if absent:
                with self._database.reader() as connection, self._database.transaction(connection):
                    warming.wish(Session(connection, self._database.dialect), absent)
            self._sizes |= absent

    def wait(self, as_json: bool) -> str | None:
        """Wait until all files are there. Returns why a longer wait is useless, or None. Raises
        NamespaceError."""
        line = Line(quiet=as_json)
        alive_at = room_at = clock.monotonic_seconds()
        waiting = list(self._sizes)
        try:
            while True:
                before = clock.monotonic_seconds()
                waiting = self._measure(waiting)
                if all(one.error is not None for one in self._left.values()):
                    return self._failed()
                now = clock.monotonic_seconds()
                report = state.read(self._settings, state.CACHE) or {}
                has_room = report.get("has_room") is not False
                line.show(self._line() + ("" if has_room else "; the disk is short of room"))
                if state.alive(report):
                    alive_at = now
                if has_room:
                    room_at = now
                if now - alive_at > DEAD_SECONDS:
                    return (
                        "the hydrator does not run: start it: spillway up "
                        f"({len(waiting)} files are asked for and not there)"
                    )
                if now - room_at > ROOM_SECONDS:
                    return (
                        "the disk is short of room, so only what clients wait for is fetched: "
                        f"evict or delete files ({len(waiting)} files are asked for and not there)"
                    )
                time.sleep(max(POLL_SECONDS, 5 * (now - before)))
        finally:
            line.end()

    def _measure(self, inos: Sequence[int]) -> list[int]:
        """Look which of these files are not there yet. Returns them."""
        found: list[warming.Left] = []
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            for start in range(0, len(inos), TOGETHER):
                found += warming.left(session, inos[start : start + TOGETHER])
        self._left = {one.ino: one for one in found}
        missing_bytes = sum(one.missing_bytes for one in found)
        self._transfer.note(self._total_bytes - missing_bytes)
        return list(self._left)

    def _failed(self) -> str | None:
        if not self._left:
            return None
        return (
            f"{len(self._left)} files cannot be fetched: restore the versions of their objects, or "
            "delete the files: spillway status shows them"
        )

    def damaged(self) -> list[tuple[str, str]]:
        """Return path and reason of the files that cannot be fetched."""
        return [
            (self._paths[one.ino], one.error)
            for one in self._left.values()
            if one.error is not None
        ]

    @property
    def _total_bytes(self) -> int:
        return sum(self._sizes.values())

    def _line(self) -> str:
        return self._transfer.text(self._total_bytes, len(self._sizes), len(self._left))

    def result(self, has_waited: bool) -> str:
        """Return one line about what was done."""
        counted = f"{len(self._sizes):,} files, {size(self._total_bytes)}"
        there = f"; {self._resident:,} files are on the disk" if self._resident else ""
        if has_waited:
            seconds = clock.monotonic_seconds() - self._started
            return f"fetched: {counted} in {duration(seconds)}{there}"
        note = ""
        if not state.alive(state.read(self._settings, state.CACHE)):
            note = "; the hydrator does not run: spillway up starts it"
        return f"asked for: {counted}{there}{note}"

    def facts(self) -> dict[str, Any]:
        """Return the facts for scripts."""
        return {
            "files": len(self._sizes),
            "bytes": self._total_bytes,
            "resident_before_files": self._resident,
            "left_files": len(self._left),
            "damaged": [{"path": path, "reason": why} for path, why in self.damaged()],
            "seconds": round(clock.monotonic_seconds() - self._started, 3),
        }
