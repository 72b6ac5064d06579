"""policies, what was done because of them, approvals, and the known time"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "policy",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", BIG, autoincrement=False, nullable=False),
        sa.Column("document", sa.String(), nullable=True),
        sa.Column("enabled", sa.Integer(), nullable=False),
        sa.Column("created_ns", BIG, nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("ck_policy_version")),
        sa.CheckConstraint("enabled IN (0, 1)", name=op.f("ck_policy_enabled")),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_policy")),
    )
    op.create_table(
        "action",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("began_ns", BIG, nullable=False),
        sa.Column("finished_ns", BIG, nullable=True),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("run", sa.LargeBinary(), nullable=False),
        sa.Column("step", BIG, nullable=True),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("evidence", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("result", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_action")),
    )
    op.create_index("ix_action_began_ns", "action", ["began_ns"])
    op.create_table(
        "approval",
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("deletions", sa.String(), nullable=False),
        sa.Column("checkpoints", BIG, nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("asked_ns", BIG, nullable=False),
        sa.Column("approved_ns", BIG, nullable=True),
        sa.Column("author", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("plan", name=op.f("pk_approval")),
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
