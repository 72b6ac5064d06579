"""`spillway pin`, `unpin` and `pins`: keep files on the local disk and from all policies."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from gateway import clock, config
from gateway.cli import user
from gateway.cli.look import DONE, refuse
from gateway.cli.promote import opened
from gateway.control.paths import Place, browsing, resolve
from gateway.db.compiled import Session
from gateway.errors import NotPossible
from gateway.namespace import pins
from gateway.promotion.store import paths_of
from gateway.settings import Settings
from gateway.text import printable, shown
from gateway.types import Kind, Residency

Act = Callable[[Session, Place], str]


def pin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for other people")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def pin(args: argparse.Namespace) -> int:
    """Pin files and directories. Returns exit status 1 if one is not there. Raises UserError."""

    def act(session: Session, place: Place) -> str:
        attr = place.found().attr
        if not place.name:
            raise NotPossible("the whole export cannot be pinned: nothing could leave the disk")
        if attr.kind not in (Kind.REGULAR, Kind.DIRECTORY):
            raise NotPossible(f"{place.path}: only files and directories are pinned")
        new = pins.Pin(attr.ino, args.note, user.name(), clock.now_ns())
        if not pins.add(session, new):
            raise NotPossible(f"{place.path}: it was removed meanwhile")
        is_absent = attr.kind == Kind.REGULAR and attr.residency == Residency.ABSENT
        hint = f"; its bytes are only in the bucket: spillway warm {place.path}"
        return f"{place.path}: pinned{hint if is_absent else ''}"

    return _each(args, act)


def unpin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what was pinned")


def unpin(args: argparse.Namespace) -> int:
    """End pins. Returns exit status 1 if there was none. Raises UserError."""

    def act(session: Session, place: Place) -> str:
        if not pins.drop(session, place.found().attr.ino):
            raise NotPossible(f"{place.path}: it is not pinned by itself: look with spillway pins")
        return f"{place.path}: not pinned any more"

    return _each(args, act)


def pins_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def list_pins(args: argparse.Namespace) -> int:
    """List the pins. Raises UserError."""
    settings = config.load(args.config)
    with opened(settings) as database, database.snapshot() as connection:
        session = Session(connection, database.dialect)
        found = [_facts(settings, session, one) for one in pins.every(session)]
    if args.json:
        print(json.dumps(found, indent=2))
        return DONE
    for one in found:
        note = f": {shown(one['note'])}" if one["note"] else ""
        print(f"{one['path']}  ({one['pinned_by']}, {one['pinned'][:10]}){note}")
    if not found:
        print("nothing is pinned")
    return DONE


def _facts(settings: Settings, session: Session, one: pins.Pin) -> dict[str, Any]:
    paths = paths_of(session, one.ino)
    return {
        "path": f"{settings.nfs.export}/{printable(paths[0])}" if paths else "?",
        "ino": one.ino,
        "note": one.note,
        "pinned_by": one.pinned_by,
        "pinned": datetime.fromtimestamp(one.pinned_ns // clock.NS).astimezone().isoformat(),
    }


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
