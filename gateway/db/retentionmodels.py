"""Declares the tables of retention: policies, what was done because of them, and what is asked.

``Base`` is that of all tables: who needs every table imports it from here.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, String

from gateway.db.checkpointmodels import Base
from gateway.db.declare import Mapped, mapped_column

__all__ = ["Base"]


class Policy(Base):
    """A version of a policy. Rows are only added: the highest version of a name is in force."""

    __tablename__ = "policy"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    document: Mapped[str | None] = mapped_column(String)
    """JSON: see gateway.retention.policy. NULL: the policy was removed."""
    enabled: Mapped[int] = mapped_column(Integer)
    """0: the policy neither keeps nor deletes anything."""
    created_ns: Mapped[int]
    author: Mapped[str] = mapped_column(String)

    __table_args__ = (
        CheckConstraint("version >= 1", name="version"),
        CheckConstraint("enabled IN (0, 1)", name="enabled"),
    )


class Action(Base):
    """Something that was done to a checkpoint. The row is added before, and completed after."""

    __tablename__ = "action"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    began_ns: Mapped[int]
    finished_ns: Mapped[int | None]
    """NULL: it is under way, or was interrupted."""
    what: Mapped[str] = mapped_column(String)
    """``trash``, ``evict``, ``transition``, ``remove``, ``undelete`` or ``release``."""
    author: Mapped[str] = mapped_column(String)
    """The policies with their versions, or a person."""
    run: Mapped[bytes]
    step: Mapped[int | None]
    path: Mapped[bytes]
    ino: Mapped[int]
    evidence: Mapped[str] = mapped_column(String)
    """That of the checkpoint's row, for which it was decided. Empty: it was in the trash."""
    reason: Mapped[str] = mapped_column(String)
    result: Mapped[str | None] = mapped_column(String)
    """One line, shown to a person."""

    __table_args__ = (Index("ix_action_began_ns", "began_ns"),)


class PolicyApproval(Base):
    """A version of a policy of which a person has once approved deletions."""

    __tablename__ = "policy_approval"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    approved_ns: Mapped[int]
    author: Mapped[str] = mapped_column(String)


class Approval(Base):
    """Deletions of a plan that a person must approve."""

    __tablename__ = "approval"
    plan: Mapped[str] = mapped_column(String, primary_key=True)
    """Hash of its deletions."""
    deletions: Mapped[str] = mapped_column(String)
    """A JSON array of a hash for each."""
    checkpoints: Mapped[int]
    """The number of its deletions."""
    size: Mapped[int]
    """Bytes of them."""
    asked_ns: Mapped[int]
    approved_ns: Mapped[int | None]
    """NULL: it is asked for."""
    author: Mapped[str | None] = mapped_column(String)
    policies: Mapped[str | None] = mapped_column(String)
    """A JSON array of the policies whose deletions these are, each with its version. NULL: an older
    release asked."""


class Superseded(Base):
    """A checkpoint whose files are held, because a policy deletes it when a newer one is durable.
    The next plan may take that back."""

    __tablename__ = "superseded"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    since_ns: Mapped[int]


class KnownTime(Base):
    """A moment that is known to have passed, in one row: see gateway.trusted_clock."""

    __tablename__ = "known_time"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    known_ns: Mapped[int]
    boot: Mapped[str] = mapped_column(String)
    """The id of the start of the machine at which it was stored."""
    uptime_ns: Mapped[int]
    """The age of that start then."""

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)
