"""Promotions: copies of checkpoints that only a person removes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.gateway import Gateway, Governed
from admin_api.pages.checkpoints import found_in
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent
from admin_api.problems import Problem
from admin_api.shapes import Ino
from gateway.checkpoints.catalogue import rules_of
from gateway.db.compiled import Session
from gateway.errors import NotPossible
from gateway.escapes import text_of
from gateway.promotion import members, places, store
from gateway.promotion.members import Look
from gateway.promotion.store import Promotion, State
from gateway.units import size

router = APIRouter()


@router.get("/promotions")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the promotions."""
    with gateway.database.reading() as session:
        found = [_facts(gateway, session, one) for one in store.every(session)]
    return page(request, "promotions.html", who, found=found)


@router.get("/promotions/{name}/demote")
def ask_to_demote(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Ask before a copy is removed."""
    with gateway.database.reading() as session:
        one = _facts(gateway, session, _named(session, name))
    return page(request, "promotion-demote.html", who, one=one, here="promotions")


@router.post("/promotions/{name}/demote")
def demote(gateway: Governed, _who: Admin, name: str, _sent: Sent) -> RedirectResponse:
    """Remove a copy, also from the bucket."""
    with gateway.database.writing() as session:
        found = _named(session, name)
        store.change(session, found._replace(state=State.DEMOTING.value, reason=None))
    return after("/promotions", "ok", f"{name} is being removed.")


@router.get("/checkpoints/{ino}/promote")
def ask_to_promote(request: Request, gateway: Governed, who: Operator, ino: Ino) -> HTMLResponse:
    """Ask for the name of a copy."""
    with gateway.database.reading() as session:
        one = found_in(gateway, session, ino)
        seen = members.look(session, ino, rules_of(gateway.settings))
    why = _why_not(one, seen)
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
        seen = members.look(session, ino, rules_of(settings))
        why = _why_not(one, seen)
        path = store.paths_of(session, ino)
        if why is not None or seen is None or not path:
            raise NotPossible(f"{one['path']}: {why or 'it was removed meanwhile'}")
        note = sent.get("note", "")[:1000]
        members.record(session, settings.bucket.prefix, name, path[0], seen, note, who.name)
    return after("/promotions", "ok", f"{name} is being copied. Nothing is uploaded again.")


def _why_not(one: dict[str, Any], seen: Look | None) -> str | None:
    """Return why a checkpoint cannot be promoted now, or None."""
    if seen is None:
        return "it was removed meanwhile"
    if seen.special is not None:
        return (
            f"only files, directories and links are promoted: remove {text_of(seen.special.path)}"
        )
    if one["state"] == "writing":
        return f"it is not complete: {one['reason']}"
    if left := seen.left:
        left_bytes = sum(found.size for found in left)
        return f"{len(left):,} files, {size(left_bytes)}, are not in the bucket yet: try again then"
    return None


def _named(session: Session, name: str) -> Promotion:
    found = store.one_named(session, name)
    if found is None:
        raise Problem(404, f"there is no promotion {name}: see the list")
    return found


def _facts(gateway: Gateway, session: Session, one: Promotion) -> dict[str, Any]:
    _files, copied = store.counts(session, one.name)
    return {
        **one._asdict(),
        "source": f"{gateway.settings.nfs.export}/{text_of(one.path)}",
        "by": one.asked_by,
        "asked": one.asked_ns,
        "copied_files": copied,
        "size_bytes": one.size,
    }
