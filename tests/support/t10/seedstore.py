"""What the admin API's own database has after a week: tokens, the audit, jobs, samples."""

from __future__ import annotations

import json
import math
from typing import Any

from sqlalchemy import update

from admin_api import audit, dashboard, store
from admin_api.access import tokens
from admin_api.access.principal import Role
from admin_api.audit import CallOrigin, CallOutcome
from admin_api.jobs import rows
from admin_api.requests import GovernedGateway
from gateway.common import clock
from gateway.db.compiled import Session, Statement, b

_LAST_SAVE_SECONDS = clock.now_ns() // clock.NS - 11 * 60
HOUR_NS = 3600 * clock.NS
DAY_NS = 24 * HOUR_NS
_audit_table: Any = store.AuditTable.__table__
_SPREAD = Statement(
    update(_audit_table).values(at_ns=b("now_ns") - (b("most") - _audit_table.c.id) * b("step_ns"))
)
"""Spreads the entries over the last hours."""


def fill(gateway: GovernedGateway) -> str:
    """Fill the store. Returns the secret of a token of an admin."""
    with gateway.store.writing() as session:
        now_ns = clock.now_ns()
        _mara, secret = tokens.create(session, "mara", Role.ADMIN, None, "root")
        tokens.create(session, "slurm-prolog", Role.OPERATOR, now_ns + 90 * DAY_NS, "mara")
        tokens.create(session, "grafana", Role.VIEWER, now_ns + 30 * DAY_NS, "mara")
        old, _secret = tokens.create(session, "jonas (old laptop)", Role.ADMIN, None, "mara")
        tokens.revoke(session, old.id, now_ns)
        _audit(session)
        _jobs(session, now_ns)
        for at_seconds in range(now_ns // clock.NS - 86_400, now_ns // clock.NS, 60):
            written, sent, dirty = burst(at_seconds)
            at_ns = at_seconds * clock.NS
            dashboard.put(session, dashboard.Sample(at_ns, int(dirty), written, sent))
    return secret


def _audit(session: Session) -> None:
    before = {"name": "pretrain-ladder", "run": "llama-70b/*", "keep_newest": 5}
    after = {**before, "keep_newest": 3}
    calls: tuple[tuple[str, str, str, CallOutcome], ...] = (
        ("slurm-prolog", "POST", "/api/v1/files/warm", CallOutcome(202)),
        ("", "GET", "/api/v1/status", CallOutcome(401, "this token is not known")),
        ("mara", "POST", "/login", CallOutcome(200, "logged in")),
        (
            *("mara", "PUT", "/api/v1/policies/pretrain-ladder"),
            CallOutcome(200, None, json.dumps(before), json.dumps(after)),
        ),
        (
            *("grafana", "DELETE", "/api/v1/checkpoints/4711"),
            CallOutcome(
                403, "this needs the role admin, and grafana has viewer: use another token"
            ),
        ),
        ("jonas", "POST", "/policy/expire-experiments/switch", CallOutcome(303)),
    )
    for number, (who, method, path, outcome) in enumerate(calls):
        address = "10.20.0.17" if number % 2 else "10.20.0.4"
        origin = CallOrigin(who, None, address, f"{number:032x}", method, path)
        audit.add(session, origin, outcome)
    session.run(_SPREAD, now_ns=clock.now_ns(), step_ns=47 * 60 * clock.NS, most=len(calls) + 1)


def _jobs(session: Session, now_ns: int) -> None:
    asked: tuple[tuple[str, dict[str, Any], str, int, int | None, str], ...] = (
        ("evict", {"paths": ["/checkpoints/llama-70b/pretrain-v3/step-37000"]}, "done", 16, 16,
         "16 files evicted"),
        ("evict", {"paths": ["/checkpoints/vit-l/finetune"]}, "failed", 9, 41,
         "the bucket answered 403 AccessDenied: correct its permissions, and begin it again"),
        # This job keeps running: no cache process fetches the files.
        ("warm", {"paths": ["/checkpoints/llama-70b/pretrain-v3/step-37000"]}, "running", 0, None,
         ""),
    )  # fmt: skip
    for number, (kind, arguments, state, done, total, text) in enumerate(asked):
        at_ns = now_ns - (len(asked) - number) * HOUR_NS // 3
        ended_ns = None if state == "running" else at_ns + 400 * clock.NS
        row = rows.JobRow(
            id=f"{number:016x}",
            kind=kind,
            arguments=json.dumps(arguments),
            state=state,
            done=done,
            total=total,
            text=text,
            asked_by="mara",
            token_id="t",
            request_id="r",
            created_ns=at_ns,
            updated_ns=at_ns,
            ended_ns=ended_ns,
            cancel_asked=0,
            result=None,
            problem=None,
        )
        session.run(rows.INSERT, **row._asdict())


def burst(at_seconds: float) -> tuple[float, float, float]:
    """Return bytes per second written and sent, and bytes that are only here, at a moment of a day
    with a save every 95 minutes."""
    phase = (at_seconds - _LAST_SAVE_SECONDS) % (95 * 60)
    written = 4.3e9 * math.exp(-(((phase - 90) / 68) ** 2))
    left = max(0.0, 521e9 - 284e6 * (phase - 60)) if phase > 60 else 0.0
    sent = 284e6 * (0.94 + 0.06 * math.sin(at_seconds / 200)) if left else 0.0
    return written, sent, left
