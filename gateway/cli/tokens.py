"""Command `spillway token`: makes, lists and revokes the tokens of the admin API.

It works on the admin API's own database, whether that process runs or not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from gateway.cli import caller, local, options, output
from gateway.cli.options import DURATION
from gateway.cli.policies import moment
from gateway.common.text import shown
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.schema import explained
from gateway.service.gateway import Gateway
from gateway.service.tokens import TokenInfo, Tokens

ROLES = ("viewer", "operator", "admin")
LIFE = "90d"
"""The life of a token if no other is asked for, as that of the API (admin_api.access.tokens)."""
ENDLESS = "never"
COLUMNS = ("id", "role", "state", "name", "last used", "expires")
_Act = Callable[[Tokens, argparse.Namespace], int]


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = options.adder(parser)
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
    output.option(add)
    add.add_argument("id", metavar="ID")
    add.add_argument("hash", metavar="HASH")
    listing = verb("list", "list the tokens", _list)
    listing.add_argument("--json", action="store_true", help="the same facts as JSON")
    revoke = verb("revoke", "end a token at once", _revoke)
    output.option(revoke)
    revoke.add_argument("id", metavar="ID")
    who = verb("whoami", "whose token --gateway is used with, and its role", _whoami)
    who.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    act: _Act = args.act
    return act(gateway.tokens, args)


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """Open the admin API's own database. Raises UserError."""
    # The import is here because every command imports this module.
    from admin_api.store import open_store

    local.require_data_dir(settings)
    with closing(open_store(settings)) as store, explained(store):
        yield store


def _create(tokens: Tokens, args: argparse.Namespace) -> int:
    life = None if args.expires == ENDLESS else DURATION.read("--expires", args.expires)
    name = caller.name() if args.name is None else args.name
    made = tokens.create(shown(name), args.role, life)
    args.record.after = made.token
    output.show(made, made.secret, args.json)
    if not args.json:
        print("it is shown this once: who has it may do what its role may", file=sys.stderr)
    return 0


def _add(tokens: Tokens, args: argparse.Namespace) -> int:
    args.record.after = added = tokens.add(args.name, args.id, args.hash)
    text = "added" if added.changed else "unchanged"
    output.show(added, f"{added.id}: {text}", args.json)
    return 0


def _list(tokens: Tokens, args: argparse.Namespace) -> int:
    nothing = "there are no tokens: spillway token create --role admin"
    return output.show_facts(list(tokens.every()), args.json, COLUMNS, _cells, nothing)


def _cells(token: TokenInfo) -> tuple[str, ...]:
    times = (token.last_used_ns, token.expires_ns)
    return (
        token.id,
        token.role,
        token.state,
        token.name,
        *(moment(at) if at else "never" for at in times),
    )


def _revoke(tokens: Tokens, args: argparse.Namespace) -> int:
    args.record.after = ended = tokens.revoke(args.id)
    output.show(ended, f"{ended.id}: revoked", args.json)
    return 0


def _whoami(tokens: Tokens, args: argparse.Namespace) -> int:
    current_caller = tokens.whoami()
    output.show(
        current_caller,
        f"{current_caller.token_id}  {current_caller.role}  {shown(current_caller.name)}",
        args.json,
    )
    return 0
