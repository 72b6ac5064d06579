"""The trash: what was deleted, until when it can be taken back, and its removal for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.principal import Principal
from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.calls import Call, Recorded
from admin_api.gateway import Gateway, Governed
from admin_api.jobs import trash as jobs
from admin_api.jobs.runner import Runner, Working
from admin_api.pages.flash import after, begun
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent, number_in, path_in
from gateway.control import trash
from gateway.control.trash import LocalTrashBin, Trashed
from gateway.trash.trash import Trash

router = APIRouter(prefix="/trash")


@router.get("")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show what is in the trash."""
    return _page(request, gateway, who, "trash.html", _every(gateway))


@router.get("/empty")
def ask_to_empty(request: Request, gateway: Governed, who: Admin) -> HTMLResponse:
    """Ask before everything in the trash is removed."""
    found = [one for one in _every(gateway) if not one.held]
    return _page(request, gateway, who, "trash-remove.html", found)


@router.post("/empty")
def empty(
    gateway: Governed, call: Recorded, runner: Working, who: Admin, sent: Sent
) -> RedirectResponse:
    """Begin to remove what was in the trash when the page that asked was made."""
    return _remove(gateway, call, runner, who, sent, None)


@router.get("/{trash_id}/remove")
def ask_to_remove(request: Request, gateway: Governed, who: Admin, trash_id: str) -> HTMLResponse:
    """Ask before a checkpoint is removed for good."""
    return _page(request, gateway, who, "trash-remove.html", [_one(gateway, trash_id)])


@router.post("/{trash_id}/remove")
def remove(
    gateway: Governed, call: Recorded, runner: Working, who: Admin, trash_id: str, sent: Sent
) -> RedirectResponse:
    """Begin to remove a checkpoint for good."""
    call.before = _one(gateway, trash_id)
    return _remove(gateway, call, runner, who, sent, [trash_id])


@router.get("/{trash_id}/release")
def ask_to_release(request: Request, gateway: Governed, who: Admin, trash_id: str) -> HTMLResponse:
    """Ask before a checkpoint leaves the bucket without a newer one."""
    return page(request, "trash-release.html", who, one=_one(gateway, trash_id), here="trash")


@router.post("/{trash_id}/release")
def release(gateway: Governed, call: Recorded, who: Admin, trash_id: str) -> RedirectResponse:
    """Let a checkpoint leave the bucket without a newer one."""
    call.before = one = _one(gateway, trash_id)
    call.after = LocalTrashBin(gateway.settings, gateway.database, who.name).release(trash_id)
    return after("/trash", "ok", f"{one.path} leaves the bucket within some minutes.")


@router.get("/{trash_id}/undelete")
def ask_to_undelete(
    request: Request, gateway: Governed, who: Operator, trash_id: str
) -> HTMLResponse:
    """Ask for the path to which a checkpoint is taken back."""
    one = _one(gateway, trash_id)
    return page(request, "trash-undelete.html", who, one=one, here="trash")


@router.post("/{trash_id}/undelete")
def undelete(
    gateway: Governed, call: Recorded, who: Operator, trash_id: str, sent: Sent
) -> RedirectResponse:
    """Take a checkpoint back."""
    call.before = _one(gateway, trash_id)
    to = path_in(sent.get("to", "").strip()) or None
    made = trash.undelete(gateway.settings, _trash(gateway), trash_id, to, by=who.name)
    call.after = made
    return after(
        "/trash", "ok", f"{made.path} is back. Policies hold for it again: a pin keeps it."
    )


def _page(
    request: Request,
    gateway: Gateway,
    who: Principal,
    template: str,
    found: Sequence[Trashed],
) -> HTMLResponse:
    return page(
        request,
        template,
        who,
        found=found,
        local_bytes=sum(one.local_bytes for one in found),
        bucket_bytes=sum(one.bucket_bytes for one in found),
        until_ns=_trash(gateway).now_ns(),
        grace_seconds=gateway.settings.retention.trash_seconds,
        here="trash",
    )


def _remove(
    gateway: Gateway,
    call: Call,
    runner: Runner,
    who: Principal,
    sent: Mapping[str, str],
    ids: Sequence[str] | None,
) -> RedirectResponse:
    until_ns = number_in(sent, "until_ns") or _trash(gateway).now_ns()
    row = jobs.empty(runner, who, call, ids, until_ns)
    return begun(call, row, "What was chosen is being removed for good")


def _one(gateway: Gateway, trash_id: str) -> Trashed:
    kept = _trash(gateway)
    [found] = trash.model(gateway.settings, kept, [trash.found(kept, trash_id)])
    return found


def _every(gateway: Gateway) -> list[Trashed]:
    return trash.model(gateway.settings, _trash(gateway))


def _trash(gateway: Gateway) -> Trash:
    return Trash(gateway.settings, gateway.database)
