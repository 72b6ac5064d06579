"""`audit`, `history` and `configuration` of a gateway on another machine."""

from __future__ import annotations

import argparse
from typing import Any

from gateway.cli import audit, configuration, history
from gateway.cli.remote.client import Api
from gateway.errors import UserError


def list_calls(args: argparse.Namespace, api: Api) -> int:
    """Show the audit log. Raises UserError."""
    if args.names:
        raise UserError("audit --names runs on the gateway only: run it there")
    since, until = (one if one is None else one.isoformat() for one in audit.span(args))
    query = {"who": args.who, "path": args.path, "since": since, "until": until}
    found = [_call(one) for one in api.every("/audit", most=max(0, args.limit), **query)]
    return audit.show(found, args.json)


def _call(one: dict[str, Any]) -> dict[str, Any]:
    """Return a call with its moment as commands write UTC."""
    return {**one, "at": one["at"].replace("Z", "+00:00")}


def show_history(args: argparse.Namespace, api: Api) -> int:
    """Show the figures of the dashboard."""
    span = history.span_of(args)
    begin, end = span.begin.isoformat(), span.end.isoformat()
    query = {"from": begin, "to": end, "step": span.step_seconds}
    return history.show(api.get("/history", **query), args.json)


def show_configuration(args: argparse.Namespace, api: Api) -> int:
    """Show the configuration as the admin API read it when it started."""
    return configuration.show(api.get("/configuration"), args)
