"""`spillway pin`, `unpin` and `pins`: keep files on the local disk and from all policies."""

from __future__ import annotations

import argparse

from gateway.cli import result, table
from gateway.cli.change import each
from gateway.cli.look import DONE
from gateway.control.gateway import Gateway
from gateway.escapes import display
from gateway.text import shown


def pin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for other people")
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def pin(args: argparse.Namespace, gateway: Gateway) -> int:
    """Pin files and directories. Returns exit status 1 if one is not there. Raises UserError."""

    def act(path: str) -> None:
        made = gateway.pins.add(path, args.note)
        hint = f"; its bytes are only in the bucket: spillway warm {shown(path)}"
        results.add(made, f"{shown(path)}: pinned{'' if made.on_disk else hint}")

    with result.Results(args.json) as results:
        return each(args.paths, act)


def unpin_arguments(parser: argparse.ArgumentParser) -> None:
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what was pinned")


def unpin(args: argparse.Namespace, gateway: Gateway) -> int:
    """End pins. Returns exit status 1 if there was none. Raises UserError."""

    def act(path: str) -> None:
        results.add(gateway.pins.remove(path), f"{shown(path)}: not pinned any more")

    with result.Results(args.json) as results:
        return each(args.paths, act)


def pins_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def list_pins(args: argparse.Namespace, gateway: Gateway) -> int:
    """List the pins. Raises UserError."""
    found = list(gateway.pins.every())
    if args.json:
        result.print_json(found)
        return DONE
    rows = [(display(one.path), one.pinned_by, one.pinned[:10], shown(one.note)) for one in found]
    if rows:
        table.show(("path", "by", "since", "why"), rows, map(_line, rows))
    else:
        print("nothing is pinned")
    return DONE


def _line(cells: tuple[str, ...]) -> str:
    path, by, when, note = cells
    return f"{path}  ({by}, {when})" + (f": {note}" if note else "")
