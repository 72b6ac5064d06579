"""Database of the admin API: its tables, opening, pruning, and answers kept for repetitions.

The tables are the authority on every column. Times are nanoseconds since 1970. Schema changes are
Alembic migrations (``migrations/admin``). A test compares migrations and tables.

Ages of old rows are counted to the known time (gateway.common.clock): a clock that jumps ahead
deletes no audit and no history. A call with an Idempotency-Key that is repeated gets the kept
answer.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError

from gateway.common import clock
from gateway.common.clock import Completions
from gateway.common.errors import NamespaceError, UserError
from gateway.config.settings import Settings
from gateway.db import models, schema
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.models import DeclarativeBase, Mapped, mapped_column
from gateway.lifecycle.retention.store import known_time, put_known_time


class AdminBase(DeclarativeBase):
    metadata = MetaData(naming_convention=models.Base.metadata.naming_convention)
    type_annotation_map = {**models.Base.type_annotation_map, float: Float}


class TokenTable(AdminBase):
    """What gives a role to the program or person that sends it. The secret itself is not kept."""

    __tablename__ = "token"
    id: Mapped[str] = mapped_column(String, primary_key=True)
    name: Mapped[str]
    """The name by which people know whose token it is."""
    role: Mapped[str]
    """The name of an ``admin_api.access.principal.Role``, in small letters."""
    hash: Mapped[str]
    """Argon2id of the secret, with its parameters and its salt."""
    created_ns: Mapped[int]
    created_by: Mapped[str]
    expires_ns: Mapped[int | None]
    """NULL: it does not expire."""
    used_ns: Mapped[int | None]
    """Its last use, to the minute."""
    revoked_ns: Mapped[int | None]

    __table_args__ = (CheckConstraint("role IN ('viewer', 'operator', 'admin')", name="role"),)


class LoginTable(AdminBase):
    """A session of the pages. The cookie has its secret, and the row only a hash of that."""

    __tablename__ = "session"
    id: Mapped[str] = mapped_column(String, primary_key=True)
    """SHA-256 of the secret."""
    token_id: Mapped[str] = mapped_column(ForeignKey("token.id", ondelete="CASCADE"))
    created_ns: Mapped[int]
    expires_ns: Mapped[int]


class AuditTable(AdminBase):
    """An unsafe call, or a refusal. A call's row is added before it, and completed after it."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at_ns: Mapped[int]
    who: Mapped[str]
    """The name of the token. Empty: the token is not known."""
    token_id: Mapped[str | None]
    address: Mapped[str]
    """The client's address."""
    request_id: Mapped[str]
    method: Mapped[str]
    path: Mapped[str]
    status: Mapped[int | None]
    """NULL: it is under way, or this process died in it."""
    before: Mapped[str | None]
    """JSON: what was changed, as it was, if the route says it."""
    after: Mapped[str | None]
    """JSON: as it is now."""
    detail: Mapped[str | None]
    """Why it was refused."""
    asked: Mapped[str | None]
    """JSON: the parameters of the call, without secrets."""

    __table_args__ = (Index("ix_audit_at_ns", "at_ns"),)


class IdempotencyTable(AdminBase):
    """A call with an Idempotency-Key, and its answer, which a repetition gets again."""

    __tablename__ = "idempotency"
    token_id: Mapped[str] = mapped_column(String, primary_key=True)
    key: Mapped[str] = mapped_column(String, primary_key=True)
    fingerprint: Mapped[str]
    """Hash of method, path and body: the key belongs to one request."""
    request_id: Mapped[str]
    created_ns: Mapped[int]
    status: Mapped[int | None]
    """NULL: it is under way, or this process died in it."""
    headers: Mapped[str | None]
    """JSON object: those that the answer had and that a repetition has too."""
    body: Mapped[bytes | None]

    __table_args__ = (Index("ix_idempotency_created_ns", "created_ns"),)


class JobTable(AdminBase):
    """Work that takes longer than a request may."""

    __tablename__ = "job"
    id: Mapped[str] = mapped_column(String, primary_key=True)
    kind: Mapped[str]
    arguments: Mapped[str]
    """JSON: what a restart needs to continue."""
    state: Mapped[str]
    """waiting, running, done, failed, cancelled, or interrupted."""
    done: Mapped[int]
    total: Mapped[int | None]
    """NULL: it is not known how much there is."""
    text: Mapped[str]
    """One line for a person: how far it is."""
    asked_by: Mapped[str]
    """The name of the token."""
    token_id: Mapped[str]
    request_id: Mapped[str]
    created_ns: Mapped[int]
    updated_ns: Mapped[int]
    ended_ns: Mapped[int | None]
    cancel_asked: Mapped[int]
    """1: a person wants it to end."""
    result: Mapped[str | None]
    """JSON, once it is done."""
    problem: Mapped[str | None]
    """JSON: the problem details of a job that failed."""

    __table_args__ = (
        CheckConstraint(
            "state IN ('waiting', 'running', 'done', 'failed', 'cancelled', 'interrupted')",
            name="state",
        ),
        CheckConstraint("cancel_asked IN (0, 1)", name="cancel_asked"),
        Index("ix_job_created_ns", "created_ns"),
    )


class SampleTable(AdminBase):
    """The figures of the dashboard at one moment: see admin_api.dashboard.Sample."""

    __tablename__ = "sample"
    at_ns: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    dirty_bytes: Mapped[int]
    written_bytes_per_second: Mapped[float | None]
    sent_bytes_per_second: Mapped[float | None]
    fetched_bytes_per_second: Mapped[float | None]
    dirty_limit_bytes: Mapped[int | None]
    headroom_bytes: Mapped[int | None]
    disk_used_bytes: Mapped[int | None]
    disk_size_bytes: Mapped[int | None]
    rpo_seconds: Mapped[float | None]
    alarms: Mapped[int | None]


