"""tokens, sessions, audit, answers, jobs, history"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("created_ns", BIG, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_ns", BIG, nullable=True),
        sa.Column("used_ns", BIG, nullable=True),
        sa.Column("revoked_ns", BIG, nullable=True),
        sa.CheckConstraint("role IN ('viewer', 'operator', 'admin')", name=op.f("ck_token_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
    )
    op.create_table(
        "session",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("created_ns", BIG, nullable=False),
        sa.Column("expires_ns", BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["token.id"], name=op.f("fk_session_token_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
    )
    op.create_table(
        "audit",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("at_ns", BIG, nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("status", BIG, nullable=True),
        sa.Column("before", sa.String(), nullable=True),
        sa.Column("after", sa.String(), nullable=True),
        sa.Column("detail", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at_ns", "audit", ["at_ns"])
    op.create_table(
        "idempotency",
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("created_ns", BIG, nullable=False),
        sa.Column("status", BIG, nullable=True),
        sa.Column("headers", sa.String(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", "key", name=op.f("pk_idempotency")),
    )
    op.create_index("ix_idempotency_created_ns", "idempotency", ["created_ns"])
    op.create_table(
        "job",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("arguments", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("done", BIG, nullable=False),
        sa.Column("total", BIG, nullable=True),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("asked_by", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("created_ns", BIG, nullable=False),
        sa.Column("updated_ns", BIG, nullable=False),
        sa.Column("ended_ns", BIG, nullable=True),
        sa.Column("cancel_asked", BIG, nullable=False),
        sa.Column("result", sa.String(), nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'done', 'failed', 'cancelled', 'interrupted')",
            name=op.f("ck_job_state"),
        ),
        sa.CheckConstraint("cancel_asked IN (0, 1)", name=op.f("ck_job_cancel_asked")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    op.create_index("ix_job_created_ns", "job", ["created_ns"])
    op.create_table(
        "sample",
        sa.Column("at_ns", BIG, autoincrement=False, nullable=False),
        sa.Column("figures", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("at_ns", name=op.f("pk_sample")),
    )
    op.create_table(
        "known_time",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("known_ns", BIG, nullable=False),
        sa.Column("boot", sa.String(), nullable=False),
        sa.Column("uptime_ns", BIG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_known_time_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_known_time")),
    )
