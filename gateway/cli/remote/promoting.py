"""`promote`, `promotions` and `demote` of a gateway on another machine."""

from __future__ import annotations

import argparse
import time
from typing import Any
from urllib.parse import quote

from gateway.cli import promote as promoting
from gateway.cli.progress import Line
from gateway.cli.remote import jobs
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_paths
from gateway.control.promotions import Promotion
from gateway.errors import NotThere
from gateway.serialize import from_json

POLL_SECONDS = 0.5


def promote(args: argparse.Namespace, api: Api) -> int:
    """Promote a checkpoint."""
    path = encoded(args.path)
    if args.wait:
        jobs.follow(api, jobs.begin(api, "/files/wait", {"path": path}), quiet=args.json)
    body = {
        **{"path": path, "name": args.name, "note": args.note},
        **{"tags": args.tags, "to": args.to, "legal_hold": args.legal_hold},
    }
    found = api.call("POST", "/promotions", body).json()
    line = Line(args.json)
    try:
        while args.wait and found["state"] == "copying":
            line.show(promoting.copied_text(found["copied_files"], found["files"], found["reason"]))
            time.sleep(POLL_SECONDS)
            found = api.get(_address(args.name))
    finally:
        line.end()
    return promoting.show(_promotion(found), args.json)


def _promotion(found: dict[str, Any]) -> Promotion:
    return from_json(Promotion, shown_paths(found, "source", "run"))


def promotions(args: argparse.Namespace, api: Api) -> int:
    """List the promotions."""
    return promoting.show_list([_promotion(one) for one in api.every("/promotions")], args.json)


def demote(args: argparse.Namespace, api: Api) -> int:
    """Remove a promotion."""
    found = _promotion(api.get(_address(args.name)))
    if not args.yes:
        return promoting.show_unconfirmed(found, args.json)
    query = {"release_hold": args.release_hold}
    after = api.call("DELETE", _address(args.name), query=query).json()
    line = Line(quiet=args.json)
    try:
        while args.wait and _is_there(api, args.name):
            line.show("removing")
            time.sleep(POLL_SECONDS)
    finally:
        line.end()
    return promoting.show_demoted(_promotion(after), args.wait, args.json)


def _is_there(api: Api, name: str) -> bool:
    try:
        api.get(_address(name))
    except NotThere:
        return False
    return True


def _address(name: str) -> str:
    return f"/promotions/{quote(name, safe='')}"
