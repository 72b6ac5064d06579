"""`spillway pin`, `unpin` and `pins`: keep files on the local disk and from all policies."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from gateway import config
from gateway.cli import result, table, user
from gateway.cli.change import each
from gateway.cli.look import DONE
from gateway.control import pins
from gateway.control.paths import Place, browsing, resolve
from gateway.db.compiled import Session
from gateway.db.opening import opened
from gateway.namespace.pins import every
from gateway.settings import Settings
from gateway.text import shown
from gateway.types import Kind, Residency

Told = tuple[result.Found, str]
"""What a script is told, and what a person is."""
Act = Callable[[Settings, Session, Place], Told]


def pin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for other people")
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def pin(args: argparse.Namespace) -> int:
    """Pin files and directories. Returns exit status 1 if one is not there. Raises UserError."""

    def act(settings: Settings, session: Session, place: Place) -> Told:
        attr = place.found().attr
        row = pins.pin(session, attr, place.path, args.note, user.name())
        is_absent = attr.kind == Kind.REGULAR and attr.residency == Residency.ABSENT
        return pins.model(settings, session, row), pinned(place.path, is_absent)

    return _each(args, act)


def unpin_arguments(parser: argparse.ArgumentParser) -> None:
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what was pinned")


def unpin(args: argparse.Namespace) -> int:
    """End pins. Returns exit status 1 if there was none. Raises UserError."""

    def act(_settings: Settings, session: Session, place: Place) -> Told:
        ino = place.found().attr.ino
        pins.unpin(session, ino, place.path)
        return unpinned(place.path, ino)

    return _each(args, act)


def pinned(path: str, is_absent: bool) -> str:
    """Return what is said of a new pin. Parameters: is_absent, whether it is a file whose bytes
    are not all here."""
    hint = f"; its bytes are only in the bucket: spillway warm {path}"
    return f"{path}: pinned{hint if is_absent else ''}"


def unpinned(path: str, ino: int) -> Told:
    """Return what is said of a pin that ended."""
    return {"path": path, "ino": ino, "unpinned": True}, f"{path}: not pinned any more"


def pins_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def list_pins(args: argparse.Namespace) -> int:
    """List the pins. Raises UserError."""
    settings = config.load(args.config)
    with opened(settings.database_url) as database, database.snapshot() as connection:
        session = Session(connection, database.dialect)
        found = [pins.model(settings, session, one) for one in every(session)]
    return show(found, args.json)


def show(found: list[pins.Pin], as_json: bool) -> int:
    """Print the pins. Returns the exit status."""
    if as_json:
        result.print_json(found)
        return DONE
    rows = [(one.path, one.pinned_by, one.pinned[:10], shown(one.note)) for one in found]
    if rows:
        table.show(("path", "by", "since", "why"), rows, map(_line, rows))
    else:
        print("nothing is pinned")
    return DONE


def _line(cells: tuple[str, ...]) -> str:
    path, by, when, note = cells
    return f"{path}  ({by}, {when})" + (f": {note}" if note else "")


def _each(args: argparse.Namespace, act: Act) -> int:
    """Do the same with each path. A path that is not possible does not stop the others."""
    settings = config.load(args.config)
    with (
        browsing(settings) as browser,
        opened(settings.database_url) as database,
        result.Results(args.json) as results,
    ):

        def one(path: str) -> None:
            place = resolve(browser, settings, path)
            with database.reader() as connection, database.transaction(connection):
                told = act(settings, Session(connection, database.dialect), place)
            results.add(*told)

        return each(args.paths, one)
