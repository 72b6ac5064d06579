"""Pages of policies: those in force, an editor, and plans with their approval.

The editor is a form whose fields are the keys of a policy; a field that is empty says nothing. It
checks what is typed, and shows what that would delete, and why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from admin_api.access.authentication import Admin, Viewer
from admin_api.access.principal import Principal
from admin_api.audit import Recorded
from admin_api.dashboard import Figured, Figures
from admin_api.pages.render import Sent, after, number_in, page
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import Governed, GovernedGateway
from gateway.common.errors import PolicyError
from gateway.db.compiled import Session
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.facts import Current, Decision, Fate
from gateway.lifecycle.retention.planning import Planned
from gateway.lifecycle.retention.policy import Policy
from gateway.service import policies
from gateway.service.policies import PlannedCheckpoint, PolicyVersion, RetentionPlan

router = APIRouter()
ACTIONS = 12
"""The last actions that are shown below the policies."""
ACTIONS_MOST = 500


@router.get("/policies")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the policies."""
    with gateway.database.reading() as session:
        versions = [policies.model(version) for version in store.versions(session)]
        done = [_action(gateway, action) for action in store.actions(session, ACTIONS)]
        waits = policies.gather(session)
    there = [version for version in versions if version.document is not None]
    return page(request, "policies.html", who, policies=there, actions=done, waits=waits)


