"""`spillway token`: makes, lists and revokes the tokens of the admin API.

It works on the admin API's own database, whether that process runs or not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from gateway import clock, config
from gateway.cli import checks, result, table, user, verbs
from gateway.cli.quantities import DURATION
from gateway.db.engine import Database
from gateway.db.opening import explained
from gateway.errors import UserError
from gateway.serialize import to_json
from gateway.settings import Settings
from gateway.text import shown

if TYPE_CHECKING:
    from admin_api.store.tokens import TokenInfo

ROLES = ("viewer", "operator", "admin")
LIFE = "90d"
"""The life of a token if no other is asked for, as that of the API (admin_api.access.tokens)."""
ENDLESS = "never"
COLUMNS = ("id", "role", "state", "name", "last used", "expires")
_Act = Callable[[Database, argparse.Namespace], int]


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = verbs.adder(parser)
    create = verb("create", "make a token; it is shown once", _create)
    create.add_argument("--role", required=True, choices=ROLES, help="what its owner may do")
    create.add_argument("--name", metavar="NAME", help="whose it is (default: your name)")
    create.add_argument(
        "--expires",
        metavar=DURATION.metavar,
        default=LIFE,
        help=f"when it ends, like 30d, or {ENDLESS} (default: {LIFE})",
    )
    create.add_argument("--json", action="store_true", help="the token and its facts as JSON")
    add = verb("add", "add an admin's token that was prepared for a first boot", _add)
    add.add_argument("--name", metavar="NAME", required=True, help="whose it is")
    result.option(add)
    add.add_argument("id", metavar="ID")
    add.add_argument("hash", metavar="HASH")
    listing = verb("list", "list the tokens", _list)
    listing.add_argument("--json", action="store_true", help="the same facts as JSON")
    revoke = verb("revoke", "end a token at once", _revoke)
    result.option(revoke)
    revoke.add_argument("id", metavar="ID")
    who = verb("whoami", "whose token --gateway is used with, and its role", _whoami)
    who.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    settings = config.load(args.config)
    act: _Act = args.act
    with opened(settings) as store:
        return act(store, args)


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """Open the admin API's own database. Raises UserError."""
    # The import is here because every command imports this module.
    from admin_api.store.opening import open_store

    checks.require_data_dir(settings)
    with closing(open_store(settings)) as store, explained(store):
        yield store


def _create(store: Database, args: argparse.Namespace) -> int:
    from admin_api.access.principal import Role
    from admin_api.access.tokens import create
    from admin_api.store import tokens

    by = user.name()
    seconds = life_seconds(args)
    expires_ns = None if seconds is None else clock.now_ns() + int(seconds * clock.NS)
    name = shown(by if args.name is None else args.name)
    with store.writing() as session:
        token, text = create(session, name, Role[args.role.upper()], expires_ns, by)
    args.record.after = tokens.model(token)
    return show_made(args.record.after, text, args.json)


def life_seconds(args: argparse.Namespace) -> float | None:
    """Return for how long a token is to be valid, or None: it does not end. Raises UserError."""
    return None if args.expires == ENDLESS else DURATION.read("--expires", args.expires)


def show_made(made: TokenInfo, text: str, as_json: bool) -> int:
    """Print a new token. Returns the exit status."""
    if as_json:
        result.print_json({**to_json(made), "token": text})
        return 0
    print(text)
    print("it is shown this once: who has it may do what its role may", file=sys.stderr)
    return 0


def _add(store: Database, args: argparse.Namespace) -> int:
    from admin_api.access.tokens import prepared
    from admin_api.store import tokens

    token = prepared(shown(args.name), args.id, args.hash, user.name())
    with store.writing() as session:
        known = tokens.find(session, token.id)
        if known is None:
            tokens.add(session, token)
    args.record.after = tokens.model(known or token)
    found = {**to_json(args.record.after), "changed": known is None}
    text = "added" if known is None else "unchanged"
    result.show(found, f"{token.id}: {text}", args.json)
    return 0


def _list(store: Database, args: argparse.Namespace) -> int:
    from admin_api.store import tokens

    with store.reading() as session:
        found = [tokens.model(one) for one in tokens.every(session)]
    return show(found, args.json)


def show(found: list[TokenInfo], as_json: bool) -> int:
    """Print the tokens. Returns the exit status."""
    return table.show_facts(
        found,
        as_json,
        COLUMNS,
        _cells,
        _line,
        "there are no tokens: spillway token create --role admin",
    )


def _cells(one: TokenInfo) -> tuple[str, ...]:
    times = (one.last_used or "never", one.expires or "never")
    return one.id, one.role, one.state, one.name, *times


def _line(one: TokenInfo) -> str:
    used = f"used {one.last_used}" if one.last_used else "never used"
    ends = f", expires {one.expires}" if one.expires else ""
    return f"{one.id}  {one.role:<8}  {one.state:<7}  {one.name}: {used}{ends}"


def _revoke(store: Database, args: argparse.Namespace) -> int:
    from admin_api.store import tokens

    with store.writing() as session:
        token = tokens.revoke(session, args.id, clock.now_ns())
        if token is None:
            raise UserError(f"there is no token {shown(args.id)}: see spillway token list")
    args.record.after = tokens.model(token)
    return show_revoked(args.record.after, args.json)


def show_revoked(ended: TokenInfo, as_json: bool) -> int:
    """Print that a token has ended. Returns the exit status."""
    result.show(ended, f"{ended.id}: revoked", as_json)
    return 0


def _whoami(_store: Database, _args: argparse.Namespace) -> int:
    raise UserError(
        "a command on the gateway uses no token: spillway --gateway http://127.0.0.1:8780 token "
        "whoami says whose the token is"
    )
