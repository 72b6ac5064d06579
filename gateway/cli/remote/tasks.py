"""`jobs` of a gateway on another machine."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from gateway.cli import jobs
from gateway.cli.remote.client import Api
from gateway.errors import UserError
from gateway.serialize import from_json
from gateway.text import shown

if TYPE_CHECKING:
    from admin_api.jobs.rows import Job

ID = re.compile("[0-9a-f]{16}")


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb."""
    if args.verb == "list":
        query = {"state": args.state, "kind": args.kind}
        found = api.every("/jobs", most=max(0, args.limit), **query)
        return jobs.show_list([_job(one) for one in found], args.json)
    if not ID.fullmatch(args.id):
        raise UserError(f"there is no job {shown(args.id)}: spillway jobs list shows what is")
    if args.verb == "show":
        return jobs.show_one(_job(api.get(f"/jobs/{args.id}")), args.json)
    ended = api.call("POST", f"/jobs/{args.id}/cancel").json()
    return jobs.show_cancelled(_job(ended), args.json)


def _job(found: dict[str, Any]) -> Job:
    # The import is here because every command imports this module.
    from admin_api.jobs.rows import Job

    return from_json(Job, found)
