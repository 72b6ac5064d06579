"""Routes of policies and of what retention does: plans, approvals, actions, the clock of ages.

A policy has versions, and the newest is in force. ``gateway.lifecycle.retention.policy`` has the
meaning of the documents that requests send, and the last word.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import ConfigDict, Field

from admin_api.access.authentication import Admin, Viewer
from admin_api.audit import Recorded, RequestRecord
from admin_api.dashboard import Figured
from admin_api.problems import Problem, ProblemCode, describe
from admin_api.requests import (
    INTEGER_MAX,
    LIMIT,
    Body,
    Cursor,
    Governed,
    GovernedGateway,
    IfMatch,
    Limit,
    Page,
    RunQuery,
    Storable,
    cursor_of,
    etag_of,
    key_of,
    require_match,
)
from gateway.common.text import bytes_of
from gateway.db.compiled import Session
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.facts import Current
from gateway.lifecycle.retention.planning import Planned
from gateway.lifecycle.retention.policy import Policy
from gateway.service import policies
from gateway.service.policies import (
    Action,
    Approval,
    Clock,
    PolicyValidity,
    PolicyVersion,
    RetentionPlan,
    validity,
)

NAME = f"^{policy.NAME.pattern}$"
_YEARS = 36_500
"""Days: the oldest age."""

Pattern = Annotated[str, Field(min_length=1, max_length=4096), Storable]
Count = Annotated[int, Field(ge=1, le=10**6)]
StorageClass = Literal["STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"]


class KeepBest(Body):
    """Keeps the best checkpoints by a number in a JSON file of each."""

    number: Count
    file: Annotated[str, Field(min_length=1, max_length=4096, examples=["metrics.json"]), Storable]
    key: Annotated[str, Field(min_length=1, max_length=1024, examples=["eval.loss"]), Storable]
    best: Literal["min", "max"]
    unmeasured: Literal["keep", "delete"] = Field(
        "keep", description="What becomes of a checkpoint without this number."
    )


class TierBody(Body):
    """Keeps one checkpoint for each interval, among those that are older than an age."""

    older_than_days: float = Field(ge=0, le=_YEARS, allow_inf_nan=False)
    one_per_hours: float = Field(ge=0.01, le=24 * _YEARS, allow_inf_nan=False)


class PolicyDocument(Body):
    """A policy: which checkpoints, by `run`, `path` or both, and what becomes of them.

    Without a keep, `thin` or `delete_after_days` it deletes nothing. Each keep holds some
    checkpoints; what none holds is deleted.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "newest-three", "run": "jobs/llama*", "keep_newest": 3}]
        }
    )
    name: str = Field(pattern=NAME, examples=["newest-three"])
    run: Pattern | None = Field(None, description="Pattern of runs.", examples=["jobs/llama*"])
    path: Pattern | None = Field(None, description="Pattern of paths.", examples=["scratch/*"])
    keep_newest: Count | None = Field(None, examples=[3])
    keep_every_steps: int | None = Field(None, ge=1, le=10**18, examples=[10_000])
    keep_best: KeepBest | None = None
    thin: list[TierBody] | None = Field(None, min_length=1, max_length=100)
    delete_after_days: float | None = Field(None, ge=0.001, le=_YEARS, allow_inf_nan=False)
    wait_hours: float | None = Field(
        None,
        ge=0,
        le=24 * _YEARS,
        allow_inf_nan=False,
        description="For so long a newer one must have been durable. Default: 1.",
    )
    evict_after_hours: float | None = Field(None, ge=0, le=24 * _YEARS, allow_inf_nan=False)
    transition_after_days: float | None = Field(None, ge=0, le=_YEARS, allow_inf_nan=False)
    storage_class: StorageClass | None = Field(
        None, description="To which objects move after `transition_after_days`."
    )
    approve: Literal["first", "automatic"] | None = Field(
        None,
        description="first, the default: the first plan of each version waits for a person.",
    )

    def written(self) -> dict[str, Any]:
        """Return the document as a person writes it: what was not said is not in it."""
        return self.model_dump(exclude_unset=True, exclude_none=True)

    def policy(self) -> Policy:
        """Return what it means. Raises PolicyError."""
        return policy.of(self.written())


def policies_of(documents: list[PolicyDocument]) -> list[Policy]:
    """Return what documents mean. Raises PolicyError, also if two have one name."""
    if not documents:
        return []
    return policy.read({"policy": [document.written() for document in documents]})