@router.get("/policies/log")
def log(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show what was done because of policies."""
    with gateway.database.reading() as session:
        done = [_action(gateway, action) for action in store.actions(session, ACTIONS_MOST)]
    return page(request, "policy-log.html", who, actions=done, here="policies")


def _action(gateway: GovernedGateway, row: store.ActionRow) -> policies.Action:
    return policies.action(gateway.settings, row)


@router.get("/policy/{name}/history")
def history(request: Request, gateway: Governed, who: Viewer, name: str) -> HTMLResponse:
    """Show the versions of a policy, the newest first."""
    with gateway.database.reading() as session:
        versions = [
            policies.model(version) for version in store.history(session) if version.name == name
        ]
    if not versions:
        raise Problem(ProblemCode.MISSING_RESOURCE, policies.missing(name))
    return page(
        request, "policy-history.html", who, name=name, versions=versions[::-1], here="policies"
    )


@router.get("/policy/{name}/remove")
def ask_to_remove(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Ask before a policy is removed."""
    with gateway.database.reading() as session:
        version = existing(session, name)
    return page(request, "policy-remove.html", who, one=version, here="policies")


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


def existing(session: Session, name: str) -> policies.PolicyVersion:
    """Return a policy that is in force or disabled. Raises Problem."""
    for version in store.versions(session):
        if version.name == name and version.document is not None:
            return policies.model(version)
    raise Problem(ProblemCode.MISSING_RESOURCE, policies.missing(name))


def _seen(session: Session, name: str, sent: Mapping[str, str]) -> policies.PolicyVersion:
    """Return a policy. Raises Problem if it was changed after the page of a form was made."""
    version = existing(session, name)
    if str(version.version) != sent.get("version"):
        raise Problem(
            ProblemCode.VERSION_CONFLICT,
            f"{version.author} changed the policy {name} meanwhile, to version {version.version}: "
            "look at it, and say it again",
        )
    return version


TIERS = 3
"""The rows of ``thin`` that a form has."""
_CHOICES = ("keep_best.best", "keep_best.unmeasured")
"""They have a value also if no checkpoint is kept as one of the best."""
_TEXTS = (
    "name",
    "run",
    "path",
    "keep_best.file",
    "keep_best.key",
    "storage_class",
    "approve",
    *_CHOICES,
)
_NUMBERS = (
    *("keep_newest", "keep_every_steps", "keep_best.number"),
    *("delete_after_days", "wait_hours", "evict_after_hours", "transition_after_days"),
)
_TIER = ("older_than_days", "one_per_hours")
FIELDS = (*_TEXTS, *_NUMBERS, *(f"thin.{row}.{key}" for row in range(TIERS) for key in _TIER))
_KEY = re.compile(r"policy [^:]*: ([a-z_.]+)")


def document_of(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the document that a form says, for ``gateway.lifecycle.retention.policy.of``.

    A number that is none stays a text: the policy then says what is wrong with that key.
    """
    entered = {name: values.get(name, "").strip() for name in FIELDS}
    if not any(
        entered[name] for name in FIELDS if name.startswith("keep_best.") if name not in _CHOICES
    ):
        entered |= dict.fromkeys(_CHOICES, "")
    document: dict[str, Any] = {}
    for name in (*_TEXTS, *_NUMBERS):
        if not entered[name]:
            continue
        table, key = document, name
        if "." in name:
            above, key = name.split(".")
            table = document.setdefault(above, {})
        table[key] = entered[name] if name in _TEXTS else _number(entered[name])
    rows = [{key: _number(entered[f"thin.{row}.{key}"]) for key in _TIER} for row in range(TIERS)]
    rows = [{key: value for key, value in row.items() if value != ""} for row in rows]
    if rows := [row for row in rows if row]:
        document["thin"] = rows
    return document


def values_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a form for a document. Inverse of ``document_of``."""
    values = dict.fromkeys(FIELDS, "")
    for key, value in document.items():
        if key == "thin":
            for row, tier in enumerate(value[:TIERS]):
                values |= {
                    f"thin.{row}.{name}": _text(tier[name]) for name in _TIER if name in tier
                }
        elif isinstance(value, Mapping):
            values |= {f"{key}.{name}": _text(inner) for name, inner in value.items()}
        else:
            values[key] = _text(value)
    return values


def fits(document: Mapping[str, Any]) -> bool:
    """Return whether a form can show a document, so that saving it loses nothing."""
    return document_of(values_of(document)) == dict(document)


def field_of(error: str) -> str | None:
    """Return the field that the error of a policy is about, if there is one."""
    match = _KEY.match(error)
    if match is None:
        return "name" if error.startswith("a policy has name") else None
    name = match[1].rstrip(".")
    return {"thin": "thin.0.older_than_days", "keep_best": "keep_best.number"}.get(name, name)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)


plan_router = APIRouter(prefix="/policies/plan")
SHOWN = 200
"""The checkpoints of each kind that a page lists."""
CHANGES_SHOWN = 40
"""Those of each kind that the editor lists."""


@plan_router.get("")
def show_plan(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show what becomes of each checkpoint."""
    planned = figures.plan()
    lists = {
        fate: _plan(gateway, planned, fate, SHOWN).checkpoints for fate in (Fate.DELETE, Fate.KEEP)
    }
    plan = _plan(gateway, planned, most=0)
    return page(request, "plan.html", who, plan=plan, lists=lists, here="policies")


@plan_router.get("/summary")
def summary(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the plan in one paragraph."""
    plan = _plan(gateway, figures.plan(), most=0)
    return page(request, "plan-summary.html", who, plan=plan, here="policies")


@plan_router.post("/approve")
def approve(figures: Figured, call: Recorded, who: Admin, sent: Sent) -> RedirectResponse:
    """Approve the deletions of a plan."""
    made = figures.approve(sent.get("plan", ""), who.name)
    call.after = {"plan": made.plan, "checkpoints": made.checkpoints, "bytes": made.size}
    return after("/policies", "ok", "Approved. The gateway puts them into the trash in minutes.")


class Change(NamedTuple):
    """What a policy that is not stored would do. Of each list the first are shown."""

    plan: RetentionPlan
    """The plan with the policy."""
    more: Sequence[PlannedCheckpoint]
    """Checkpoints that would be deleted, and are not without it."""
    more_count: int
    more_bytes: int
    fewer: Sequence[PlannedCheckpoint]
    """Checkpoints that would stay, and are deleted without it."""
    fewer_count: int


def change(gateway: GovernedGateway, figures: Figures, policy: Policy) -> Change:
    """Return what a policy would do in place of the stored one of its name.

    The plan without it is that of ``Figures.plan``. The plan with it is a revision of that plan: a
    plan of 10,000 checkpoints takes some tenths of a second, and each key that is typed asks for a
    change. Raises UserError, NamespaceError.
    """
    now = figures.plan()
    gone_now = {deletion.checkpoint.ino for deletion in now.plan.deletions}
    then = policies.revised(gateway.settings, gateway.database, now, Current(policy, 0))
    more = [deletion for deletion in then.plan.deletions if deletion.checkpoint.ino not in gone_now]
    fewer = [
        decision
        for decision in then.plan.decisions
        if decision.fate != Fate.DELETE and decision.checkpoint.ino in gone_now
    ]

    def shown(decisions: Sequence[Decision]) -> list[PlannedCheckpoint]:
        return [
            policies.decision(gateway.settings, decision, then.superseded)
            for decision in decisions[:CHANGES_SHOWN]
        ]

    return Change(
        _plan(gateway, then, most=0),
        shown(more),
        len(more),
        sum(decision.checkpoint.size for decision in more),
        shown(fewer),
        len(fewer),
    )


def _plan(
    gateway: GovernedGateway, planned: Planned, fate: Fate | None = None, most: int | None = None
) -> RetentionPlan:
    return policies.action_model(gateway.settings, planned, fate=fate, most=most)


editor_router = APIRouter()
_NEW = {"keep_newest": "3", "keep_best.best": "min", "keep_best.unmeasured": "keep"}


@editor_router.get("/policies/new")
def new(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the editor for a policy that there is not yet."""
    values = {**dict.fromkeys(FIELDS, ""), **_NEW}
    return _editor(request, gateway, who, values, 0)


@editor_router.get("/policy/{name}")
def edit(request: Request, gateway: Governed, who: Viewer, name: str) -> HTMLResponse:
    """Show the editor for a policy."""
    with gateway.database.reading() as session:
        version = existing(session, name)
    values = {**_NEW, "keep_newest": "", **values_of(version.document or {})}
    for choice in ("keep_best.best", "keep_best.unmeasured"):
        values[choice] = values[choice] or _NEW[choice]
    return _editor(request, gateway, who, values, version.version, stored=version)


@editor_router.get("/policies/preview")
def preview(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the editor with what was typed, and with what that would do."""
    typed = request.query_params
    values, version = _values(typed), number_in(typed, "version")
    return _editor(request, gateway, who, values, version, figures=figures)


@editor_router.post("/policies")
def save(request: Request, gateway: Governed, call: Recorded, who: Admin, sent: Sent) -> Response:
    """Store a policy, unless it is wrong or was changed meanwhile."""
    values = _values(sent)
    try:
        read = policy.of(document_of(values))
    except PolicyError:
        return _editor(request, gateway, who, values, number_in(sent, "version"), status=422)
    with gateway.database.writing() as session:
        there = _there(session, read.name)
        version = 0 if there is None else there.version
        if version == number_in(sent, "version"):
            made = store.put(session, read, who.name)
            call.before, call.after = there, there if made is None else policies.model(made)
            text = "Nothing is new in it." if made is None else f"Version {made.version} is stored."
            return after("/policies", "ok", f"Policy {read.name}: {text}")
    return _editor(
        request, gateway, who, values, version, status=412, stored=there, is_conflict=True
    )


def _there(session: Session, name: str) -> PolicyVersion | None:
    for version in store.versions(session):
        if version.name == name and version.document is not None:
            return policies.model(version)
    return None


def _editor(
    request: Request,
    gateway: GovernedGateway,
    who: Principal,
    values: Mapping[str, str],
    version: int,
    *,
    status: int = 200,
    stored: PolicyVersion | None = None,
    is_conflict: bool = False,
    figures: Figures | None = None,
) -> HTMLResponse:
    """Return the page of the editor.

    A plan of 10,000 checkpoints takes long, so the browser asks for it.

    Args:
        values: values of the fields.
        version: that the form is made for, 0 for a new policy.
        stored: the policy as it is.
        is_conflict: whether it was changed meanwhile.
        figures: if the page is to say what the policy would do.
    """
    wrong, seen = None, None
    if figures is not None or status != 200:
        try:
            read = policy.of(document_of(values))
            seen = None if figures is None else change(gateway, figures, read)
        except PolicyError as exc:
            wrong = str(exc)
    facts: dict[str, Any] = {
        "values": values,
        "version": version,
        "wrong": wrong,
        "wrong_field": None if wrong is None else field_of(wrong),
        "change": seen,
        "tiers": range(TIERS),
        "fits": stored is None or fits(stored.document or {}),
        "theirs": values_of(stored.document or {}) if stored and is_conflict else None,
        "their_author": stored.author if stored else None,
        "fields": FIELDS,
        "here": "policies",
    }
    return page(request, "policy-editor.html", who, status, **facts)


def _values(sent: Mapping[str, str]) -> dict[str, str]:
    return {name: sent.get(name, "") for name in FIELDS}
