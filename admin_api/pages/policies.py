"""The policies in force, with what they do now and what they did; also one with its history."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Admin, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Gateway, Governed
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent
from admin_api.problems import Problem
from gateway.control import policies, retention
from gateway.db.compiled import Session
from gateway.retention import store

router = APIRouter()
ACTIONS = 12
"""The last actions that are shown below the policies."""
ACTIONS_MOST = 500


@router.get("/policies")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the policies."""
    with gateway.database.reading() as session:
        found = [policies.model(one) for one in store.versions(session)]
        done = [_action(gateway, one) for one in store.actions(session, ACTIONS)]
        waits = retention.gather(session)
    there = [one for one in found if one.document is not None]
    return page(request, "policies.html", who, policies=there, actions=done, waits=waits)


@router.get("/policies/log")
def log(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show what was done because of policies."""
    with gateway.database.reading() as session:
        done = [_action(gateway, one) for one in store.actions(session, ACTIONS_MOST)]
    return page(request, "policy-log.html", who, actions=done, here="policies")


def _action(gateway: Gateway, one: store.Action) -> retention.Action:
    return retention.action(gateway.settings, one)


@router.get("/policy/{name}/history")
def history(request: Request, gateway: Governed, who: Viewer, name: str) -> HTMLResponse:
    """Show the versions of a policy, the newest first."""
    with gateway.database.reading() as session:
        found = [policies.model(one) for one in store.history(session) if one.name == name]
    if not found:
        raise Problem(404, policies.missing(name))
    return page(
        request, "policy-history.html", who, name=name, versions=found[::-1], here="policies"
    )


@router.get("/policy/{name}/remove")
def ask_to_remove(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Ask before a policy is removed."""
    with gateway.database.reading() as session:
        one = existing(session, name)
    return page(request, "policy-remove.html", who, one=one, here="policies")


@router.post("/policy/{name}/remove")
def remove(
    gateway: Governed, call: Recorded, who: Admin, name: str, sent: Sent
) -> RedirectResponse:
    """Remove a policy. Its versions stay in the history."""
    with gateway.database.writing() as session:
        call.before = _seen(session, name, sent)
        call.after = policies.model(store.remove(session, name, who.name))
    return after("/policies", "ok", f"The policy {name} is removed. It deletes nothing any more.")


@router.post("/policy/{name}/switch")
def switch(
    gateway: Governed, call: Recorded, who: Admin, name: str, sent: Sent
) -> RedirectResponse:
    """Enable or disable a policy."""
    is_enabled = sent.get("enabled") == "yes"
    with gateway.database.writing() as session:
        call.before = _seen(session, name, sent)
        made = store.switch(session, name, is_enabled, who.name)
        call.after = call.before if made is None else policies.model(made)
    does = "keeps and deletes again" if is_enabled else "neither keeps nor deletes anything now"
    return after("/policies", "ok", f"The policy {name} {does}.")


def existing(session: Session, name: str) -> policies.Version:
    """Return a policy that is in force or disabled. Raises Problem."""
    for one in store.versions(session):
        if one.name == name and one.document is not None:
            return policies.model(one)
    raise Problem(404, policies.missing(name))


def _seen(session: Session, name: str, sent: Mapping[str, str]) -> policies.Version:
    """Return a policy. Raises Problem if it was changed after the page of a form was made."""
    one = existing(session, name)
    if str(one.version) != sent.get("version"):
        raise Problem(
            412,
            f"{one.author} changed the policy {name} meanwhile, to version {one.version}: "
            "look at it, and say it again",
        )
    return one
