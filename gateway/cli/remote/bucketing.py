"""`bucket` of a gateway on another machine: that gateway asks the bucket."""

from __future__ import annotations

import argparse

from gateway.cli import bucket
from gateway.cli.remote.client import Api
from gateway.errors import UserError


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb. Raises UserError."""
    if bucket.is_test(args):
        if args.adopt:
            raise UserError("test --adopt is for the machine of the gateway: run it there")
        return bucket.show_probe(api.call("POST", "/bucket/test").json(), args.json)
    facts = api.call("POST", "/bucket/setup", {"apply": args.apply, "adopt": args.adopt}).json()
    is_well = facts.pop("is_well")
    return bucket.show_set_up(facts, is_well, args)
