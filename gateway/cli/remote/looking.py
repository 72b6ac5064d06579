"""`status`, `statistics`, `checkpoints`, `ls` and `stat` of a gateway on another machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from gateway.cli import checkpoints, clients, look, statistics, status
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_path, shown_paths
from gateway.control.checkpoints import Checkpoint
from gateway.control.clients import Clients, Opens
from gateway.control.files import FileInfo
from gateway.control.paths import PathInfo, shown
from gateway.control.runs import Run
from gateway.control.status import WholeStatus
from gateway.control.trash import Expired
from gateway.door.statistics import Histogram, Operations, Statistics
from gateway.errors import UserError
from gateway.escapes import bytes_of
from gateway.serialize import from_json

COUNTED_TRIES = 5
COUNTED_SECONDS = 0.5
"""The admin API counts files after it was asked for the first time."""


def show_status(args: argparse.Namespace, api: Api) -> int:
    """Show the state of the gateway."""
    facts = api.get("/status")
    for _ in range(COUNTED_TRIES):
        if facts["cache"]["resident"] is not None:
            break
        time.sleep(COUNTED_SECONDS)
        facts = api.get("/status")
    facts["bucket"] = api.get("/bucket")
    facts["healthy"] = facts["healthy"] and facts["bucket"]["reachable"]
    return status.show(from_json(WholeStatus, facts), args.json, is_here=False)


def show_statistics(args: argparse.Namespace, api: Api) -> int:
    """Show what the NFS server was asked."""
    found = api.get("/statistics")
    operations = {
        kind: Operations(**{**one, "latency": Histogram(**one["latency"])})
        for kind, one in found["operations"].items()
    }
    return statistics.show(
        Statistics(
            started_ns=found["started_ns"],
            operations=operations,
            commit_sizes=Histogram(**found["commit_sizes"]),
            commit_seconds=Histogram(**found["commit_seconds"]),
        ),
        args.json,
    )


def show_clients(args: argparse.Namespace, api: Api) -> int:
    """Show the clients, or who has a file open."""
    if args.open is None:
        return clients.show(from_json(Clients, api.get("/clients")), args.json)
    found = api.get("/clients", open=encoded(args.open))["open"]
    for one in found["opens"]:
        shown_paths(one, "path")
    return clients.show_opens(from_json(Opens, found), args.json)


def list_checkpoints(args: argparse.Namespace, api: Api) -> int:
    """List runs and checkpoints."""
    if args.unrecognised:
        raise UserError("checkpoints --unrecognised runs on the gateway only: run it there")
    run = checkpoints.run_of(api.export, args.run_name)
    wanted = None if run is None else encoded(run)
    query = {
        "run": wanted,
        "state": args.state,
        "rule": args.rule,
        "text": encoded(args.text) if args.text else None,
        "sort": f"-{args.sort}" if args.reverse else args.sort,
    }
    expired = [from_json(Expired, shown_paths(one, "path", "run")) for one in api.every("/trash")]
    is_made = api.get("/status")["catalogue"]["is_made"]
    every_run = [_run(one) for one in api.every("/runs", run=wanted)]
    listed = [
        from_json(Checkpoint, shown_paths(one, "path", "run"))
        for one in api.every("/checkpoints", checkpoints.limit_of(args), **query)
    ]
    return checkpoints.show(is_made, every_run, listed, expired, api.export, args)


def _run(one: dict[str, Any]) -> Run:
    for name in ("newest_complete", "newest_durable"):
        if one[name] is not None:
            shown_paths(one[name], "name")
    return from_json(Run, shown_paths(one, "run"))


def ls(args: argparse.Namespace, api: Api) -> int:
    """List paths."""

    def listed(path: str) -> look.Listed:
        entry = _entry(api, path)
        if entry.kind != "directory":
            return look.Listed(entry.path, False, iter([look.Named(b"", entry.path, entry)]))
        return look.Listed(entry.path, True, _children(api, path, args.long or args.json))

    return look.show_listed(listed, args)


def _children(api: Api, path: str, detailed: bool) -> Iterator[look.Named]:
    for one in api.every("/directories", path=encoded(path), details=detailed):
        name = shown_path(one["name"])
        info = _info(f"{shown(path).rstrip('/')}/{name}", one) if detailed else None
        yield look.Named(bytes_of(one["name"]), name, info)


def stat(args: argparse.Namespace, api: Api) -> int:
    """Show what is known of paths."""

    def found(path: str) -> FileInfo:
        one = api.get("/files", path=encoded(path))
        if one["waiting"] is not None:
            shown_paths(one["waiting"], "path")
        return from_json(FileInfo, {**shown_paths(one, "target"), "path": shown(path)})

    return look.show_found(found, args)


def _entry(api: Api, path: str) -> PathInfo:
    return info_at(path, api.get("/files", path=encoded(path)))


def info_at(path: str, one: dict[str, Any]) -> PathInfo:
    """Return what a path is. Parameters: one, the answer of the API."""
    # The path is shown as it was written, like that of a gateway of this machine.
    return _info(shown(path), one)


def _info(path: str, one: dict[str, Any]) -> PathInfo:
    return from_json(PathInfo, {**shown_paths(one, "target"), "path": path})
