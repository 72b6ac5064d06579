"""What may be done with a checkpoint: each order has a page that says what happens."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.principal import Principal
from admin_api.access.roles import Admin, Operator
from admin_api.calls import Call, Recorded
from admin_api.gateway import Gateway, Governed
from admin_api.jobs.runner import Runner, Working
from admin_api.pages.checkpoints import found_in, why_kept
from admin_api.pages.files import ORDERS
from admin_api.pages.flash import after, begun
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent
from admin_api.shapes import Ino
from gateway.control import checkpoints, deletion, pins
from gateway.errors import NotPossible
from gateway.namespace import lookup

router = APIRouter(prefix="/checkpoints/{ino}")


@router.get("/pin")
def ask_to_pin(request: Request, gateway: Governed, who: Operator, ino: Ino) -> HTMLResponse:
    """Ask why a checkpoint is pinned."""
    return page(request, "checkpoint-pin.html", who, one=_one(gateway, ino), here="checkpoints")


@router.post("/pin")
def pin(gateway: Governed, call: Recorded, who: Operator, ino: Ino, sent: Sent) -> RedirectResponse:
    """Keep a checkpoint on the local disk and from all policies."""
    with gateway.database.writing() as session:
        one = found_in(gateway, session, ino)
        note = sent.get("note", "")[:1000]
        call.before = pins.of(gateway.settings, session, ino)
        row = pins.pin(session, lookup.get(session, ino), one.path, note, who.name)
        call.after = pins.model(gateway.settings, session, row)
    return after(f"/checkpoints/{ino}", "ok", "It is pinned: no policy deletes or evicts it.")


@router.post("/unpin")
def unpin(
    gateway: Governed, call: Recorded, _who: Operator, ino: Ino, _sent: Sent
) -> RedirectResponse:
    """End the pin of a checkpoint."""
    with gateway.database.writing() as session:
        call.before = pins.of(gateway.settings, session, ino)
        pins.unpin(session, ino, found_in(gateway, session, ino).path)
    return after(f"/checkpoints/{ino}", "ok", "It is not pinned any more. Policies hold for it.")


@router.get("/delete")
def ask_to_delete(request: Request, gateway: Governed, who: Admin, ino: Ino) -> HTMLResponse:
    """Show what a deletion does, and which law of retention it would break."""
    one, kept = _one(gateway, ino), why_kept(gateway, ino)
    is_possible = kept is None or _may_insist(gateway, ino)
    with gateway.database.reading() as session:
        copies = checkpoints.promotions(session, ino)
    return page(
        request,
        "checkpoint-delete.html",
        who,
        one=one,
        kept=kept,
        is_possible=is_possible,
        copies=copies,
        grace_seconds=gateway.settings.retention.trash_seconds,
        here="checkpoints",
    )


def _may_insist(gateway: Gateway, ino: int) -> bool:
    try:
        deletion.check(gateway.settings, gateway.database, ino, insists=True)
    except NotPossible:
        return False
    return True


@router.post("/delete")
def delete(gateway: Governed, call: Recorded, who: Admin, ino: Ino, sent: Sent) -> RedirectResponse:
    """Put a checkpoint into the trash, unless it changed since the page that asked was made."""
    call.before = one = _one(gateway, ino)
    call.after = deletion.delete(
        gateway.settings,
        gateway.database,
        ino,
        author=who.name,
        reason=sent.get("reason", "")[:1000] or "a person deleted it",
        insists=sent.get("insists") == "yes",
        seen=(sent.get("evidence", ""),),
    )
    return after("/trash", "ok", f"{one.path} is in the trash, and can be taken back.")


@router.post("/warm")
def warm(
    gateway: Governed, call: Recorded, runner: Working, who: Operator, ino: Ino, _sent: Sent
) -> RedirectResponse:
    """Begin a job that brings the bytes of a checkpoint to the local disk."""
    return _begin(gateway, call, runner, who, ino, "warm")


@router.post("/evict")
def evict(
    gateway: Governed, call: Recorded, runner: Working, who: Operator, ino: Ino, _sent: Sent
) -> RedirectResponse:
    """Begin a job that frees the local disk of a checkpoint."""
    return _begin(gateway, call, runner, who, ino, "evict")


def _begin(
    gateway: Gateway, call: Call, runner: Runner, who: Principal, ino: int, order: str
) -> RedirectResponse:
    path = _one(gateway, ino).path
    kind, text = ORDERS[order]
    row = runner.submit(kind, {"paths": [path], "ino": ino}, who, call.request_id)
    return begun(call, row, f"{text}: {path}")


def _one(gateway: Gateway, ino: int) -> checkpoints.Checkpoint:
    with gateway.database.reading() as session:
        return found_in(gateway, session, ino)
