"""`spillway bucket setup`: shows what the bucket does by itself, and its effect on a gateway."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gateway import config
from gateway.control.bucket import set_up
from gateway.errors import BucketError, UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=["setup"], help="look at the bucket's own settings")
    parser.add_argument(
        "--apply",
        action="store_true",
        help="add the rule that ends unfinished uploads, beside all others",
    )
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Show the bucket's settings. Returns 0 if nothing is to do, 1 if a person should look.

    Raises UserError.
    """
    try:
        facts, is_well = set_up(config.load(args.config), args.apply)
    except BucketError as exc:
        raise UserError(str(exc)) from None
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
