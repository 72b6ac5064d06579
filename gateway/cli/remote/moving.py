"""`evict`, `warm` and `wait` of a gateway on another machine: each is a job of it."""

from __future__ import annotations

import argparse

from gateway import clock
from gateway.cli import evict as evicting
from gateway.cli import result
from gateway.cli import wait as waiting
from gateway.cli import warm as warming
from gateway.cli.look import DONE, NOT_POSSIBLE, refuse
from gateway.cli.remote import jobs
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded
from gateway.control.evicting import Evicted
from gateway.control.warming import Warmed
from gateway.errors import NotPossible
from gateway.serialize import from_json


def evict(args: argparse.Namespace, api: Api) -> int:
    """Free the local disk of files that are in the bucket."""
    job = jobs.begin(api, "/files/evict", {"paths": [encoded(path) for path in args.paths]})
    done = jobs.follow(api, job, quiet=args.json)
    status = max((refuse(NotPossible(one)) for one in done.pop("failures")), default=DONE)
    evicting.show(from_json(Evicted, done), args.json)
    return status


def warm(args: argparse.Namespace, api: Api) -> int:
    """Bring evicted files back to the local disk."""
    job = jobs.begin(api, "/files/warm", {"paths": [encoded(path) for path in args.paths]})
    if not args.wait:
        text = f"asked for: spillway jobs show {job['id']} shows how far it is"
        result.show({"job": job["id"], "waited": False, "error": None}, text, args.json)
        return DONE
    done = jobs.follow(api, job, quiet=args.json)
    failures = done.pop("failures")
    for one in failures[:-1]:
        refuse(NotPossible(one))
    error = failures[-1] if failures else None
    return warming.show(from_json(Warmed, done), error, args, is_fetching=True)


def wait(args: argparse.Namespace, api: Api) -> int:
    """Wait until the bucket alone could restore a file or a tree."""
    waiting.require_said(args)
    began = clock.monotonic_seconds()
    error = None
    job = jobs.begin(api, "/files/wait", {"path": encoded(args.path)})
    try:
        jobs.follow(api, job, quiet=args.json, timeout_seconds=args.timeout)
    except jobs.Late as exc:
        error = waiting.late(args.path, args.timeout, str(exc))
    except NotPossible as exc:
        error = str(exc)
    waited_seconds = clock.monotonic_seconds() - began
    return waiting.show(error, waited_seconds, args.json) and NOT_POSSIBLE
