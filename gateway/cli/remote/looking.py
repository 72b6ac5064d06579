"""`status`, `statistics`, `checkpoints`, `ls` and `stat` of a gateway on another machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from gateway.cli import checkpoints, clients, look, statistics, status
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_path, shown_paths
from gateway.control.paths import shown
from gateway.door.statistics import Histogram, Operations, Statistics
from gateway.errors import UserError
from gateway.escapes import bytes_of

COUNTED_TRIES = 5
COUNTED_SECONDS = 0.5
"""The admin API counts files after it was asked for the first time."""
FACTS = (
    *("path", "kind", "ino", "size_bytes", "used_bytes", "mode", "uid", "gid", "names"),
    *("modified", "changed", "made", "open_for_writing", "pinned", "bytes", "target"),
)
"""What ``gateway.control.paths.facts`` says of a path, in its order."""
MORE = ("waiting", "is_moving", "object", "history")
"""What ``gateway.control.files`` says beside that."""


def show_status(args: argparse.Namespace, api: Api) -> int:
    """Show the state of the gateway."""
    facts = api.get("/status")
    for _ in range(COUNTED_TRIES):
        if facts["cache"]["resident"] is not None:
            break
        time.sleep(COUNTED_SECONDS)
        facts = api.get("/status")
    bucket = api.get("/bucket")
    checksum = bucket.pop("checksum")
    bucket["checksum"] = {"kind": checksum["kind"], "from": checksum["said_by"]}
    facts["bucket"] |= bucket
    for process in facts["processes"].values():
        if process["running_seconds"] is None:
            del process["running_seconds"]
    facts["healthy"] = facts["healthy"] and facts["bucket"]["reachable"]
    return status.show(facts, args.json)


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
        facts = api.get("/clients")
        del facts["open"]
        return clients.show(facts, args.json)
    found = api.get("/clients", open=encoded(args.open))["open"]
    for one in found["opens"]:
        shown_paths(one, "path")
    return clients.show_opens(found, args.json)


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
    expired = [shown_paths(one, "path", "run") for one in api.every("/trash")]
    facts = {
        "is_made": api.get("/status")["catalogue"]["is_made"],
        "runs": [_run(one) for one in api.every("/runs", run=wanted)],
        "checkpoints": [
            shown_paths(one, "path", "run")
            for one in api.every("/checkpoints", checkpoints.limit_of(args), **query)
        ],
    }
    return checkpoints.show(facts, expired, api.export, args)


def _run(one: dict[str, Any]) -> dict[str, Any]:
    for name in ("newest_complete", "newest_durable"):
        if one[name] is not None:
            shown_paths(one[name], "name")
    return shown_paths(one, "run")


def ls(args: argparse.Namespace, api: Api) -> int:
    """List paths."""

    def listed(path: str) -> look.Listed:
        entry = _entry(api, path)
        text = entry["path"]
        if entry["kind"] != "directory":
            return look.Listed(text, False, iter([look.Named(b"", text, entry)]))
        return look.Listed(text, True, _children(api, path, args.long or args.json))

    return look.show_listed(listed, args)


def _children(api: Api, path: str, detailed: bool) -> Iterator[look.Named]:
    for one in api.every("/directories", path=encoded(path), details=detailed):
        name = shown_path(one["name"])
        at = {"path": f"{shown(path).rstrip('/')}/{name}"}
        yield look.Named(bytes_of(one["name"]), name, {**_facts(one), **at} if detailed else {})


def stat(args: argparse.Namespace, api: Api) -> int:
    """Show what is known of paths."""

    def found(path: str) -> dict[str, Any]:
        one = api.get("/files", path=encoded(path))
        if one["waiting"] is not None:
            shown_paths(one["waiting"], "path")
        more = {name: one[name] for name in MORE}
        return {**facts_at(path, one), **more}

    return look.show_found(found, args)


def _entry(api: Api, path: str) -> dict[str, Any]:
    return facts_at(path, api.get("/files", path=encoded(path)))


def facts_at(path: str, one: dict[str, Any]) -> dict[str, Any]:
    """Return what ``spillway stat`` says of a path. Parameters: one, the answer of the API."""
    # The path is shown as it was written, like that of a gateway of this machine.
    return {**_facts(one), "path": shown(path)}


def _facts(one: dict[str, Any]) -> dict[str, Any]:
    found = {name: one[name] for name in FACTS if one.get(name) is not None}
    return shown_paths(found, "path", "target")
