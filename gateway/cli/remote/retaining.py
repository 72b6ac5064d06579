"""`policy` of a gateway on another machine."""

from __future__ import annotations

import argparse
from typing import Any

import httpx

from gateway.cli import policy
from gateway.cli.checkpoints import run_of
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_paths
from gateway.control.policies import PolicyValidity, StoredVersion, Version, validity
from gateway.control.retention import Action, Approval, Clock, Plan
from gateway.errors import NotThere, UserError
from gateway.serialize import from_json

PLANNED_MAX = 10_000
"""Checkpoints of one plan, which the API shows at most."""


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb."""
    return VERBS[args.verb](args, api)


def _list(args: argparse.Namespace, api: Api) -> int:
    return policy.show_list([from_json(Version, one) for one in api.every("/policies")], args.json)


def _show(args: argparse.Namespace, api: Api) -> int:
    versions = _versions(api, _name(args))
    found = [one for one in versions if args.version in (None, one.version)]
    if not found:
        raise NotThere(f"policy {args.name} has no version {args.version}: spillway policy history")
    return policy.show_one(found[-1], args.json)


def _history(args: argparse.Namespace, api: Api) -> int:
    names = [one["name"] for one in api.every("/policies", removed=True)]
    return policy.show_list([one for name in names for one in _versions(api, name)], args.json)


def _versions(api: Api, name: str) -> list[Version]:
    return [from_json(Version, one) for one in api.every(f"/policies/{name}/versions")]


def _set(args: argparse.Namespace, api: Api) -> int:
    stored = [_store(api, one.name, dict(one.document)) for one in policy.read(args.file)]
    return policy.show_stored(stored, args.json)


def _store(api: Api, name: str, document: dict[str, Any]) -> StoredVersion:
    """Store a policy. Returns it as it is now."""
    try:
        before = api.call("GET", f"/policies/{name}")
    except NotThere:
        made = api.call("POST", "/policies", document).json()
        return from_json(StoredVersion, {**made, "changed": True})
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


def _compared(before: httpx.Response, after: httpx.Response) -> StoredVersion:
    now = after.json()
    return from_json(StoredVersion, {**now, "changed": now["version"] != before.json()["version"]})


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
    return policy.show_plan(from_json(Plan, facts), args.json)


def _approve(args: argparse.Namespace, api: Api) -> int:
    made = api.call("POST", "/retention/approvals", {"plan": args.plan}).json()
    return policy.show_approval(from_json(Approval, made), args.json)


def _log(args: argparse.Namespace, api: Api) -> int:
    run_name = run_of(api.export, args.run_name)
    run = None if run_name is None else encoded(run_name)
    found = api.every("/retention/log", most=max(0, args.limit), run=run)
    actions = [from_json(Action, shown_paths(one, "path", "run")) for one in found]
    return policy.show_log(actions, args.json)


def _clock(args: argparse.Namespace, api: Api) -> int:
    if args.confirm:
        api.call("POST", "/retention/clock/confirm")
    return policy.show_clock(from_json(Clock, api.get("/retention/clock")), args.json)


def _approvals(args: argparse.Namespace, api: Api) -> int:
    found = [from_json(Approval, one) for one in api.get("/retention/approvals")]
    return policy.show_approvals(found, args.json)


def _validate(args: argparse.Namespace, api: Api) -> int:
    document = policy.document_of(args.file)
    found = validity(document)
    if found.valid:
        # The gateway may have another version of Spillway. Only what is valid is sure to be JSON.
        told = api.call("POST", "/retention/validate", document).json()
        found = from_json(PolicyValidity, told)
    return policy.show_validity(found, args)


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
