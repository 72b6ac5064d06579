"""`policy` of a gateway on another machine."""

from __future__ import annotations

import argparse
from typing import Any

import httpx

from gateway.cli import policy
from gateway.cli.checkpoints import run_of
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_paths
from gateway.errors import NotThere, UserError

PLANNED_MAX = 10_000
"""Checkpoints of one plan, which the API shows at most."""


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb."""
    return VERBS[args.verb](args, api)


def _list(args: argparse.Namespace, api: Api) -> int:
    return policy.show_list(list(api.every("/policies")), args.json)


def _show(args: argparse.Namespace, api: Api) -> int:
    found = [
        one
        for one in api.every(f"/policies/{_name(args)}/versions")
        if args.version in (None, one["version"])
    ]
    if not found:
        raise NotThere(f"policy {args.name} has no version {args.version}: spillway policy history")
    return policy.show_one(found[-1], args.json)


def _history(args: argparse.Namespace, api: Api) -> int:
    names = [one["name"] for one in api.every("/policies", removed=True)]
    found = [one for name in names for one in api.every(f"/policies/{name}/versions")]
    return policy.show_list(found, args.json)


def _set(args: argparse.Namespace, api: Api) -> int:
    stored = [_store(api, one.name, dict(one.document)) for one in policy.read(args.file)]
    return policy.show_stored(stored, args.json)


def _store(api: Api, name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Store a policy. Returns it as it is now, and whether it was changed."""
    try:
        before = api.call("GET", f"/policies/{name}")
    except NotThere:
        return {**api.call("POST", "/policies", document).json(), "changed": True}
    match = {"If-Match": before.headers["ETag"]}
    after = api.call("PUT", f"/policies/{name}", document, headers=match)
    return _compared(before, after)


def _remove(args: argparse.Namespace, api: Api) -> int:
    return _changed(args, api, "DELETE", "")


def _enable(args: argparse.Namespace, api: Api) -> int:
    return _changed(args, api, "POST", "/enable")


def _disable(args: argparse.Namespace, api: Api) -> int:
    return _changed(args, api, "POST", "/disable")


def _changed(args: argparse.Namespace, api: Api, method: str, verb: str) -> int:
    path = f"/policies/{_name(args)}"
    before = api.call("GET", path)
    match = {"If-Match": before.headers["ETag"]}
    after = api.call(method, f"{path}{verb}", headers=match)
    return policy.show_changed(_compared(before, after), args.json)


def _compared(before: httpx.Response, after: httpx.Response) -> dict[str, Any]:
    now: dict[str, Any] = after.json()
    return {**now, "changed": now["version"] != before.json()["version"]}


def _plan(args: argparse.Namespace, api: Api) -> int:
    run_name = run_of(api.export, args.run_name)
    run = None if run_name is None else encoded(run_name)
    query = {"limit": PLANNED_MAX, "run": run, "fate": args.fate}
    if args.policy is None:
        facts = api.get("/retention/plan", **query)
    else:
        documents = {"policies": [dict(one.document) for one in policy.read(args.policy)]}
        facts = api.call("POST", "/retention/plan", documents, query=query).json()
    for one in facts["checkpoints"]:
        shown_paths(one, "path", "run")
    return policy.show_plan(facts, args.json)


def _approve(args: argparse.Namespace, api: Api) -> int:
    made = api.call("POST", "/retention/approvals", {"plan": args.plan}).json()
    return policy.show_approval(made, args.json)


def _log(args: argparse.Namespace, api: Api) -> int:
    run_name = run_of(api.export, args.run_name)
    run = None if run_name is None else encoded(run_name)
    found = api.every("/retention/log", most=max(0, args.limit), run=run)
    return policy.show_log([shown_paths(one, "path", "run") for one in found], args.json)


def _clock(args: argparse.Namespace, api: Api) -> int:
    if args.confirm:
        api.call("POST", "/retention/clock/confirm")
    return policy.show_clock(api.get("/retention/clock"), args.json)


def _approvals(args: argparse.Namespace, api: Api) -> int:
    return policy.show_approvals(api.get("/retention/approvals"), args.json)


def _validate(args: argparse.Namespace, api: Api) -> int:
    document = policy.document_of(args.file)
    facts = policy.validity(document)
    if facts["valid"]:
        # The gateway may have another version of Spillway. Only what is valid is sure to be JSON.
        facts = api.call("POST", "/retention/validate", document).json()
    return policy.show_validity(facts, args)


def _name(args: argparse.Namespace) -> str:
    """Return the name of a policy as part of an address. Raises UserError."""
    name: str = args.name
    if not (name.isascii() and name.replace("-", "").isalnum()):
        raise UserError(f"{name!r} is no name of a policy: spillway policy list")
    return name


VERBS = {
    "list": _list,
    "show": _show,
    "history": _history,
    "set": _set,
    "remove": _remove,
    "enable": _enable,
    "disable": _disable,
    "plan": _plan,
    "approve": _approve,
    "log": _log,
    "clock": _clock,
    "approvals": _approvals,
    "validate": _validate,
}
