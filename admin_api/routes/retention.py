"""What retention does: plans, their approval, what was done, and the clock that counts ages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from admin_api.access.roles import Admin, Viewer
from admin_api.calls import Recorded
from admin_api.figures import Figured
from admin_api.gateway import Gateway, Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.policies import PolicyDocument, policies_of
from admin_api.problems import describe
from admin_api.shapes import INTEGER_MAX, Body, RunQuery
from gateway.control import retention
from gateway.errors import PolicyError
from gateway.escapes import bytes_of, text_of
from gateway.retention import policy, store
from gateway.retention.facts import Current
from gateway.retention.planning import Planned as Planning
from gateway.text import shown

router = APIRouter(prefix="/retention", tags=["retention"])

Fate = Literal["keep", "delete", "evict", "move"]
Shown = Annotated[int, Query(ge=0, le=10_000, description="Checkpoints that the answer has.")]
SHOWN = 1000


class Planned(BaseModel):
    """What becomes of a checkpoint, and why."""

    path: str = Field(examples=["/checkpoints/jobs/llama-7b/step-1200"])
    run: str = Field(examples=["jobs/llama-7b"])
    step: int | None
    state: str = Field(description="As in /checkpoints.", examples=["durable"])
    size_bytes: int
    fate: str = Field(description="keep or delete.", examples=["delete"])
    why: str = Field(examples=["it is not among the newest 3 (newest-three v2)"])
    policies: list[str] = Field(description="Those that let it go.", examples=[["newest-three v2"]])
    evicted_by: str | None = Field(description="The policies by which it leaves the local disk.")
    moves_to: str | None = Field(description="The storage class that its objects move to now.")
    moved_by: str | None = Field(description="The policy by which they do.")
    storage_class: str | None = Field(description="The one that a policy moved all objects to.")
    superseded: bool = Field(description="It need not be uploaded meanwhile.")


class Asked(BaseModel):
    """Deletions that a person must approve first."""

    plan: str = Field(description="To be approved: POST /retention/approvals.")
    checkpoints: int
    bytes: int


class Plan(BaseModel):
    """What becomes of all checkpoints. Nothing is done by reading it."""

    catalogue_is_made: bool = Field(description="While it is false nothing is deleted.")
    ages_until_ns: int
    clock_ahead_seconds: float = Field(description="How much of the clock's time is not believed.")
    asked: Asked | None
    why_asked: str | None
    is_stored: bool = Field(description="Only a plan of stored policies can be approved.")
    kept: int
    deleted: int
    deleted_bytes: int
    evicted: int
    moved: int = Field(description="Their objects move to another storage class.")
    unused_policies: list[str] = Field(description="They select no checkpoint.")
    checkpoints: list[Planned] = Field(description="By run and step.")
    more_checkpoints: int = Field(description="Those that were asked for and are not shown.")


class PlanQuestion(Body):
    """Policies that are not stored. They take the place of stored ones of their names."""

    policies: list[PolicyDocument] = Field(default_factory=list, max_length=100)


class Documents(Body):
    """Policies to be checked, as TOML or JSON has them."""

    policy: list[dict[str, Any]] = Field(
        max_length=100, examples=[[{"name": "newest-three", "run": "*", "keep_newest": 3}]]
    )


class Validity(BaseModel):
    """Whether policies could be stored."""

    valid: bool
    error: str | None = Field(
        description="Policy, key and remedy.",
        examples=["policy newest: keep_newest = 0: must be between 1 and 1000000"],
    )


class Approval(BaseModel):
    """A plan that is or was asked about."""

    plan: str
    checkpoints: int
    bytes: int
    asked_ns: int
    approved_ns: int | None
    author: str | None
    policies: list[str] = Field(
        description="Those of which an approval lets these versions delete from then on.",
        examples=[["newest-three v2"]],
    )


class PlanId(Body):
    """The plan to be approved."""

    plan: str = Field(pattern="^[0-9a-f]{12}$", examples=["6f1c0a5e9b42"])


class Action(BaseModel):
    """Something that was done to a checkpoint because of a policy or person."""

    id: int
    began_ns: int
    finished_ns: int | None = Field(description="null: it is under way.")
    what: str = Field(
        description="trash, evict, transition, remove or undelete.", examples=["trash"]
    )
    author: str = Field(examples=["newest-three v2"])
    run: str
    step: int | None
    path: str
    ino: int
    evidence: str
    reason: str
    result: str | None


class Clock(BaseModel):
    """The time to which ages are counted."""

    ages_until_ns: int
    clock_ahead_seconds: float = Field(
        description="How far the clock is ahead of the time that is known to have passed."
    )


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
def validate(_viewer: Viewer, body: Documents) -> Validity:
    """Say whether policies could be stored, and if not, why."""
    try:
        policy.read(body.model_dump())
    except PolicyError as exc:
        return Validity(valid=False, error=shown(str(exc)))
    return Validity(valid=True, error=None)


@router.get("/approvals", responses=describe(503))
def list_approvals(gateway: Governed, _viewer: Viewer) -> list[Approval]:
    """List the plans that are or were asked about, the newest first. There are only a few."""
    with gateway.database.reading() as session:
        return [Approval(**retention.approval(one)) for one in store.approvals(session)]


@router.post("/approvals", responses=describe(403, 409, 503))
def approve(figures: Figured, call: Recorded, admin: Admin, body: PlanId) -> Approval:
    """Approve the deletions that a plan asks about. The gateway deletes them within minutes."""
    made = figures.approve(body.plan, admin.name)
    call.after = approval = Approval(**retention.approval(made))
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
        items=[Action(**retention.action(gateway.settings, one, text_of)) for one in found[:limit]],
        next=cursor_of([found[limit - 1].id]) if len(found) > limit else None,
    )


@router.get("/clock", responses=describe(503))
def read_clock(gateway: Governed, _viewer: Viewer) -> Clock:
    """Say to which time ages are counted: a clock that jumps makes no checkpoint old."""
    time = retention.counted_time(gateway.database)
    return Clock(**retention.clock_facts(time))


@router.post("/clock/confirm", responses=describe(403, 503))
def confirm_clock(gateway: Governed, call: Recorded, admin: Admin) -> Clock:
    """Say that the clock of this machine is right."""
    call.before = read_clock(gateway, admin)
    retention.confirm_clock(gateway.database)
    call.after = made = read_clock(gateway, admin)
    return made


def _answer(
    gateway: Gateway, planned: Planning, run: str | None, fate: Fate | None, limit: int
) -> Plan:
    run_name = None if run is None else text_of(bytes_of(run))
    facts = retention.facts(gateway.settings, planned, run_name, text_of, fate=fate, most=limit)
    return Plan(**facts)
