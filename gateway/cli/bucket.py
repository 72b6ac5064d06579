"""`spillway bucket`: whether the bucket answers, what it does by itself, and its effect on a
gateway."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gateway import config
from gateway.cli import result
from gateway.control.bucket import set_up, test
from gateway.errors import StoreError, UserError
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
        facts, is_well = set_up(settings, args.apply, args.adopt)
    except StoreError as exc:
        raise UserError(str(exc)) from None
    return show_set_up(facts, is_well, args)


def is_test(args: argparse.Namespace) -> bool:
    """Return whether the bucket is only to be asked. Raises UserError."""
    if args.verb == "test" and args.apply:
        raise UserError("--apply is for spillway bucket setup")
    return bool(args.verb == "test")


def show_probe(facts: dict[str, Any], as_json: bool) -> int:
    """Print whether the bucket answers. Returns the exit status."""
    text = "the bucket answers" if facts["error"] is None else shown(facts["error"])
    result.show(facts, text, as_json)
    return int(facts["error"] is not None)


def show_set_up(facts: dict[str, Any], is_well: bool, args: argparse.Namespace) -> int:
    """Print the bucket's settings. Returns the exit status."""
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _show({**facts, "expiring_rules": map(_expiring, facts["expiring_rules"])})
    return int(not is_well)


def _show(facts: dict[str, Any]) -> None:
    for name, said in facts.items():
        for line in [said] if isinstance(said, str) else said:
            print(f"{name.replace('_', ' ') + ':':20}{line}")


def _expiring(name: str) -> str:
    return f"{name} deletes objects whose files are still there: exclude our prefix from it"
