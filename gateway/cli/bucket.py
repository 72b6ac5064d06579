"""`spillway bucket`: whether the bucket answers, what it does by itself, and its effect on a
gateway."""

from __future__ import annotations

import argparse
from typing import Any

from gateway import config
from gateway.cli import result
from gateway.control.bucket import Reachability, SetUp, set_up, test
from gateway.errors import StoreError, UserError
from gateway.serialize import to_json
from gateway.text import shown


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb",
        choices=["setup", "test"],
        help="setup: look at the bucket's own settings; test: ask it now whether it can be used",
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="setup: add the rule that ends unfinished uploads, beside all others",
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="also if the prefix has another owner, or objects and no owner",
    )
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Show the bucket's settings, or whether it answers. Returns 0 if nothing is to do, 1 if a
    person should look.

    Raises UserError.
    """
    settings = config.load(args.config)
    if is_test(args):
        return show_probe(test(settings, args.adopt), args.json)
    try:
        made = set_up(settings, args.apply, args.adopt)
    except StoreError as exc:
        raise UserError(str(exc)) from None
    return show_set_up(made, args)


def is_test(args: argparse.Namespace) -> bool:
    """Return whether the bucket is only to be asked. Raises UserError."""
    if args.verb == "test" and args.apply:
        raise UserError("--apply is for spillway bucket setup")
    return bool(args.verb == "test")


def show_probe(found: Reachability, as_json: bool) -> int:
    """Print whether the bucket answers. Returns the exit status."""
    text = "the bucket answers" if found.error is None else shown(found.error)
    result.show(found, text, as_json)
    return int(found.error is not None)


def show_set_up(made: SetUp, args: argparse.Namespace) -> int:
    """Print the bucket's settings. Returns the exit status."""
    facts = to_json(made)
    # The exit status says it.
    del facts["is_well"]
    if args.json:
        result.print_json(facts)
    else:
        _show({**facts, "expiring_rules": map(_expiring, made.expiring_rules)})
    return int(not made.is_well)


def _show(facts: dict[str, Any]) -> None:
    for name, said in facts.items():
        for line in [said] if isinstance(said, str) else said:
            print(f"{name.replace('_', ' ') + ':':20}{line}")


def _expiring(name: str) -> str:
    return f"{name} deletes objects whose files are still there: exclude our prefix from it"
