"""Deletes old rows of the admin API's own database.

Ages are counted to the known time (gateway.trusted_clock): a clock that jumps ahead deletes
no audit and no history.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, func, or_, select

from admin_api.store import models
from gateway import clock, trusted_clock
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.retention.store import known_time, put_known_time
from gateway.settings import Settings
from gateway.trusted_clock import Completions

DAY_NS = 86_400 * clock.NS
ANSWER_NS = DAY_NS
"""The time for which an Idempotency-Key belongs to its request."""

_audit: Any = models.Audit.__table__
_token: Any = models.Token.__table__
_job: Any = models.Job.__table__
_answer: Any = models.Idempotency.__table__
_sample: Any = models.Sample.__table__

_NEWEST = Statement(select(func.max(_audit.c.at_ns)))
_BEFORE = b("before")
_OLD_AUDIT = Statement(delete(_audit).where(_audit.c.at_ns < _BEFORE))
_OLD_TOKENS = Statement(
    delete(_token).where(or_(_token.c.revoked_ns < _BEFORE, _token.c.expires_ns < _BEFORE))
)
_OLD_SESSIONS = Statement(
    delete(models.Login.__table__).where(models.Login.__table__.c.expires_ns < _BEFORE)
)
_OLD_ANSWERS = Statement(delete(_answer).where(_answer.c.created_ns < _BEFORE))
_OLD_JOBS = Statement(delete(_job).where(_job.c.ended_ns < _BEFORE))
_OLD_SAMPLES = Statement(delete(_sample).where(_sample.c.at_ns < _BEFORE))


def prune(store: Database, settings: Settings) -> None:
    """Delete what is older than the settings say. Raises TryAgain, OSError."""
    with store.writing() as session:
        now_ns = _known_ns(session)
        audit_ns = now_ns - settings.admin.audit_days * DAY_NS
        history_ns = now_ns - settings.admin.history_days * DAY_NS
        for statement, before_ns in (
            (_OLD_AUDIT, audit_ns),
            (_OLD_TOKENS, audit_ns),  # the audit log names them
            (_OLD_SESSIONS, now_ns),
            (_OLD_ANSWERS, now_ns - ANSWER_NS),
            (_OLD_JOBS, history_ns),
            (_OLD_SAMPLES, history_ns),
        ):
            session.run(statement, before=before_ns)


def _known_ns(session: Session) -> int:
    """Return the time to which ages are counted, and store it."""
    newest = session.one(_NEWEST)
    times = Completions(last_ns=newest[0] if newest else None)
    found = trusted_clock.judge(trusted_clock.reading(), known_time(session), times)
    put_known_time(session, found.row)
    return found.now_ns
