"""Command `spillway import`: objects of other programs become files that clients read."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import closing

from gateway.cli import local, output
from gateway.cli.output import ProgressLine
from gateway.cli.policies import moment
from gateway.common import clock
from gateway.common.errors import START, ControlSocketClosed, NotPossible, UserError
from gateway.common.text import display, shown
from gateway.common.units import size
from gateway.config import datadir, loader
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.schema import explained, require_current
from gateway.namespace import identity
from gateway.namespace.lookup import Browser
from gateway.rpc import control
from gateway.service import imports
from gateway.service.imports import Import
from gateway.service.paths import ResolvedPath, resolve

COLUMNS = ("path", "source", "state", ">files", ">size", ">gone", ">left out", "listed")
DONE, NEEDS_A_PERSON = 0, 1
POLL_SECONDS = 0.5
DEAD_SECONDS = 10.0
"""The time that the process of the recovery may be away: `spillway up` restarts it."""
SHOWN = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="s3://BUCKET/PREFIX, at the endpoint and with the credentials of the section bucket; "
        "nothing is ever written there. The same source and path again: take what is new, changed "
        "or gone. Without it: list the imports",
    )
    parser.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="a directory that does not exist yet (default: the last name of the source, below "
        "the root)",
    )
    parser.add_argument(
        "--remove",
        action="store_true",
        help="remove the import at the path that stands in place of SOURCE: names and local "
        "copies, nothing in the bucket",
    )
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="until everything is listed, or removed (default)",
    )
    output.option(parser)


def run(args: argparse.Namespace) -> int:
    """Begin, refresh, remove or list imports. Exit status 1 if something is gone, or got no name.
    Raises UserError."""
    settings = loader.load(args.config)
    local.require_data_dir(settings)
    if args.remove and (args.source is None or args.path is not None):
        raise UserError("write: spillway import --remove PATH")
    with closing(Database(settings.database_url)) as database, explained(database):
        require_current(database)
        if args.source is None:
            return _show_all(settings, database, args.json)
        identity.require_surroundings(settings)
        try:
            return _Command(settings, database, args).run()
        except NotPossible as exc:
            raise UserError(str(exc)) from None
        except ControlSocketClosed as exc:
            raise UserError(f"{exc}: run it again") from None


class _Command:
    def __init__(self, settings: Settings, database: Database, args: argparse.Namespace) -> None:
        self._settings = settings
        self._database = database
        self._args = args

    def run(self) -> int:
        """Give the order, and wait. Returns the exit status."""
        if self._args.remove:
            return self._remove()
        top = self._begin()
        made = self._await(top) if self._args.wait else self._look(top)
        if made is None:
            raise UserError("the import was removed meanwhile")
        output.show(made, "\n".join(_lines(made)), self._args.json)
        return NEEDS_A_PERSON if made.needs_a_person else DONE

    def _begin(self) -> int:
        # The import is here because boto3 takes half a second to import.
        from gateway.recovery import import_orders

        settings, args = self._settings, self._args
        source = import_orders.source_of(settings, args.source)
        path = args.path or f"/{source.prefix.rpartition('/')[2] or source.bucket}"
        place = self._resolve(path)
        if not place.name:
            raise UserError(f"{place.path}: choose a directory that does not exist yet")
        if place.entry is not None:
            top = place.entry.attr.ino
            import_orders.refresh(self._database, top, source, place.path)
            return top
        found = import_orders.ImportPlace(place.parent, place.name, place.path)
        with control.opened(settings) as opened:
            return import_orders.begin(self._database, opened, source, found)

    def _remove(self) -> int:
        from gateway.recovery import import_orders

        place = self._resolve(self._args.source)
        if place.entry is None:
            raise UserError(f"{place.path}: there is no such import: spillway import shows them")
        top = place.entry.attr.ino
        import_orders.remove(self._database, top, place.path)
        if self._args.wait:
            self._await(top)
        text = "removed" if self._args.wait else "it is being removed"
        output.show({"path": place.path, "state": text}, f"{place.path}: {text}", self._args.json)
        return DONE

    def _resolve(self, path: str) -> ResolvedPath:
        with Browser(self._settings) as browser:
            return resolve(browser, self._settings, path)

    def _look(self, top: int) -> Import | None:
        with self._database.reading() as session:
            return imports.one(self._settings, session, top)

    def _await(self, top: int) -> Import | None:
        """Wait until an import is whole or removed. Returns it, or None if it is not there."""
        line = ProgressLine(quiet=self._args.json)
        began = alive_at = clock.monotonic_seconds()
        first: int | None = None
        try:
            while (found := self._look(top)) is not None and not found.is_whole:
                now = clock.monotonic_seconds()
                first = found.files if first is None else first
                rate = (found.files - first) / max(now - began, POLL_SECONDS)
                waits = f"; it waits: {shown(found.error)}" if found.error else ""
                line.show(
                    f"{found.state}: {found.files:,} files, {size(found.size_bytes)}, "
                    f"{rate:,.0f} files/s{waits}"
                )
                children = datadir.reported_children(datadir.read(self._settings, datadir.UP))
                alive_at = now if datadir.alive(children.get("recovery")) else alive_at
                if now - alive_at > DEAD_SECONDS:
                    raise UserError(
                        f"the gateway does not run: start it: {START}; then the import continues "
                        "by itself"
                    )
                time.sleep(POLL_SECONDS)
        finally:
            line.end()
        return found


def _show_all(settings: Settings, database: Database, as_json: bool) -> int:
    with database.reading() as session:
        found = imports.every(settings, session)
    output.show_facts(found, as_json, COLUMNS, _cells, "nothing is imported")
    if not as_json:
        for one in found:
            print("\n".join(_remarks(one)), end="\n" if one.error or one.needs_a_person else "")
    return NEEDS_A_PERSON if any(one.needs_a_person for one in found) else DONE


def _cells(one: Import) -> tuple[str, ...]:
    ended = "never" if one.ended_ns is None else moment(one.ended_ns)
    counts = (f"{one.files:,}", size(one.size_bytes), f"{one.gone_files:,}")
    left_out = f"{one.left_out_objects:,}"
    return (display(one.path), shown(one.source), one.state, *counts, left_out, ended)


def _lines(one: Import) -> Iterator[str]:
    yield (
        f"{display(one.path)}: {one.state}: {one.files:,} files, {size(one.size_bytes)}, of "
        f"{shown(one.source)}"
    )
    yield from _remarks(one)


def _remarks(one: Import) -> Iterator[str]:
    """Yield what a person should know of an import."""
    path = display(one.path)
    if one.error:
        yield f"{path}: it waits: {shown(one.error)}"
    if one.gone_files:
        yield (
            f"{path}: {one.gone_files:,} files are GONE from the bucket: their names stay, and "
            "reading them is an error unless their bytes are on the disk"
        )
    if one.left_out_objects:
        yield f"{path}: {one.left_out_objects:,} objects got no name:"
        for left_out in one.left_out_first[:SHOWN]:
            yield f"  {left_out.key}: {left_out.reason}"
