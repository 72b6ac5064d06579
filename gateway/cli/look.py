"""`spillway ls` and `spillway stat`: show what is in the namespace, without a mount."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from gateway import config
from gateway.control.paths import Place, browsing, facts, long_line, resolve
from gateway.errors import NotPossible
from gateway.namespace.browse import Browser, Entry
from gateway.text import printable

DONE = 0
NOT_POSSIBLE = 1


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", dest="long", action="store_true", help="with size, owner and time")
    parser.add_argument("--json", action="store_true", help="everything that is known, as JSON")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", default=["/"], help="default: the whole export's root"
    )


def ls(args: argparse.Namespace) -> int:
    """List paths. Returns exit status 1 if a path does not exist. Raises UserError."""
    status = DONE
    listed: list[dict[str, object]] = []
    settings = config.load(args.config)
    with browsing(settings) as browser:
        for number, path in enumerate(args.paths):
            try:
                place = resolve(browser, settings, path)
                place.found()
            except NotPossible as exc:
                status = refuse(exc)
                continue
            if args.json:
                listed += [facts(browser, shown, entry) for shown, entry in _of(browser, place)]
                continue
            if len(args.paths) > 1 and place.is_directory:
                print(f"{chr(10) if number else ''}{place.path}:")
            _list(browser, place, args.long)
    if args.json:
        print(json.dumps(listed, indent=2))
    return status


def stat_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH")


def stat(args: argparse.Namespace) -> int:
    """Show the facts about paths. Returns exit status 1 if a path does not exist. Raises
    UserError."""
    status = DONE
    found = []
    settings = config.load(args.config)
    with browsing(settings) as browser:
        for path in args.paths:
            try:
                place = resolve(browser, settings, path)
                found.append(facts(browser, place.path, place.found()))
            except NotPossible as exc:
                status = refuse(exc)
    if args.json:
        print(json.dumps(found, indent=2))
        return status
    for one in found:
        for name, value in one.items():
            print(f"{name.replace('_', ' '):<17} {value}")
    return status


def refuse(exc: Exception) -> int:
    """Say why something could not be done. Returns the exit status."""
    print(f"spillway: {exc}", file=sys.stderr)
    return NOT_POSSIBLE


def _of(browser: Browser, place: Place) -> Iterator[tuple[str, Entry]]:
    entry = place.found()
    if not place.is_directory:
        yield place.path, entry
        return
    for child in browser.entries(entry.attr.ino):
        yield f"{place.path.rstrip('/')}/{printable(child.name)}", child


def _list(browser: Browser, place: Place, is_long: bool) -> None:
    entry = place.found()
    entries = browser.entries(entry.attr.ino) if place.is_directory else iter([entry])
    # Only the shown lines are kept: a directory may have a million names.
    shown = []
    for child in entries:
        name = printable(child.name) if place.is_directory else place.path
        shown.append((child.name, long_line(browser, child, name) if is_long else name))
    for _name, line in sorted(shown):
        print(line)
