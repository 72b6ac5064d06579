"""What retention does: plans, their approval, what was done, and the clock that counts ages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from admin_api.access.roles import Admin, Viewer
from admin_api.calls import Recorded
from admin_api.figures import Figured
from admin_api.gateway import Gateway, Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.policies import PolicyDocument, policies_of
from admin_api.problems import describe
from admin_api.shapes import INTEGER_MAX, Body, RunQuery
from gateway.control import retention
from gateway.control.policies import PolicyValidity, validity
from gateway.control.retention import Action, Approval, Clock, Plan
from gateway.escapes import bytes_of
from gateway.retention import store
from gateway.retention.facts import Current
from gateway.retention.planning import Planned

router = APIRouter(prefix="/retention", tags=["retention"])

Fate = Literal["keep", "delete", "evict", "move"]
Shown = Annotated[int, Query(ge=0, le=10_000, description="Checkpoints that the answer has.")]
SHOWN = 1000


class PlanQuestion(Body):
    """Policies that are not stored. They take the place of stored ones of their names."""

    policies: list[PolicyDocument] = Field(default_factory=list, max_length=100)


class Documents(Body):
    """Policies to be checked, as TOML or JSON has them."""

    policy: list[dict[str, Any]] = Field(
        max_length=100, examples=[[{"name": "newest-three", "run": "*", "keep_newest": 3}]]
    )


class PlanId(Body):
    """The plan to be approved."""

    plan: str = Field(pattern="^[0-9a-f]{12}$", examples=["6f1c0a5e9b42"])


@router.get("/plan", responses=describe(503))
def read_plan(
    gateway: Governed,
    figures: Figured,
    _viewer: Viewer,
    run: RunQuery = None,
    fate: Annotated[Fate | None, Query(description="Only these.")] = None,
    limit: Shown = SHOWN,
) -> Plan:
    """Say what becomes of each checkpoint by the stored policies, and why.

    What people said counts at once. What clients and the drain did counts a minute later at most.
    """
    return _answer(gateway, figures.plan(), run, fate, limit)


@router.post("/plan", responses=describe(503))
def try_plan(
    gateway: Governed,
    _viewer: Viewer,
    body: PlanQuestion,
    run: RunQuery = None,
    fate: Annotated[Fate | None, Query(description="Only these.")] = None,
    limit: Shown = SHOWN,
) -> Plan:
    """Say what would become of each checkpoint with other policies. Nothing is stored."""
    others = [Current(one, 0) for one in policies_of(body.policies)]
    planned = retention.planned(gateway.settings, gateway.database, others)
    return _answer(gateway, planned, run, fate, limit)


@router.post("/validate")
def validate(_viewer: Viewer, body: Documents) -> PolicyValidity:
    """Say whether policies could be stored, and if not, why."""
    return validity(body.model_dump())


@router.get("/approvals", responses=describe(503))
def list_approvals(gateway: Governed, _viewer: Viewer) -> list[Approval]:
    """List the plans that are or were asked about, the newest first. There are only a few."""
    with gateway.database.reading() as session:
        return [retention.approval(one) for one in store.approvals(session)]


@router.post("/approvals", responses=describe(403, 409, 503))
def approve(figures: Figured, call: Recorded, admin: Admin, body: PlanId) -> Approval:
    """Approve the deletions that a plan asks about. The gateway deletes them within minutes."""
    made = figures.approve(body.plan, admin.name)
    call.after = approval = retention.approval(made)
    return approval


@router.get("/log", responses=describe(400, 503))
def list_actions(
    gateway: Governed,
    _viewer: Viewer,
    run: RunQuery = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Action]:
    """List what was done, when, why and by which policy or person, the newest first."""
    key = key_of(cursor, int)
    before = INTEGER_MAX if key is None else min(abs(key[0]), INTEGER_MAX)
    with gateway.database.reading() as session:
        found = retention.actions(
            session, None if run is None else bytes_of(run), before, limit + 1
        )
    return Page(
        items=[retention.action(gateway.settings, one) for one in found[:limit]],
        next=cursor_of([found[limit - 1].id]) if len(found) > limit else None,
    )


@router.get("/clock", responses=describe(503))
def read_clock(gateway: Governed, _viewer: Viewer) -> Clock:
    """Say to which time ages are counted: a clock that jumps makes no checkpoint old."""
    return retention.read_clock(gateway.database)


@router.post("/clock/confirm", responses=describe(403, 503))
def confirm_clock(gateway: Governed, call: Recorded, admin: Admin) -> Clock:
    """Say that the clock of this machine is right."""
    call.before = read_clock(gateway, admin)
    retention.confirm_clock(gateway.database)
    call.after = made = read_clock(gateway, admin)
    return made


def _answer(
    gateway: Gateway, planned: Planned, run: str | None, fate: Fate | None, limit: int
) -> Plan:
    wanted = None if run is None else bytes_of(run)
    return retention.model(gateway.settings, planned, wanted, fate=fate, most=limit)
