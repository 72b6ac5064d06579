"""What policies would do now, and why: the plan, its approval, and what a change would add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Admin, Viewer
from admin_api.calls import Recorded
from admin_api.figures import Figured, Figures
from admin_api.gateway import Gateway, Governed
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent
from gateway.control import retention
from gateway.control.retention import Plan, PlannedCheckpoint
from gateway.retention.facts import Current, Decision, Fate
from gateway.retention.planning import Planned
from gateway.retention.policy import Policy

router = APIRouter(prefix="/policies/plan")
SHOWN = 200
"""The checkpoints of each kind that a page lists."""
CHANGES_SHOWN = 40
"""Those of each kind that the editor lists."""


@router.get("")
def show(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show what becomes of each checkpoint."""
    planned = figures.plan()
    lists = {
        fate: _plan(gateway, planned, fate, SHOWN).checkpoints for fate in (Fate.DELETE, Fate.KEEP)
    }
    plan = _plan(gateway, planned, most=0)
    return page(request, "plan.html", who, plan=plan, lists=lists, here="policies")


@router.get("/summary")
def summary(request: Request, gateway: Governed, figures: Figured, who: Viewer) -> HTMLResponse:
    """Show the plan in one paragraph."""
    plan = _plan(gateway, figures.plan(), most=0)
    return page(request, "plan-summary.html", who, plan=plan, here="policies")


@router.post("/approve")
def approve(figures: Figured, call: Recorded, who: Admin, sent: Sent) -> RedirectResponse:
    """Approve the deletions of a plan."""
    made = figures.approve(sent.get("plan", ""), who.name)
    call.after = {"plan": made.plan, "checkpoints": made.checkpoints, "bytes": made.size}
    return after("/policies", "ok", "Approved. The gateway puts them into the trash in minutes.")


class Change(NamedTuple):
    """What a policy that is not stored would do. Of each list the first are shown."""

    plan: Plan
    """The plan with the policy."""
    more: Sequence[PlannedCheckpoint]
    """Checkpoints that would be deleted, and are not without it."""
    more_count: int
    more_bytes: int
    fewer: Sequence[PlannedCheckpoint]
    """Checkpoints that would stay, and are deleted without it."""
    fewer_count: int


def change(gateway: Gateway, figures: Figures, policy: Policy) -> Change:
    """Return what a policy would do in place of the stored one of its name.

    The plan without it is that of ``Figures.plan``. The plan with it is a revision of that plan: a
    plan of 10,000 checkpoints takes some tenths of a second, and each key that is typed asks for a
    change. Raises UserError, NamespaceError.
    """
    now = figures.plan()
    gone_now = {one.checkpoint.ino for one in now.plan.deletions}
    then = retention.revised(gateway.settings, gateway.database, now, Current(policy, 0))
    more = [one for one in then.plan.deletions if one.checkpoint.ino not in gone_now]
    fewer = [
        one
        for one in then.plan.decisions
        if one.fate != Fate.DELETE and one.checkpoint.ino in gone_now
    ]

    def shown(decisions: Sequence[Decision]) -> list[PlannedCheckpoint]:
        return [
            retention.decision(gateway.settings, one, then.superseded)
            for one in decisions[:CHANGES_SHOWN]
        ]

    return Change(
        _plan(gateway, then, most=0),
        shown(more),
        len(more),
        sum(one.checkpoint.size for one in more),
        shown(fewer),
        len(fewer),
    )


def _plan(
    gateway: Gateway, planned: Planned, fate: Fate | None = None, most: int | None = None
) -> Plan:
    return retention.model(gateway.settings, planned, fate=fate, most=most)
