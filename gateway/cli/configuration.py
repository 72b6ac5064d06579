"""`spillway configuration`: the keys as they are in force. What may be a password is masked."""

from __future__ import annotations

import argparse
import json

from gateway.cli import result, table
from gateway.control.configuration import Configuration, Key
from gateway.control.gateway import Gateway
from gateway.errors import UserError
from gateway.text import shown

COLUMNS = ("key", "value", "from", "default")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="also what each key means, as JSON")
    parser.add_argument(
        "key", nargs="?", metavar="KEY", help="a section or key, like drain.workers"
    )


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the keys that are wanted. Raises UserError."""
    whole = gateway.configuration()
    found = {
        section: {name: one for name, one in keys.items() if _is_wanted(args.key, section, name)}
        for section, keys in whole.sections.items()
    }
    found = {section: keys for section, keys in found.items() if keys}
    if not found:
        raise UserError(f"there is no key {shown(args.key)}: spillway configuration shows all")
    if args.json:
        result.print_json(Configuration(whole.source, found))
        return 0
    keys = [(f"{section}.{name}", one) for section in found for name, one in found[section].items()]
    rows = [_cells(name, one) for name, one in keys]
    table.show(COLUMNS, rows, map(_line, rows), title=whole.source)
    if len(keys) == 1:
        print(keys[0][1].doc)
    return 0


def _is_wanted(key: str | None, section: str, name: str) -> bool:
    return key in (None, section, f"{section}.{name}")


def _cells(name: str, one: Key) -> tuple[str, ...]:
    is_default = one.value == one.default
    source = "default" if is_default else "file"
    if one.is_overridden:
        source = one.variable
    value, default = (shown(json.dumps(of)) for of in (one.value, one.default))
    return name, value, source, "" if is_default else default


def _line(cells: tuple[str, ...]) -> str:
    name, value, source, _default = cells
    return f"{name} = {value}  ({source})"
