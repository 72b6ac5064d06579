"""The policies of retention: each has versions, and the newest is in force."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from admin_api.access.roles import Admin, Viewer
from admin_api.calls import Call, Recorded
from admin_api.etags import IfMatch, etag_of, require_match
from admin_api.gateway import Gateway, Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.policies import NAME, PolicyDocument, difference
from admin_api.problems import Problem, describe
from admin_api.shapes import INTEGER_MAX
from gateway.control import policies
from gateway.control.policies import Version
from gateway.db.compiled import Session
from gateway.retention import store

router = APIRouter(prefix="/policies", tags=["retention"])

Name = Annotated[str, Path(pattern=NAME, description="Name of the policy.")]


@router.get("", responses=describe(400, 503))
def list_policies(
    gateway: Governed,
    _viewer: Viewer,
    removed: Annotated[bool, Query(description="Also those that were removed.")] = False,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Version]:
    """List the policies that are in force, also those that are disabled, by name."""
    key = key_of(cursor, str)
    with gateway.database.reading() as session:
        found = [one for one in store.versions(session) if removed or one.document is not None]
    rest = [one for one in found if key is None or one.name > key[0]]
    return Page(
        items=[policies.model(one) for one in rest[:limit]],
        next=cursor_of([rest[limit - 1].name]) if len(rest) > limit else None,
    )


@router.post("", status_code=201, responses=describe(403, 409, 503))
def create_policy(
    gateway: Governed, call: Recorded, admin: Admin, body: PolicyDocument, response: Response
) -> Version:
    """Store a new policy. It is in force at once: ask `/retention/plan` with it before."""
    policy = body.policy()
    with gateway.database.writing() as session:
        before = policies.current(session, policy.name)
        if before is not None:
            raise Problem(
                409,
                f"there is a policy {policy.name}: change it with PUT, or choose another name",
                current=policies.model(before),
            )
        store.put(session, policy, admin.name)
        made = _current(session, policy.name)
    response.headers["Location"] = f"/api/v1/policies/{policy.name}"
    call.after = policies.model(made)
    return _answer(made, response)


@router.get("/{name}", responses=describe(404, 503))
def read_policy(gateway: Governed, _viewer: Viewer, name: Name, response: Response) -> Version:
    """Read a policy."""
    with gateway.database.reading() as session:
        return _answer(_current(session, name), response)


@router.put("/{name}", responses=describe(403, 404, 412, 428, 503))
def update_policy(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    name: Name,
    body: PolicyDocument,
    response: Response,
    if_match: IfMatch = None,
) -> Version:
    """Replace a policy. A 412 shows the policy that is there, and in what yours differs."""
    policy = body.policy()
    if policy.name != name:
        raise Problem(422, f"name: the body has {policy.name}: a policy cannot be renamed")
    with gateway.database.writing() as session:
        before = _matched(call, session, name, if_match, body)
        made = store.put(session, policy, admin.name) or before
    call.after = policies.model(made)
    return _answer(made, response)


@router.delete("/{name}", responses=describe(403, 404, 412, 428, 503))
def remove_policy(
    gateway: Governed, call: Recorded, admin: Admin, name: Name, if_match: IfMatch = None
) -> Version:
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
) -> Version:
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
) -> Version:
    """Have a policy neither keep nor delete."""
    return _switch(gateway, call, admin.name, name, response, if_match, is_enabled=False)


@router.get("/{name}/versions", responses=describe(400, 404, 503))
def list_versions(
    gateway: Governed, _viewer: Viewer, name: Name, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[Version]:
    """List all versions of a policy, the oldest first, also of one that was removed."""
    key = key_of(cursor, int)
    after = 0 if key is None else min(abs(key[0]), INTEGER_MAX)
    with gateway.database.reading() as session:
        found = policies.versions(session, name, after, limit + 1)
    if not found and key is None:
        raise Problem(404, policies.missing(name))
    return Page(
        items=[policies.model(one) for one in found[:limit]],
        next=cursor_of([found[limit - 1].version]) if len(found) > limit else None,
    )


def _switch(
    gateway: Gateway,
    call: Call,
    author: str,
    name: str,
    response: Response,
    if_match: str | None,
    *,
    is_enabled: bool,
) -> Version:
    with gateway.database.writing() as session:
        before = _matched(call, session, name, if_match)
        made = store.switch(session, name, is_enabled, author) or before
    call.after = policies.model(made)
    return _answer(made, response)


def _matched(
    call: Call,
    session: Session,
    name: str,
    if_match: str | None,
    sent: PolicyDocument | None = None,
) -> store.Version:
    """Return the version in force, if it is the one that was read. Raises Problem."""
    found = _current(session, name)
    call.before = now = policies.model(found)
    require_match(
        if_match,
        found.version,
        now,
        None if sent is None else lambda: difference(sent.written(), now.document),
    )
    return found


def _current(session: Session, name: str) -> store.Version:
    """Return the version in force. Raises Problem."""
    found = policies.current(session, name)
    if found is None:
        raise Problem(404, policies.missing(name))
    return found


def _answer(one: store.Version, response: Response) -> Version:
    response.headers["ETag"] = etag_of(one.version)
    return policies.model(one)
