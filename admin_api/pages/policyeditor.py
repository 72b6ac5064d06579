"""The editor of a policy: it checks what is typed, and shows what it would delete, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from admin_api.access.principal import Principal
from admin_api.access.roles import Admin, Viewer
from admin_api.calls import Recorded
from admin_api.figures import Figured, Figures
from admin_api.gateway import Gateway, Governed
from admin_api.pages import policyform
from admin_api.pages.flash import after
from admin_api.pages.policies import existing
from admin_api.pages.policyplan import change
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent, number_in
from gateway.control import policies
from gateway.control.policies import Version
from gateway.db.compiled import Session
from gateway.errors import PolicyError
from gateway.retention import policy, store

router = APIRouter()
_NEW = {"keep_newest": "3", "keep_best.best": "min", "keep_best.unmeasured": "keep"}


@router.get("/policies/new")
def new(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the editor for a policy that there is not yet."""
    values = {**dict.fromkeys(policyform.FIELDS, ""), **_NEW}
    return _editor(request, gateway, who, values, 0)


@router.get("/policy/{name}")
def edit(request: Request, gateway: Governed, who: Viewer, name: str) -> HTMLResponse:
    """Show the editor for a policy."""
    with gateway.database.reading() as session:
        one = existing(session, name)
    values = {**_NEW, "keep_newest": "", **policyform.values_of(one.document or {})}
    for choice in ("keep_best.best", "keep_best.unmeasured"):
        values[choice] = values[choice] or _NEW[choice]
    return _editor(request, gateway, who, values, one.version, stored=one)


@router.get("/policies/preview")
def preview(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the editor with what was typed, and with what that would do."""
    typed = request.query_params
    values, version = _values(typed), number_in(typed, "version")
    return _editor(request, gateway, who, values, version, figures=figures)


@router.post("/policies")
def save(request: Request, gateway: Governed, call: Recorded, who: Admin, sent: Sent) -> Response:
    """Store a policy, unless it is wrong or was changed meanwhile."""
    values = _values(sent)
    try:
        read = policy.of(policyform.document_of(values))
    except PolicyError:
        return _editor(request, gateway, who, values, number_in(sent, "version"), status=422)
    with gateway.database.writing() as session:
        there = _there(session, read.name)
        found = 0 if there is None else there.version
        if found == number_in(sent, "version"):
            made = store.put(session, read, who.name)
            call.before, call.after = there, there if made is None else policies.model(made)
            text = "Nothing is new in it." if made is None else f"Version {made.version} is stored."
            return after("/policies", "ok", f"Policy {read.name}: {text}")
    return _editor(request, gateway, who, values, found, status=412, stored=there, is_conflict=True)


def _there(session: Session, name: str) -> Version | None:
    for one in store.versions(session):
        if one.name == name and one.document is not None:
            return policies.model(one)
    return None


def _editor(
    request: Request,
    gateway: Gateway,
    who: Principal,
    values: Mapping[str, str],
    version: int,
    *,
    status: int = 200,
    stored: Version | None = None,
    is_conflict: bool = False,
    figures: Figures | None = None,
) -> HTMLResponse:
    """Return the page of the editor.

    Parameters: values of the fields; version that the form is made for, 0 for a new policy; stored,
    the policy as it is; is_conflict, whether it was changed meanwhile; figures, if the page is to
    say what the policy would do. A plan of 10,000 checkpoints takes long, so the browser asks for
    it.
    """
    wrong, seen = None, None
    if figures is not None or status != 200:
        try:
            read = policy.of(policyform.document_of(values))
            seen = None if figures is None else change(gateway, figures, read)
        except PolicyError as exc:
            wrong = str(exc)
    facts: dict[str, Any] = {
        "values": values,
        "version": version,
        "wrong": wrong,
        "wrong_field": None if wrong is None else policyform.field_of(wrong),
        "change": seen,
        "tiers": range(policyform.TIERS),
        "fits": stored is None or policyform.fits(stored.document or {}),
        "theirs": policyform.values_of(stored.document or {}) if stored and is_conflict else None,
        "their_author": stored.author if stored else None,
        "fields": policyform.FIELDS,
        "here": "policies",
    }
    return page(request, "policy-editor.html", who, status, **facts)


def _values(sent: Mapping[str, str]) -> dict[str, str]:
    return {name: sent.get(name, "") for name in policyform.FIELDS}
