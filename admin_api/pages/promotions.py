"""Promotions: copies of checkpoints that only a person removes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.gateway import Governed
from admin_api.pages.checkpoints import found_in
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent
from admin_api.problems import Problem
from admin_api.shapes import Ino
from gateway.checkpoints.catalogue import rules_of
from gateway.control import promotions as control
from gateway.db.compiled import Session
from gateway.errors import NotPossible
from gateway.escapes import text_of
from gateway.promotion import members, places, store
from gateway.promotion.members import Look
from gateway.promotion.store import Promotion

router = APIRouter()


@router.get("/promotions")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the promotions."""
    with gateway.database.reading() as session:
        found = control.every(gateway.settings, session, text_of)
    return page(request, "promotions.html", who, found=found)


@router.get("/promotions/{name}/demote")
def ask_to_demote(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Ask before a copy is removed."""
    with gateway.database.reading() as session:
        found = _named(session, name)
        _files, copied = store.counts(session, name)
        one = control.facts(gateway.settings, found, copied, text_of)
    return page(request, "promotion-demote.html", who, one=one, here="promotions")


@router.post("/promotions/{name}/demote")
def demote(gateway: Governed, _who: Admin, name: str, _sent: Sent) -> RedirectResponse:
    """Remove a copy, also from the bucket."""
    with gateway.database.writing() as session:
        found = _named(session, name)
        store.demote(session, found, releases=False)
    return after("/promotions", "ok", f"{name} is being removed.")


@router.get("/checkpoints/{ino}/promote")
def ask_to_promote(request: Request, gateway: Governed, who: Operator, ino: Ino) -> HTMLResponse:
    """Ask for the name of a copy."""
    with gateway.database.reading() as session:
        one = found_in(gateway, session, ino)
        path = control.source_of(session, ino)
        seen = members.look(session, ino, rules_of(gateway.settings))
    why = _why_not(path, seen)
    name = "-".join(part for part in one["path"].split("/")[2:] if part.isprintable())
    return page(
        request, "checkpoint-promote.html", who, one=one, why_not=why, name=name, here="checkpoints"
    )


@router.post("/checkpoints/{ino}/promote")
def promote(gateway: Governed, who: Operator, ino: Ino, sent: Sent) -> RedirectResponse:
    """Record a promotion. The gateway copies by itself."""
    settings = gateway.settings
    name = places.checked(sent.get("name", "").strip(), settings.drain.hold_patterns)
    with gateway.database.writing() as session:
        one = found_in(gateway, session, ino)
        path = control.source_of(session, ino)
        seen = members.look(session, ino, rules_of(settings))
        why = _why_not(path, seen)
        if why is not None or seen is None or path is None:
            raise NotPossible(f"{one['path']}: {why}")
        note = sent.get("note", "")[:1000]
        members.record(session, settings.bucket.prefix, name, path, seen, note, who.name)
    return after("/promotions", "ok", f"{name} is being copied. Nothing is uploaded again.")


def _why_not(path: bytes | None, seen: Look | None) -> str | None:
    """Return why a checkpoint cannot be promoted now, or None."""
    if seen is None or path is None:
        return "it was removed meanwhile"
    try:
        return control.why_not_yet(path, seen, text_of)
    except NotPossible as exc:
        return str(exc)


def _named(session: Session, name: str) -> Promotion:
    found = store.one_named(session, name)
    if found is None:
        raise Problem(404, f"there is no promotion {name}: see the list")
    return found
