"""`checkpoint` and `delete` of a gateway on another machine."""

from __future__ import annotations

import argparse

import httpx

from gateway.cli import checkpoint
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_path, shown_paths
from gateway.control.checkpoints import OneCheckpoint
from gateway.control.paths import shown
from gateway.errors import NotThere
from gateway.serialize import from_json


def show(args: argparse.Namespace, api: Api) -> int:
    """Show what is known of checkpoints."""

    def found(path: str) -> OneCheckpoint:
        return from_json(OneCheckpoint, shown_paths(_found(api, path).json(), "path", "run"))

    return checkpoint.show_found(found, args)


def delete(args: argparse.Namespace, api: Api) -> int:
    """Put checkpoints into the trash."""

    def act(path: str) -> dict[str, str]:
        seen = _found(api, path)
        query = {"force": args.force, "reason": args.reason}
        match = {"If-Match": seen.headers["ETag"]}
        address = f"/checkpoints/{seen.json()['ino']}"
        made = api.call("DELETE", address, query=query, headers=match).json()
        return {"id": made["id"], "path": shown_path(made["path"])}

    return checkpoint.delete_each(args, act)


def _found(api: Api, path: str) -> httpx.Response:
    """Return the answer about the checkpoint with a path. Raises NotPossible."""
    ino = api.get("/files", path=encoded(path))["ino"]
    try:
        return api.call("GET", f"/checkpoints/{ino}")
    except NotThere:
        raise checkpoint.none_of(shown(path)) from None
