"""`spillway ls` and `spillway stat`: show what is in the namespace, without a mount."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from stat import filemode
from typing import Any, NamedTuple

from gateway import config
from gateway.cli import retention, table
from gateway.cli.result import print_json
from gateway.control import files
from gateway.control.paths import (
    FORMATS,
    REMOVED,
    SYMLINK,
    PathInfo,
    Place,
    browsing,
    model,
    names_of,
    resolve,
)
from gateway.db.opening import opened, reading
from gateway.errors import NotPossible
from gateway.namespace.browse import Entry
from gateway.serialize import Model, to_json
from gateway.text import printable
from gateway.text import shown as safe
from gateway.units import duration

DONE = 0
NOT_POSSIBLE = 1
RESIDENT = "resident"
COLUMNS = ("mode", ">names", ">uid", ">gid", ">size", "modified", "name")


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", dest="long", action="store_true", help="with size, owner and time")
    parser.add_argument("--json", action="store_true", help="everything that is known, as JSON")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", default=["/"], help="default: the whole export's root"
    )


def ls(args: argparse.Namespace) -> int:
    """List paths. Returns exit status 1 if a path does not exist. Raises UserError."""
    settings = config.load(args.config)
    with browsing(settings) as browser:

        def listed(path: str) -> Listed:
            place = resolve(browser, settings, path)
            entry = place.found()
            entries = browser.entries(entry.attr.ino) if place.is_directory else iter([entry])
            return Listed(place.path, place.is_directory, map(partial(shown, place), entries))

        def shown(place: Place, entry: Entry) -> Named:
            name, path = place.path, place.path
            if place.is_directory:
                name = printable(entry.name)
                path = f"{place.path.rstrip('/')}/{name}"
            # The facts take a query for each entry: a directory may have a million names.
            needed = args.long or args.json
            return Named(entry.name, name, model(browser, path, entry) if needed else None)

        return show_listed(listed, args)


class Named(NamedTuple):
    """A name to be listed."""

    key: bytes
    """What it is sorted by."""
    text: str
    info: PathInfo | None
    """Read only for ``-l`` and ``--json``."""


class Listed(NamedTuple):
    """What a path stands for."""

    path: str
    is_directory: bool
    names: Iterator[Named]
    """The names in the directory, or the file's own."""


def show_listed(listed: Callable[[str], Listed], args: argparse.Namespace) -> int:
    """Print what the paths stand for. Returns the exit status. Parameters: listed, which finds one,
    and raises NotPossible."""
    status = DONE
    found: list[PathInfo] = []
    for number, path in enumerate(args.paths):
        try:
            one = listed(path)
        except NotPossible as exc:
            status = refuse(exc)
            continue
        if args.json:
            listing = sorted(one.names, key=lambda name: name.key)
            found += [name.info for name in listing if name.info is not None]
            continue
        if len(args.paths) > 1 and one.is_directory:
            print(f"{chr(10) if number else ''}{one.path}:")
        # Only the shown cells are kept.
        names = [(each.key, _cells(each) if args.long else (each.text,)) for each in one.names]
        rows = [cells for _key, cells in sorted(names)]
        if args.long and rows:
            table.show(COLUMNS, rows, map(_line, rows))
            continue
        for [name] in rows:
            print(name)
    if args.json:
        print_json(found)
    return status


def _cells(name: Named) -> tuple[str, ...]:
    """Return the cells of one row of ``ls -l``."""
    one = name.info
    assert one is not None
    mode = filemode(FORMATS[one.kind] | int(one.mode, 8))
    text = name.text
    if one.kind == SYMLINK:
        text += f" -> {one.target or REMOVED}"
    remarks = [] if one.bytes in (None, RESIDENT) else [one.bytes]
    remarks += ["pinned"] if one.pinned else []
    if remarks:
        text += f" ({', '.join(remarks)})"
    numbers = map(str, (one.names, one.uid, one.gid, one.size_bytes))
    return mode, *numbers, one.modified[:19].replace("T", " "), text


def _line(cells: tuple[str, ...]) -> str:
    mode, names, uid, gid, length, when, text = cells
    return f"{mode} {names:>3} {uid:>6} {gid:>6} {length:>14} {when} {text}"


def stat_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH")


def stat(args: argparse.Namespace) -> int:
    """Show the facts about paths. Returns exit status 1 if a path does not exist. Raises
    UserError."""
    settings = config.load(args.config)
    with browsing(settings) as browser, opened(settings.database_url) as database:

        def found(path: str) -> Model:
            place = resolve(browser, settings, path)
            below = b"/".join(names_of(settings.nfs.export, path))
            with reading(database) as session:
                return files.model(settings, session, browser, place, below, place.path)

        return show_found(found, args)


def show_found(
    find: Callable[[str], Model],
    args: argparse.Namespace,
    said: Mapping[str, Callable[[Any], Iterator[str]]] | None = None,
) -> int:
    """Print the facts about the paths. Returns the exit status.

    Parameters: find, which returns those of one, and raises NotPossible; said, which yields the
    lines of facts that are no plain values, by name.
    """
    ways = _SAID if said is None else said
    status = DONE
    found = []
    for path in args.paths:
        try:
            found.append(to_json(find(path)))
        except NotPossible as exc:
            status = refuse(exc)
    if args.json:
        print_json(found)
        return status
    for one in found:
        for name, value in one.items():
            label = name.removesuffix("_ns").removesuffix("_seconds").replace("_", " ")
            if name.endswith("_ns") and value is not None:
                value = retention.moment(value)
            if name.endswith("_seconds") and value is not None:
                value = duration(value)
            for text in ways.get(name, _texts)(value):
                print(f"{label:<17} {text}")
    return status


def _texts(value: Any) -> Iterator[str]:
    yield ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _waiting(one: dict[str, Any] | None) -> Iterator[str]:
    """Yield what the drain does with a file, if it waits."""
    if one is not None:
        text = f"{one['state']} (bumped)" if one["bumped"] else one["state"]
        if one["tries"]:
            text += f", {one['tries']} tries, next in {duration(one['next_try_seconds'])}"
        why = one["error"] or one.get("waits_for")
        yield safe(f"{text}: {why}" if why else text)


def _object(one: dict[str, Any] | None) -> Iterator[str]:
    """Yield what the bucket has of a file."""
    if one is None:
        yield "none"
        return
    yield safe(one["key"])
    yield f"{one['size_bytes']} bytes, stored {retention.moment(one['stored_ns'])}"
    yield safe(f"{one['checksum'] or 'no checksum'}, etag {one['etag']}")


def _history(acts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what was done lately with the checkpoint that has a path."""
    for one in acts:
        when, result = retention.moment(one["began_ns"]), one["result"] or "under way"
        yield safe(f"{when}  {one['what']}: {result}: {one['reason']} [{one['author']}]")


_SAID: dict[str, Callable[[Any], Iterator[str]]] = {
    "waiting": _waiting,
    "object": _object,
    "history": _history,
}
"""How the facts are shown that are no plain values."""


def refuse(exc: Exception) -> int:
    """Say why something could not be done. Returns the exit status."""
    print(f"spillway: {exc}", file=sys.stderr)
    return NOT_POSSIBLE
