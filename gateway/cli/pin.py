"""`spillway pin`, `unpin` and `pins`: keep files on the local disk and from all policies."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from gateway import config
from gateway.cli import user
from gateway.cli.look import DONE, refuse
from gateway.cli.promote import opened
from gateway.control import pins
from gateway.control.paths import Place, browsing, resolve
from gateway.db.compiled import Session
from gateway.errors import NotPossible
from gateway.namespace.pins import every
from gateway.text import shown
from gateway.types import Kind, Residency

Act = Callable[[Session, Place], str]


def pin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for other people")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def pin(args: argparse.Namespace) -> int:
    """Pin files and directories. Returns exit status 1 if one is not there. Raises UserError."""

    def act(session: Session, place: Place) -> str:
        attr = place.found().attr
        pins.pin(session, attr, place.path, args.note, user.name())
        is_absent = attr.kind == Kind.REGULAR and attr.residency == Residency.ABSENT
        hint = f"; its bytes are only in the bucket: spillway warm {place.path}"
        return f"{place.path}: pinned{hint if is_absent else ''}"

    return _each(args, act)


def unpin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what was pinned")


def unpin(args: argparse.Namespace) -> int:
    """End pins. Returns exit status 1 if there was none. Raises UserError."""

    def act(session: Session, place: Place) -> str:
        pins.unpin(session, place.found().attr.ino, place.path)
        return f"{place.path}: not pinned any more"

    return _each(args, act)


def pins_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def list_pins(args: argparse.Namespace) -> int:
    """List the pins. Raises UserError."""
    settings = config.load(args.config)
    with opened(settings) as database, database.snapshot() as connection:
        session = Session(connection, database.dialect)
        found = [pins.facts(settings, session, one) for one in every(session)]
    if args.json:
        print(json.dumps(found, indent=2))
        return DONE
    for one in found:
        note = f": {shown(one['note'])}" if one["note"] else ""
        print(f"{one['path']}  ({one['pinned_by']}, {one['pinned'][:10]}){note}")
    if not found:
        print("nothing is pinned")
    return DONE


def _each(args: argparse.Namespace, act: Act) -> int:
    """Do the same with each path. A path that is not possible does not stop the others."""
    settings = config.load(args.config)
    status = DONE
    with browsing(settings) as browser, opened(settings) as database:
        for path in args.paths:
            try:
                place = resolve(browser, settings, path)
                with database.reader() as connection, database.transaction(connection):
                    done = act(Session(connection, database.dialect), place)
            except NotPossible as exc:
                status = refuse(exc)
            else:
                print(done)
    return status
