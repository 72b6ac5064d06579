"""`trash` and `undelete` of a gateway on another machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from gateway.cli import result, trash
from gateway.cli.look import DONE
from gateway.cli.remote import jobs
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_path, shown_paths
from gateway.control.paths import names_of
from gateway.control.trash import Trashed
from gateway.errors import NotPossible, NotThere
from gateway.escapes import bytes_of
from gateway.serialize import from_json
from gateway.text import printable


def run(args: argparse.Namespace, api: Api) -> int:
    """List or empty the trash, or let something go."""
    if args.verb == "list":
        shown = (shown_paths(one, "path", "run") for one in api.every("/trash"))
        return trash.show([from_json(Trashed, one) for one in shown], args.json)
    if args.verb == "release":
        return _let_go(api, args.ids, args.json)
    trash.require_named(args)
    found = [one for one in api.every("/trash") if not (args.all and one["held"])]
    chosen = trash.confirmed({one["id"]: one["size_bytes"] for one in found}, args)
    status = DONE
    with result.Results(args.json) as results:
        for one in chosen:
            job = api.call("DELETE", f"/trash/{one}").json()
            failures = jobs.follow(api, job, quiet=args.json)["failures"]
            status = max(status, trash.show_removed(results, one, failures))
    return status


def undelete(args: argparse.Namespace, api: Api) -> int:
    """Take a checkpoint back."""
    places = [(one["id"], _below(api, one)) for one in api.every("/trash")]
    one = trash.chosen(places, api.export, args.what)
    to = None if args.to is None else encoded(args.to)
    answer = api.call("POST", f"/trash/{one}/undelete", {"to": to}).json()
    return trash.show_back(one, shown_path(answer["path"]), args.json)


def release(args: argparse.Namespace, api: Api) -> int:
    """Let the checkpoints go that were removed at or below a path."""
    path = b"/".join(names_of(api.export, args.path))
    below = path + b"/" if path else b""
    held = [(one["id"], _below(api, one)) for one in api.every("/trash") if one["held"]]
    ids = [id for id, at in held if at == path or at.startswith(below)]
    if not ids:
        raise NotThere(f"{printable(path)}: nothing there is held: see spillway trash list")
    return _let_go(api, ids, args.json)


def _let_go(api: Api, ids: Sequence[str], as_json: bool) -> int:
    status = DONE
    with result.Results(as_json) as results:
        for one in dict.fromkeys(ids):
            failures = []
            try:
                api.call("POST", f"/trash/{one}/release")
            except NotPossible as exc:
                failures = [str(exc)]
            status = max(status, trash.show_released(results, one, failures))
    return status


def _below(api: Api, one: dict[str, Any]) -> bytes:
    """Return the path that something in the trash had, below the export."""
    return b"/".join(names_of(api.export, os.fsdecode(bytes_of(one["path"]))))