def difference(sent: dict[str, Any], current: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the keys in which a policy that was sent differs from the one that is there."""
    there = current or {}
    return {
        key: {"sent": sent.get(key), "current": there.get(key)}
        for key in sorted({*sent, *there})
        if sent.get(key) != there.get(key)
    }


router = APIRouter(prefix="/policies", tags=["retention"])

Name = Annotated[str, Path(pattern=NAME, description="Name of the policy.")]


@router.get("", responses=describe(400, 503))
def list_policies(
    gateway: Governed,
    _viewer: Viewer,
    removed: Annotated[bool, Query(description="Also those that were removed.")] = False,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[PolicyVersion]:
    """List the policies that are in force, also those that are disabled, by name."""
    key = key_of(cursor, str)
    with gateway.database.reading() as session:
        versions = [
            version
            for version in store.versions(session)
            if removed or version.document is not None
        ]
    rest = [version for version in versions if key is None or version.name > key[0]]
    return Page(
        items=[policies.model(version) for version in rest[:limit]],
        next=cursor_of([rest[limit - 1].name]) if len(rest) > limit else None,
    )


@router.post("", status_code=201, responses=describe(403, 409, 503))
def create_policy(
    gateway: Governed, call: Recorded, admin: Admin, body: PolicyDocument, response: Response
) -> PolicyVersion:
    """Store a new policy. It is in force at once: ask `/retention/plan` with it before."""
    policy = body.policy()
    with gateway.database.writing() as session:
        before = policies.current(session, policy.name)
        if before is not None:
            raise Problem(
                ProblemCode.EXISTING_RESOURCE,
                f"there is a policy {policy.name}: change it with PUT, or choose another name",
                current=policies.model(before),
            )
        store.put(session, policy, admin.name)
        made = _current(session, policy.name)
    response.headers["Location"] = f"/api/v1/policies/{policy.name}"
    call.after = policies.model(made)
    return _answer(made, response)


@router.get("/{name}", responses=describe(404, 503))
def read_policy(
    gateway: Governed, _viewer: Viewer, name: Name, response: Response
) -> PolicyVersion:
    """Read a policy."""
    with gateway.database.reading() as session:
        return _answer(_current(session, name), response)


@router.put("/{name}", responses=describe(403, 404, 412, 428, 503))
def replace_policy(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    name: Name,
    body: PolicyDocument,
    response: Response,
    if_match: IfMatch = None,
) -> PolicyVersion:
    """Replace a policy. A 412 shows the policy that is there, and in what yours differs."""
    policy = body.policy()
    if policy.name != name:
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            f"name: the body has {policy.name}: a policy cannot be renamed",
        )
    with gateway.database.writing() as session:
        before = _matched(call, session, name, if_match, body)
        made = store.put(session, policy, admin.name) or before
    call.after = policies.model(made)
    return _answer(made, response)


@router.delete("/{name}", responses=describe(403, 404, 412, 428, 503))
def remove_policy(
    gateway: Governed, call: Recorded, admin: Admin, name: Name, if_match: IfMatch = None
) -> PolicyVersion:
    """Remove a policy. Its versions stay in the history."""
    with gateway.database.writing() as session:
        _matched(call, session, name, if_match)
        made = store.remove(session, name, admin.name)
    call.after = policies.model(made)
    return policies.model(made)


@router.post("/{name}/enable", responses=describe(403, 404, 412, 428, 503))
def enable_policy(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    name: Name,
    response: Response,
    if_match: IfMatch = None,
) -> PolicyVersion:
    """Have a policy keep and delete again."""
    return _switch(gateway, call, admin.name, name, response, if_match, is_enabled=True)


@router.post("/{name}/disable", responses=describe(403, 404, 412, 428, 503))
def disable_policy(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    name: Name,
    response: Response,
    if_match: IfMatch = None,
) -> PolicyVersion:
    """Have a policy neither keep nor delete."""
    return _switch(gateway, call, admin.name, name, response, if_match, is_enabled=False)


@router.get("/{name}/versions", responses=describe(400, 404, 503))
def list_policy_versions(
    gateway: Governed, _viewer: Viewer, name: Name, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[PolicyVersion]:
    """List all versions of a policy, the oldest first, also of one that was removed."""
    key = key_of(cursor, int)
    after = 0 if key is None else min(abs(key[0]), INTEGER_MAX)
    with gateway.database.reading() as session:
        versions = policies.versions(session, name, after, limit + 1)
    if not versions and key is None:
        raise Problem(ProblemCode.MISSING_RESOURCE, policies.missing(name))
    return Page(
        items=[policies.model(version) for version in versions[:limit]],
        next=cursor_of([versions[limit - 1].version]) if len(versions) > limit else None,
    )


def _switch(
    gateway: GovernedGateway,
    call: RequestRecord,
    author: str,
    name: str,
    response: Response,
    if_match: str | None,
    *,
    is_enabled: bool,
) -> PolicyVersion:
    with gateway.database.writing() as session:
        before = _matched(call, session, name, if_match)
        made = store.switch(session, name, is_enabled, author) or before
    call.after = policies.model(made)
    return _answer(made, response)


def _matched(
    call: RequestRecord,
    session: Session,
    name: str,
    if_match: str | None,
    sent: PolicyDocument | None = None,
) -> store.PolicyRow:
    """Return the version in force, if it is the one that was read. Raises Problem."""
    version = _current(session, name)
    call.before = now = policies.model(version)
    require_match(
        if_match,
        version.version,
        now,
        None if sent is None else lambda: difference(sent.written(), now.document),
    )
    return version


def _current(session: Session, name: str) -> store.PolicyRow:
    """Return the version in force. Raises Problem."""
    version = policies.current(session, name)
    if version is None:
        raise Problem(ProblemCode.MISSING_RESOURCE, policies.missing(name))
    return version


def _answer(version: store.PolicyRow, response: Response) -> PolicyVersion:
    response.headers["ETag"] = etag_of(version.version)
    return policies.model(version)


retention_router = APIRouter(prefix="/retention", tags=["retention"])

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


@retention_router.get("/plan", responses=describe(503))
def read_plan(
    gateway: Governed,
    figures: Figured,
    _viewer: Viewer,
    run: RunQuery = None,
    fate: Annotated[Fate | None, Query(description="Only these.")] = None,
    limit: Shown = SHOWN,
) -> RetentionPlan:
    """Say what becomes of each checkpoint by the stored policies, and why.

    What people said counts at once. What clients and the drain did counts a minute later at most.
    """
    return _plan_answer(gateway, figures.plan(), run, fate, limit)


@retention_router.post("/plan", responses=describe(503))
def preview_plan(
    gateway: Governed,
    _viewer: Viewer,
    body: PlanQuestion,
    run: RunQuery = None,
    fate: Annotated[Fate | None, Query(description="Only these.")] = None,
    limit: Shown = SHOWN,
) -> RetentionPlan:
    """Say what would become of each checkpoint with other policies. Nothing is stored."""
    others = [Current(other, 0) for other in policies_of(body.policies)]
    planned = policies.planned(gateway.settings, gateway.database, others)
    return _plan_answer(gateway, planned, run, fate, limit)


@retention_router.post("/validate")
def validate_policies(_viewer: Viewer, body: Documents) -> PolicyValidity:
    """Say whether policies could be stored, and if not, why."""
    return validity(body.model_dump())


@retention_router.get("/approvals", responses=describe(503))
def list_approvals(gateway: Governed, _viewer: Viewer) -> list[Approval]:
    """List the plans that are or were asked about, the newest first. There are only a few."""
    with gateway.database.reading() as session:
        return [policies.approval(approval) for approval in store.approvals(session)]


@retention_router.post("/approvals", responses=describe(403, 409, 503))
def approve_plan(figures: Figured, call: Recorded, admin: Admin, body: PlanId) -> Approval:
    """Approve the deletions that a plan asks about. The gateway deletes them within minutes."""
    made = figures.approve(body.plan, admin.name)
    call.after = approval = policies.approval(made)
    return approval


@retention_router.get("/log", responses=describe(400, 503))
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
        actions = policies.actions(
            session, None if run is None else bytes_of(run), before, limit + 1
        )
    return Page(
        items=[policies.action(gateway.settings, action) for action in actions[:limit]],
        next=cursor_of([actions[limit - 1].id]) if len(actions) > limit else None,
    )


@retention_router.get("/clock", responses=describe(503))
def read_clock(gateway: Governed, _viewer: Viewer) -> Clock:
    """Say to which time ages are counted: a clock that jumps makes no checkpoint old."""
    return policies.read_clock(gateway.database)


@retention_router.post("/clock/confirm", responses=describe(403, 503))
def confirm_clock(gateway: Governed, call: Recorded, admin: Admin) -> Clock:
    """Say that the clock of this machine is right."""
    call.before = read_clock(gateway, admin)
    policies.confirm_clock(gateway.database)
    call.after = made = read_clock(gateway, admin)
    return made


def _plan_answer(
    gateway: GovernedGateway, planned: Planned, run: str | None, fate: Fate | None, limit: int
) -> RetentionPlan:
    wanted = None if run is None else bytes_of(run)
    return policies.action_model(gateway.settings, planned, wanted, fate=fate, most=limit)
