"""`jobs` of a gateway on another machine."""

from __future__ import annotations

import argparse
import re

from gateway.cli import jobs
from gateway.cli.remote.client import Api
from gateway.errors import UserError
from gateway.text import shown

ID = re.compile("[0-9a-f]{16}")


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb."""
    if args.verb == "list":
        query = {"state": args.state, "kind": args.kind}
        found = api.every("/jobs", most=max(0, args.limit), **query)
        return jobs.show_list(list(found), args.json)
    if not ID.fullmatch(args.id):
        raise UserError(f"there is no job {shown(args.id)}: spillway jobs list shows what is")
    if args.verb == "show":
        return jobs.show_one(api.get(f"/jobs/{args.id}"), args.json)
    return jobs.show_cancelled(api.call("POST", f"/jobs/{args.id}/cancel").json(), args.json)
