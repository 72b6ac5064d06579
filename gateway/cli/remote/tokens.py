"""`token` of a gateway on another machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gateway.cli import result, token, user
from gateway.cli.remote.client import Api
from gateway.errors import UserError
from gateway.serialize import from_json
from gateway.text import shown

if TYPE_CHECKING:
    from admin_api.store.tokens import TokenInfo

_TIMES = ("created", "expires", "last_used", "revoked")


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb."""
    if args.verb == "add":
        raise UserError("spillway token add runs on the gateway only: run it there")
    verbs = {"create": _create, "list": _list, "revoke": _revoke, "whoami": _whoami}
    return verbs[args.verb](args, api)


def _create(args: argparse.Namespace, api: Api) -> int:
    seconds = token.life_seconds(args)
    body = {
        "name": shown(user.name() if args.name is None else args.name),
        "role": args.role,
        "expires_seconds": None if seconds is None else int(seconds),
    }
    made = api.call("POST", "/tokens", body).json()
    return token.show_made(_model(made["token"]), made["secret"], args.json)


def _list(args: argparse.Namespace, api: Api) -> int:
    return token.show([_model(one) for one in api.every("/tokens")], args.json)


def _revoke(args: argparse.Namespace, api: Api) -> int:
    if not args.id.isalnum():
        raise UserError(f"there is no token {shown(args.id)}: see spillway token list")
    ended = api.call("DELETE", f"/tokens/{args.id}").json()
    return token.show_revoked(_model(ended), args.json)


def _whoami(args: argparse.Namespace, api: Api) -> int:
    found = api.get("/session")
    facts = {name: found[name] for name in ("name", "role", "token_id")}
    text = f"{facts['token_id']}  {facts['role']}  {shown(facts['name'])}"
    result.show(facts, text, args.json)
    return 0


def _model(one: dict[str, Any]) -> TokenInfo:
    """Return a token with times as commands write UTC."""
    # The import is here because every command imports this module.
    from admin_api.store.tokens import TokenInfo

    for name in _TIMES:
        if one[name]:
            one[name] = one[name].replace("Z", "+00:00")
    return from_json(TokenInfo, one)
