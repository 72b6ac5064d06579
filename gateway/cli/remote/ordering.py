"""`queue`, `pin`, `unpin` and `pins` of a gateway on another machine."""

from __future__ import annotations

import argparse
from itertools import chain, islice

from gateway.cli import pin as pinning
from gateway.cli import queue as queueing
from gateway.cli import result
from gateway.cli.change import each
from gateway.cli.look import DONE
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_paths
from gateway.control import outage
from gateway.control.paths import shown
from gateway.control.pins import Pin
from gateway.control.queue import Said, Waiting
from gateway.serialize import from_json


def queue(args: argparse.Namespace, api: Api) -> int:
    """List the queue, or change it."""
    if args.verb == "list":
        return _list(args, api)
    queueing.require_paths(args)
    with result.Results(args.json) as results:
        for path in args.paths:
            if args.verb == queueing.RETRY:
                answer = api.call("POST", "/queue/retry", {"path": encoded(path)}).json()
                results.add(*queueing.retried(path, answer["had_failed"]))
                continue
            if args.verb == "release":
                api.call("DELETE", "/queue/orders", query={"path": encoded(path)})
            elif args.verb == "cancel":
                api.call("POST", "/queue/cancel", {"path": encoded(path)})
            else:
                api.call("PUT", "/queue/orders", {"path": encoded(path), "order": args.verb})
            results.add(*queueing.ordered(path, args.verb))
    return DONE


def _list(args: argparse.Namespace, api: Api) -> int:
    paths: list[str | None] = [encoded(path) for path in args.paths] or [None]
    everything = chain.from_iterable(api.every("/queue", path=path) for path in paths)
    limit = max(0, args.limit)
    files = [from_json(Waiting, shown_paths(one, "path")) for one in islice(everything, limit)]
    more = sum(1 for _ in everything)
    given = (shown_paths(one, "path") for one in api.get("/queue/orders"))
    orders = [Said(one["path"], one["order"]) for one in given]
    queueing.show(files, more, orders, args.json)
    drain = api.get("/status")["drain"] or {}
    queueing.warn(outage.said(drain) if drain.get("alive") else None, files)
    return DONE


def pin(args: argparse.Namespace, api: Api) -> int:
    """Pin files and directories."""

    def one(path: str) -> None:
        made = api.call("POST", "/pins", {"path": encoded(path), "note": args.note}).json()
        found = api.get("/files", path=encoded(path))
        text = pinning.pinned(shown(path), found.get("bytes") in ("absent", "partial"))
        results.add(from_json(Pin, shown_paths(made, "path")), text)

    with result.Results(args.json) as results:
        return each(args.paths, one)


def unpin(args: argparse.Namespace, api: Api) -> int:
    """End pins."""

    def one(path: str) -> None:
        found = api.get("/files", path=encoded(path))
        api.call("DELETE", f"/pins/{found['ino']}")
        results.add(*pinning.unpinned(shown(path), found["ino"]))

    with result.Results(args.json) as results:
        return each(args.paths, one)


def list_pins(args: argparse.Namespace, api: Api) -> int:
    """List the pins."""
    found = [from_json(Pin, shown_paths(one, "path")) for one in api.every("/pins")]
    return pinning.show(found, args.json)
