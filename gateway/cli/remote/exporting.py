"""`export` of a gateway on another machine."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from gateway.cli import export
from gateway.cli.remote.client import Api
from gateway.cli.remote.paths import encoded, shown_paths
from gateway.control.exports import Export, ExportValidity
from gateway.errors import ExportRefused, NotPossible, NotThere
from gateway.exports.export import require_clients, require_name
from gateway.serialize import from_json
from gateway.text import shown


def run(args: argparse.Namespace, api: Api) -> int:
    """Run one verb."""
    return VERBS[args.verb](args, api)


def _list(args: argparse.Namespace, api: Api) -> int:
    found = [_export(one) for one in api.every("/exports")]
    nfs = api.get("/configuration")["sections"]["nfs"]
    return export.show_list(found, nfs["export"]["value"], nfs["clients"]["value"], args.json)


def _show(args: argparse.Namespace, api: Api) -> int:
    return export.show_one(_export(api.get(_address(args.name))), args.json)


def _set(args: argparse.Namespace, api: Api) -> int:
    try:
        answer = api.call("GET", _address(args.name))
    except NotThere:
        answer = None
    before: dict[str, Any] | None = None if answer is None else answer.json()
    _require_version(args, before)
    body = _rights(args, api, before)
    if answer is None:
        made = api.call("POST", "/exports", {**body, "name": args.name})
    else:
        match = {"If-Match": answer.headers["ETag"]}
        made = api.call("PUT", _address(args.name), body, headers=match)
    return export.show_made(_export(made.json()), args.json)


def _validate(args: argparse.Namespace, api: Api) -> int:
    try:
        # The API refuses the form of these before it looks at the export.
        require_name(args.name, ())
        body = {**_rights(args, api, _before(args, api)), "name": args.name}
        require_clients(body["clients"], body["squash"])
    except ExportRefused as exc:
        return export.show_validity(ExportValidity(valid=False, error=str(exc)), args)
    found = api.call("POST", "/exports/validate", body).json()
    return export.show_validity(from_json(ExportValidity, found), args)


def _export(found: dict[str, Any]) -> Export:
    return from_json(Export, shown_paths(found, "path"))


def _before(args: argparse.Namespace, api: Api) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = api.get(_address(args.name))
    except NotThere:
        return None
    return found


def _rights(args: argparse.Namespace, api: Api, before: dict[str, Any] | None) -> dict[str, Any]:
    """Return what an export is to be: what is not given stays. Raises UserError."""
    if args.path is not None:
        path = encoded(args.path)
    elif before is None:
        path = encoded(api.export)
    elif before["path"] is not None:
        path = before["path"]
    else:
        raise export.gone(args.name)
    return {
        "path": path,
        "clients": args.client or (before or {}).get("clients", []),
        "squash": args.squash or (before or {}).get("squash", "none"),
    }


def _remove(args: argparse.Namespace, api: Api) -> int:
    answer = api.call("GET", _address(args.name))
    _require_version(args, answer.json())
    api.call("DELETE", _address(args.name), headers={"If-Match": answer.headers["ETag"]})
    return export.show_removed(args.name, args.json)


def _reload(args: argparse.Namespace, api: Api) -> int:
    left_out = api.call("POST", "/exports/reload").json()["left_out"]
    return export.show_reloaded(left_out, args.json)


def _require_version(args: argparse.Namespace, before: dict[str, Any] | None) -> None:
    version = 0 if before is None else before["version"]
    if args.version not in (None, version):
        raise NotPossible(
            f"{shown(args.name)} has version {version}, not {args.version}: spillway export show"
        )


def _address(name: str) -> str:
    return f"/exports/{quote(name.strip('/'))}"


VERBS = {
    "list": _list,
    "show": _show,
    "set": _set,
    "validate": _validate,
    "remove": _remove,
    "reload": _reload,
}
