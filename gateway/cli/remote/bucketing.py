"""`bucket` of a gateway on another machine: that gateway asks the bucket."""

from __future__ import annotations

import argparse

from gateway.cli import bucket
from gateway.cli.remote.client import Api
from gateway.control.bucket import Reachability, SetUp
from gateway.errors import UserError
from gateway.serialize import from_json


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb. Raises UserError."""
    if bucket.is_test(args):
        if args.adopt:
            raise UserError("test --adopt is for the machine of the gateway: run it there")
        found = api.call("POST", "/bucket/test").json()
        return bucket.show_probe(from_json(Reachability, found), args.json)
    made = api.call("POST", "/bucket/setup", {"apply": args.apply, "adopt": args.adopt}).json()
    return bucket.show_set_up(from_json(SetUp, made), args)
