"""Declares the tables of the admin API's own database. It is the authority on every column.

Times are nanoseconds since 1970. Schema changes are Alembic migrations (``migrations/admin``). A
test compares migrations and tables.
"""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
)

from gateway.db import models
from gateway.db.declare import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=models.Base.metadata.naming_convention)
    type_annotation_map = {**models.Base.type_annotation_map, float: Float}


class Token(Base):
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


class Login(Base):
    """A session of the pages. The cookie has its secret, and the row only a hash of that."""

    __tablename__ = "session"
    id: Mapped[str] = mapped_column(String, primary_key=True)
    """SHA-256 of the secret."""
    token_id: Mapped[str] = mapped_column(ForeignKey("token.id", ondelete="CASCADE"))
    created_ns: Mapped[int]
    expires_ns: Mapped[int]


class Audit(Base):
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


class Idempotency(Base):
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


class Job(Base):
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


class Sample(Base):
    """The figures of the dashboard at one moment: see admin_api.sampling.Sample."""

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


class KnownTime(Base):
    """A moment that is known to have passed, in one row: see gateway.trusted_clock."""

    __tablename__ = "known_time"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    known_ns: Mapped[int]
    boot: Mapped[str]
    uptime_ns: Mapped[int]

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)
