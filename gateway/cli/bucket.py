"""`spillway bucket`: whether the bucket answers, what it does by itself, and its effect on a
gateway."""

from __future__ import annotations

import argparse

from gateway.cli import result
from gateway.control.bucket import SetUp
from gateway.control.gateway import Gateway
from gateway.errors import UserError
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


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the bucket's settings, or whether it answers. Returns 0 if nothing is to do, 1 if a
    person should look.

    Raises UserError.
    """
    if args.verb == "test":
        if args.apply:
            raise UserError("--apply is for spillway bucket setup")
        found = gateway.bucket.test(args.adopt)
        text = "the bucket answers" if found.error is None else shown(found.error)
        result.show(found, text, args.json)
        return int(found.error is not None)
    made = gateway.bucket.set_up(args.apply, args.adopt)
    if args.json:
        result.print_json(made)
    else:
        _show(made)
    return int(not made.is_well)


def _show(made: SetUp) -> None:
    facts = {**to_json(made), "expiring_rules": map(_expiring, made.expiring_rules)}
    del facts["is_well"]  # the exit status says it
    for name, said in facts.items():
        for line in [said] if isinstance(said, str) else said:
            print(f"{name.replace('_', ' ') + ':':20}{line}")


def _expiring(name: str) -> str:
    return f"{name} deletes objects whose files are still there: exclude our prefix from it"
