"""leases, claims, retries, overrides, doubts; dirty files by age"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DIRTY = sa.text("kind = 1 AND content_version > drained_version")


def upgrade() -> None:
    op.drop_index("ix_inode_dirty", table_name="inode")
    op.create_index(
        "ix_inode_dirty_drain_after",
        "inode",
        ["drain_after_ns", "ino"],
        unique=False,
        sqlite_where=DIRTY,
        postgresql_where=DIRTY,
    )
    op.create_table(
        "lease",
        sa.Column("generation", BIG, autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("expires_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("generation", name=op.f("pk_lease")),
    )
    op.create_table(
        "claim",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("generation", BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["generation"],
            ["lease.generation"],
            name=op.f("fk_claim_generation"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_claim")),
    )
    op.create_index("ix_claim_generation", "claim", ["generation"], unique=False)
    op.create_table(
        "retry",
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("tries", BIG, nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("next_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_retry")),
    )
    op.create_table(
        "override",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("hold", sa.Integer(), nullable=False),
        sa.Column("set_ns", BIG, nullable=False),
        sa.CheckConstraint("hold IN (0, 1)", name=op.f("ck_override_hold")),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_override_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_override")),
    )
    op.create_table(
        "doubt",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("noted_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_doubt")),
    )