class AdminKnownTimeTable(AdminBase):
    """A moment that is known to have passed, in one row: see gateway.common.clock."""

    __tablename__ = "known_time"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    known_ns: Mapped[int]
    boot: Mapped[str]
    uptime_ns: Mapped[int]

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


VERSIONS = schema.NAMESPACE.parent / "admin"


def open_store(settings: Settings) -> Database:
    """Return the admin API's own database, with this program's tables.

    It is made if it is missing: then there are no tokens yet. Raises UserError if it cannot be
    used, SchemaError when a newer Spillway wrote it. NFS and the drain do not need it.
    """
    path = settings.admin_db
    database = Database(f"sqlite:///{path}")
    try:
        _make_private(path)
        _make_current(database)
    except OSError as exc:
        raise UserError(
            f"cannot make {path}: {exc.strerror}: check the mode and the disk of {path.parent}"
        ) from None
    except (NamespaceError, DatabaseError, sqlite3.Error) as exc:
        reason = str(exc.orig if isinstance(exc, DatabaseError) else exc.__cause__ or exc)
        raise UserError(
            f"cannot use {path}, which has the tokens and the audit log of the admin API: "
            f"{reason.splitlines()[0]}: mend its disk, or move it away and make new tokens "
            "(spillway token create); files and checkpoints do not depend on it"
        ) from None
    return database


def _make_current(database: Database) -> None:
    try:
        with database.reader() as connection:
            connection.execute("SELECT name FROM sqlite_master").fetchall()
        if schema.require_known(database, VERSIONS) != schema.known(VERSIONS)[-1]:
            # Alembic takes long to be imported, and nearly no start needs it.
            from gateway.db import upgrade

            upgrade.upgrade(database, VERSIONS, AdminBase.metadata)
    except BaseException:
        database.close()
        raise


def _make_private(path: Path) -> None:
    """Make the file before SQLite does, which would let others read it. Raises OSError.

    A file that is there is not opened: closing it would end the locks that SQLite has on it in this
    process.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        path.chmod(0o600)


DAY_NS = 86_400 * clock.NS
ANSWER_NS = DAY_NS
"""The time for which an Idempotency-Key belongs to its request."""

_audit: Any = AuditTable.__table__
_token: Any = TokenTable.__table__
_job: Any = JobTable.__table__
_answer: Any = IdempotencyTable.__table__
_sample: Any = SampleTable.__table__

_NEWEST = Statement(select(func.max(_audit.c.at_ns)))
_BEFORE = b("before")
_OLD_AUDIT = Statement(delete(_audit).where(_audit.c.at_ns < _BEFORE))
_OLD_TOKENS = Statement(
    delete(_token).where(or_(_token.c.revoked_ns < _BEFORE, _token.c.expires_ns < _BEFORE))
)
_OLD_SESSIONS = Statement(
    delete(LoginTable.__table__).where(LoginTable.__table__.c.expires_ns < _BEFORE)
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
    time = clock.trusted_time(clock.reading(), known_time(session), times)
    put_known_time(session, time.row)
    return time.now_ns


INTERRUPTED = 0
"""The status of a call in which this process died: it is not known whether it was done."""


class RecordedAnswer(NamedTuple):
    """What is known of a call."""

    fingerprint: str
    status: int | None
    """None: it is under way."""
    headers: str | None
    body: bytes | None
    """None: it is not kept."""


_WANTED = (_answer.c.token_id == b("token")) & (_answer.c.key == b("its_key"))
_FIND = Statement(select(*(_answer.c[name] for name in RecordedAnswer._fields)).where(_WANTED))
_CLAIM = Statement(
    insert(_answer).values(
        token_id=b("token"),
        key=b("its_key"),
        fingerprint=b("print"),
        request_id=b("request"),
        created_ns=b("created"),
    )
)
_KEEP = Statement(
    update(_answer)
    .where(_WANTED)
    .values(status=b("its_status"), headers=b("its_headers"), body=b("its_body"))
)
_FORGET = Statement(delete(_answer).where(_WANTED))
_INTERRUPT = Statement(update(_answer).where(_answer.c.status.is_(None)).values(status=INTERRUPTED))


def find(session: Session, token_id: str, key: str) -> RecordedAnswer | None:
    """Return what is known of the call with a key."""
    row = session.one(_FIND, token=token_id, its_key=key)
    return None if row is None else RecordedAnswer(*row)


def claim(session: Session, token_id: str, key: str, fingerprint: str, request_id: str) -> None:
    """Note that the call with a key begins."""
    session.run(
        _CLAIM,
        token=token_id,
        its_key=key,
        print=fingerprint,
        request=request_id,
        created=clock.now_ns(),
    )


def keep(
    session: Session, token_id: str, key: str, status: int, headers: str, body: bytes | None
) -> None:
    """Keep the answer of a call."""
    session.run(
        _KEEP,
        token=token_id,
        its_key=key,
        its_status=status,
        its_headers=headers,
        its_body=body,
    )


def forget(session: Session, token_id: str, key: str) -> None:
    """Have the next call with a key begin again."""
    session.run(_FORGET, token=token_id, its_key=key)


def interrupt(session: Session) -> None:
    """Note at the start of the process that no call is under way."""
    session.run(_INTERRUPT)
