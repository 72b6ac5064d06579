"""The trash: what was deleted, until when it can be taken back, and its removal for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.principal import Principal
from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.gateway import Gateway, Governed
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent, path_in
from admin_api.problems import Problem
from gateway.control import paths
from gateway.control.trash import facts
from gateway.escapes import text_of
from gateway.namespace import identity
from gateway.trash.trash import Trash

router = APIRouter(prefix="/trash")


@router.get("")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show what is in the trash."""
    return _page(request, gateway, who, "trash.html", _every(gateway))


@router.get("/empty")
def ask_to_empty(request: Request, gateway: Governed, who: Admin) -> HTMLResponse:
    """Ask before everything in the trash is removed."""
    return _page(request, gateway, who, "trash-remove.html", _every(gateway))


@router.post("/empty")
def empty(gateway: Governed, _who: Admin, sent: Sent) -> RedirectResponse:
    """Remove those for good that the page showed which asked. What came later stays."""
    return _remove(gateway, sent)


@router.get("/{trash_id}/remove")
def ask_to_remove(request: Request, gateway: Governed, who: Admin, trash_id: str) -> HTMLResponse:
    """Ask before a checkpoint is removed for good."""
    return _page(request, gateway, who, "trash-remove.html", [_one(gateway, trash_id)])


@router.post("/{trash_id}/remove")
def remove(gateway: Governed, _who: Admin, trash_id: str, sent: Sent) -> RedirectResponse:
    """Remove a checkpoint for good."""
    return _remove(gateway, {**sent, "id.0": trash_id})


@router.get("/{trash_id}/undelete")
def ask_to_undelete(
    request: Request, gateway: Governed, who: Operator, trash_id: str
) -> HTMLResponse:
    """Ask for the path to which a checkpoint is taken back."""
    one = _one(gateway, trash_id)
    return page(request, "trash-undelete.html", who, one=one, here="trash")


@router.post("/{trash_id}/undelete")
def undelete(gateway: Governed, _who: Operator, trash_id: str, sent: Sent) -> RedirectResponse:
    """Take a checkpoint back."""
    export = gateway.settings.nfs.export
    to = sent.get("to", "").strip()
    trash = Trash(gateway.settings, gateway.database)
    trash.reconcile()
    names = paths.names_of(export, path_in(to)) if to else None
    path = trash.undelete(trash_id, names or None)
    text = f"{export}/{text_of(path)} is back. Policies hold for it again: a pin keeps it."
    return after("/trash", "ok", text)


def _page(
    request: Request,
    gateway: Gateway,
    who: Principal,
    template: str,
    found: Sequence[dict[str, Any]],
) -> HTMLResponse:
    return page(
        request,
        template,
        who,
        found=found,
        local_bytes=sum(one["local_bytes"] for one in found),
        bucket_bytes=sum(one["bucket_bytes"] for one in found),
        grace_seconds=gateway.settings.retention.trash_seconds,
        here="trash",
    )


def _remove(gateway: Gateway, sent: Mapping[str, str]) -> RedirectResponse:
    identity.require_surroundings(gateway.settings)
    trash = Trash(gateway.settings, gateway.database)
    trash.reconcile()
    wanted = {value for name, value in sent.items() if name.startswith("id.")}
    found = [entry for entry in trash.entries() if entry.id in wanted]
    for entry in found:
        trash.remove(entry)
    many = "1 checkpoint is" if len(found) == 1 else f"{len(found):,} checkpoints are"
    return after("/trash", "ok", f"{many} removed for good.")


def _one(gateway: Gateway, trash_id: str) -> dict[str, Any]:
    for one in _every(gateway):
        if one["id"] == trash_id:
            return one
    raise Problem(404, f"{trash_id} is not in the trash any more: see the list")


def _every(gateway: Gateway) -> list[dict[str, Any]]:
    return facts(gateway.settings, Trash(gateway.settings, gateway.database), text_of)
