"""`audit`, `history` and `configuration` of a gateway on another machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gateway.cli import audit, configuration, history
from gateway.cli.remote.client import Api
from gateway.control.configuration import Configuration
from gateway.errors import UserError
from gateway.serialize import from_json

if TYPE_CHECKING:
    from admin_api.store.audit import RecordedCall


def list_calls(args: argparse.Namespace, api: Api) -> int:
    """Show the audit log. Raises UserError."""
    if args.names:
        raise UserError("audit --names runs on the gateway only: run it there")
    since, until = (one if one is None else one.isoformat() for one in audit.span(args))
    query = {"who": args.who, "path": args.path, "since": since, "until": until}
    found = [_call(one) for one in api.every("/audit", most=max(0, args.limit), **query)]
    return audit.show(found, args.json)


def _call(one: dict[str, Any]) -> RecordedCall:
    """Return a call with its moment as commands write UTC."""
    # The import is here because every command imports this module.
    from admin_api.store.audit import RecordedCall

    return from_json(RecordedCall, {**one, "at": one["at"].replace("Z", "+00:00")})


def show_history(args: argparse.Namespace, api: Api) -> int:
    """Show the figures of the dashboard."""
    span = history.span_of(args)
    begin, end = span.begin.isoformat(), span.end.isoformat()
    query = {"from": begin, "to": end, "step": span.step_seconds}
    # The import is here because every command imports this module.
    from admin_api.sampling import HistoryTable

    found = from_json(HistoryTable, api.get("/history", **query))
    return history.show(found, args.json)


def show_configuration(args: argparse.Namespace, api: Api) -> int:
    """Show the configuration as the admin API read it when it started."""
    return configuration.show(from_json(Configuration, api.get("/configuration")), args)
