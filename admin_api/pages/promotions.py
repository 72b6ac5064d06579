"""Promotions: copies of checkpoints that only a person removes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Gateway, Governed
from admin_api.pages.checkpoints import found_in
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent
from admin_api.shapes import Ino
from gateway.checkpoints.catalogue import catalogue_of
from gateway.control import promotions as control
from gateway.errors import NotPossible
from gateway.promotion import store

router = APIRouter()


@router.get("/promotions")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the promotions."""
    with gateway.database.reading() as session:
        found = control.every(gateway.settings, session)
    return page(request, "promotions.html", who, found=found)


@router.get("/promotions/{name}/demote")
def ask_to_demote(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Ask before a copy is removed."""
    with gateway.database.reading() as session:
        one = control.as_is(gateway.settings, session, control.named(session, name))
    return page(request, "promotion-demote.html", who, one=one, here="promotions")


@router.post("/promotions/{name}/demote")
def demote(
    gateway: Governed, call: Recorded, _who: Admin, name: str, _sent: Sent
) -> RedirectResponse:
    """Remove a copy, also from the bucket."""
    with gateway.database.writing() as session:
        before = control.named(session, name)
        call.before = control.as_is(gateway.settings, session, before)
        call.after = control.as_is(
            gateway.settings, session, store.demote(session, before, releases=False)
        )
    return after("/promotions", "ok", f"{name} is being removed.")


@router.get("/checkpoints/{ino}/promote")
def ask_to_promote(request: Request, gateway: Governed, who: Operator, ino: Ino) -> HTMLResponse:
    """Ask for the name of a copy."""
    with gateway.database.reading() as session:
        one = found_in(gateway, session, ino)
    why = _why_not(gateway, ino)
    name = "-".join(part for part in one.path.split("/")[2:] if part.isprintable())
    return page(
        request, "checkpoint-promote.html", who, one=one, why_not=why, name=name, here="checkpoints"
    )


@router.post("/checkpoints/{ino}/promote")
def promote(
    gateway: Governed, call: Recorded, who: Operator, ino: Ino, sent: Sent
) -> RedirectResponse:
    """Record a promotion. The gateway copies by itself."""
    name, note = sent.get("name", "").strip(), sent.get("note", "")[:1000]
    made = control.promote(gateway.settings, gateway.database, ino, name, note, who.name)
    with gateway.database.reading() as session:
        call.after = control.as_is(gateway.settings, session, made)
    text = f"{made.name} is being copied. Nothing is uploaded again."
    return after("/promotions", "ok", text)


def _why_not(gateway: Gateway, ino: int) -> str | None:
    """Return why a checkpoint cannot be promoted now, or None."""
    try:
        source = control.source_of(catalogue_of(gateway.settings, gateway.database), ino)
        return control.why_not_yet(source)
    except NotPossible as exc:
        return str(exc)
