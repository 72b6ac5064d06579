"""`spillway ls` and `spillway stat`: show what is in the namespace, without a mount."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from stat import filemode
from typing import Any

from gateway.cli import retention, table
from gateway.cli.result import print_json
from gateway.control.files import FileInfo
from gateway.control.gateway import Gateway
from gateway.control.paths import FORMATS, REMOVED, Child, as_child
from gateway.control.paths import shown as shown_path
from gateway.errors import NotPossible
from gateway.escapes import bytes_of, display, encoded
from gateway.serialize import Model, to_json
from gateway.text import shown
from gateway.units import duration

DONE = 0
NOT_POSSIBLE = 1
RESIDENT = "resident"
DIRECTORY = "directory"
LINK = "symbolic link"
COLUMNS = ("mode", ">names", ">uid", ">gid", ">size", "modified", "name")


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", dest="long", action="store_true", help="with size, owner and time")
    parser.add_argument("--json", action="store_true", help="everything that is known, as JSON")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", default=["/"], help="default: the whole export's root"
    )


def ls(args: argparse.Namespace, gateway: Gateway) -> int:
    """List paths. Returns exit status 1 if a path does not exist. Raises UserError."""
    status = DONE
    found: list[Child] = []
    for number, path in enumerate(args.paths):
        try:
            one = gateway.files.get(path)
            if one.kind == DIRECTORY:
                children = gateway.files.children(path, details=args.long or args.json)
            else:
                # People see the path of a file as they wrote it.
                alone = as_child(one)
                children = iter([alone if args.json else replace(alone, name=encoded(path))])
            if args.json:
                found += sorted(children, key=_name)
                continue
            rows = _rows(children, args.long)
        except NotPossible as exc:
            status = refuse(exc)
            continue
        if len(args.paths) > 1 and one.kind == DIRECTORY:
            print(f"{chr(10) if number else ''}{shown_path(path)}:")
        if args.long and rows:
            table.show(COLUMNS, rows, map(_line, rows))
            continue
        for [name] in rows:
            print(name)
    if args.json:
        print_json(found)
    return status


def _name(child: Child) -> bytes:
    return bytes_of(child.name)


def _rows(children: Iterable[Child], long: bool) -> list[tuple[str, ...]]:
    """Return the cells of the names in a directory."""
    # Only the shown cells are kept: a directory may have a million names.
    rows = [(_name(one), _cells(one, long)) for one in children]
    return [cells for _key, cells in sorted(rows)]


def _cells(one: Child, long: bool) -> tuple[str, ...]:
    """Return the cells of one row: of all that is known, or only the name."""
    text = display(one.name)
    if not long:
        return (text,)
    mode = filemode(FORMATS[one.kind] | int(one.mode, 8))
    if one.kind == LINK:
        text += f" -> {REMOVED if one.target is None else display(one.target)}"
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


def stat(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the facts about paths. Returns exit status 1 if a path does not exist. Raises
    UserError."""

    def found(path: str) -> FileInfo:
        one = gateway.files.get(path)
        # People see the path as they wrote it.
        return one if args.json else replace(one, path=encoded(path))

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


def _known(text: str | None) -> Iterator[str]:
    if text is not None:
        yield text


def _path(text: str | None) -> Iterator[str]:
    if text is not None:
        yield display(text)


def _waiting(one: dict[str, Any] | None) -> Iterator[str]:
    """Yield what the drain does with a file, if it waits."""
    if one is not None:
        text = f"{one['state']} (bumped)" if one["bumped"] else one["state"]
        if one["tries"]:
            text += f", {one['tries']} tries, next in {duration(one['next_try_seconds'])}"
        why = one["error"] or one.get("waits_for")
        yield shown(f"{text}: {why}" if why else text)


def _object(one: dict[str, Any] | None) -> Iterator[str]:
    """Yield what the bucket has of a file."""
    if one is None:
        yield "none"
        return
    yield shown(one["key"])
    yield f"{one['size_bytes']} bytes, stored {retention.moment(one['stored_ns'])}"
    yield shown(f"{one['checksum'] or 'no checksum'}, etag {one['etag']}")


def _history(acts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what was done lately with the checkpoint that has a path."""
    for one in acts:
        when, result = retention.moment(one["began_ns"]), one["result"] or "under way"
        yield shown(f"{when}  {one['what']}: {result}: {one['reason']} [{one['author']}]")


_SAID: dict[str, Callable[[Any], Iterator[str]]] = {
    "path": _path,
    "bytes": _known,
    "target": _path,
    "waiting": _waiting,
    "object": _object,
    "history": _history,
}
"""How the facts are shown that are no plain values."""


def refuse_each(failures: Iterable[str]) -> int:
    """Say of each why it could not be done. Returns the exit status."""
    return max((refuse(NotPossible(one)) for one in failures), default=DONE)


def refuse(exc: Exception) -> int:
    """Say why something could not be done. Returns the exit status."""
    print(f"spillway: {exc}", file=sys.stderr)
    return NOT_POSSIBLE
