"""`spillway bucket setup`: shows what the bucket does by itself, and its effect on a gateway."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from gateway import config
from gateway.db import schema
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import BucketError, NamespaceError, UserError
from gateway.settings import Settings

if TYPE_CHECKING:
    # boto3 takes half a second to import.
    from gateway.objectstore.setup import Found, Rule, Setup, Transition

APPLY = "spillway bucket setup --apply"


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
    from gateway.objectstore.setup import Setup

    settings = config.load(args.config)
    try:
        setup = Setup(settings)
        found = setup.look()
        applied = args.apply and not any(map(setup.aborts, found.rules))
        if applied:
            setup.apply(found)
            found = setup.look()
        checksum = _checksum(settings)
    except BucketError as exc:
        raise UserError(str(exc)) from None
    facts = {
        "bucket": settings.bucket.name,
        "checksum": checksum,
        "versioning": _versioning(found),
        "object_lock": _lock(found),
        "unfinished_uploads": _unfinished(setup, found, applied),
        "expiring_rules": [_name(rule) for rule in found.rules if setup.expires(rule)],
        "transition_rules": [
            _transition(rule, one) for rule in found.rules for one in setup.transitions(rule)
        ],
    }
    archives = any(one.archives for rule in found.rules for one in setup.transitions(rule))
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _show({**facts, "expiring_rules": map(_expiring, facts["expiring_rules"])})
    return int(bool(facts["expiring_rules"]) or archives or not any(map(setup.aborts, found.rules)))


def _show(facts: dict[str, Any]) -> None:
    for name, said in facts.items():
        for line in [said] if isinstance(said, str) else said:
            print(f"{name.replace('_', ' ') + ':':20}{line}")


def _expiring(name: str) -> str:
    return f"{name} deletes objects whose files are still there: exclude our prefix from it"


def _transition(rule: Rule, transition: Transition) -> str:
    text = f"{_name(rule)} moves objects to {transition.storage_class} {transition.when}: "
    if transition.archives:
        return text + (
            "objects there cannot be copied until a person restores them, so a rename does not "
            "move them: exclude our prefix from it"
        )
    return text + "a rename pays for retrieval there"


def _versioning(found: Found) -> str:
    said = found.versioning
    if not isinstance(said, str):
        return f"the server does not say ({said.why})"
    if said == "Enabled":
        return (
            "on: a deletion or a new version keeps the old bytes, and their costs, until a "
            "lifecycle rule expires noncurrent versions"
        )
    return f"{'suspended' if said else 'off'}: a deletion takes the bytes for good"


def _lock(found: Found) -> str:
    said = found.lock
    if isinstance(said, tuple):
        return f"the server does not say ({said.why})"
    if not said or said.get("ObjectLockEnabled") != "Enabled":
        return "off"
    kept = said.get("Rule", {}).get("DefaultRetention")
    if not kept:
        return "on, without a default retention: only versions that somebody locks stay"
    time = f"{kept['Days']} days" if "Days" in kept else f"{kept.get('Years')} years"
    return (
        f"on, {kept.get('Mode')} for {time}: every version stays so long; deletions and renames "
        "leave delete markers over them"
    )


def _checksum(settings: Settings) -> str:
    """Which checksum goes with what is sent. Asks the store, and remembers what it found."""
    from gateway.drain import endpoint
    from gateway.objectstore.checksums import Kind
    from gateway.objectstore.negotiation import negotiate

    if (chosen := endpoint.configured(settings.bucket)) is not None:
        return f"{chosen}, as configured"
    kind = negotiate(settings)
    if kind is None:
        return "md5: the store does not let us find out whether it verifies a newer one"
    found = f"{kind}: the store refuses what does not match it"
    if kind is Kind.MD5:
        found = "md5: the store takes objects with wrong newer checksums"
    database = Database(settings.database_url)
    try:
        schema.require_current(database)
        with database.reader() as connection, database.transaction(connection):
            endpoint.remember(Session(connection, database.dialect), settings.bucket, kind)
    except (NamespaceError, UserError) as exc:
        # The rest of what was found, and what was changed in the bucket, must be shown.
        return f"{found} (not recorded, the drain will ask again: {exc})"
    finally:
        database.close()
    return found


def _unfinished(setup: Setup, found: Found, applied: bool) -> str:
    rules = [_name(rule) for rule in found.rules if setup.aborts(rule)]
    if rules:
        return f"ended by the rule {rules[0]}{' (just added)' if applied else ''}"
    if isinstance(found.lifecycle, tuple):
        return (
            f"the server does not tell its lifecycle rules ({found.lifecycle.why}): the drain "
            "looks for unfinished uploads once a day"
        )
    return f"no rule ends them, what is lost in them is paid for: {APPLY} adds one"


def _name(rule: Rule) -> str:
    return str(rule.get("ID") or "without a name")
