"""`mkdir`, `chown`, `chmod`, `mv` and `rm` of a gateway on another machine. A rename there replaces
nothing."""

from __future__ import annotations

import argparse
from typing import Any

from gateway.cli import change, result
from gateway.cli.look import DONE
from gateway.cli.remote import jobs
from gateway.cli.remote.client import Api
from gateway.cli.remote.looking import info_at
from gateway.cli.remote.paths import encoded
from gateway.control.paths import shown
from gateway.errors import NotThere, UserError


def mkdir(args: argparse.Namespace, api: Api) -> int:
    """Make directories."""

    def make(path: str) -> None:
        wanted = _wanted(args.mode, args.owner)
        body = {"path": encoded(path), "parents": args.parents, **wanted}
        results.add(info_at(path, api.call("POST", "/directories", body).json()))

    with result.Results(args.json) as results:
        return change.each(args.paths, make)


def chown(args: argparse.Namespace, api: Api) -> int:
    """Give files and directories to a user or group."""
    return _set(args, api, _wanted(None, args.owner))


def chmod(args: argparse.Namespace, api: Api) -> int:
    """Set the permissions of files and directories."""
    return _set(args, api, _wanted(args.mode, change.Owner(None, None)))


def _set(args: argparse.Namespace, api: Api, wanted: dict[str, Any]) -> int:
    def alter(path: str) -> None:
        body = {"path": encoded(path), **wanted}
        results.add(info_at(path, api.call("POST", "/files/attributes", body).json()))

    with result.Results(args.json) as results:
        return change.each(args.paths, alter)


def _wanted(mode: int | None, owner: change.Owner) -> dict[str, Any]:
    """Return what a body says of mode and owner: only what is to be set."""
    given = {"mode": None if mode is None else f"{mode:04o}", **owner._asdict()}
    return {name: value for name, value in given.items() if value is not None}


def mv(args: argparse.Namespace, api: Api) -> int:
    """Rename, or move into a directory."""
    change.require_different(args.sources)
    is_directory = _is_directory(api, args.target)
    if len(args.sources) > 1 and not is_directory:
        raise UserError(f"{shown(args.target)} is not a directory: make it: spillway mkdir")

    def move(path: str) -> None:
        name = path.rstrip("/").rpartition("/")[2]
        to = f"{args.target.rstrip('/')}/{name}" if is_directory else args.target
        body = {"path": encoded(path), "to": encoded(to), "force": args.force}
        answer = api.call("POST", "/files/rename", body)
        results.add(change.moved(path, info_at(to, answer.json())))

    with result.Results(args.json) as results:
        return change.each(args.sources, move)


def _is_directory(api: Api, path: str) -> bool:
    try:
        return bool(api.get("/files", path=encoded(path))["kind"] == "directory")
    except NotThere:
        return False


def rm(args: argparse.Namespace, api: Api) -> int:
    """Remove files or trees."""
    left: list[int] = []

    def remove(path: str) -> None:
        try:
            found = api.get("/files", path=encoded(path))
        except NotThere:
            if args.is_calm:
                results.add(change.removed(path, 0))
                return
            raise
        query = {"path": encoded(path), "ino": found["ino"]}
        if found["kind"] != "directory":
            api.call("DELETE", "/files", query=query)
            results.add(change.removed(path, 1))
            return
        if not args.recursive:
            raise change.is_a_directory(path)
        forced = {**query, "force": args.force}
        job = api.call("DELETE", "/directories", query=forced).json()
        done = jobs.follow(api, job, quiet=args.json)
        told = done["removed_names"], done["failures"], done["trashed"]
        left.append(change.show_removal(results, path, *told))

    with result.Results(args.json) as results:
        return max([change.each(args.paths, remove), *left], default=DONE)
