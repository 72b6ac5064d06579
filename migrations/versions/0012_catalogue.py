"""the catalogue of checkpoints"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "checkpoint",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("parent", BIG, nullable=False),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.Column("run", sa.LargeBinary(), nullable=False),
        sa.Column("step", BIG, nullable=True),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("extent", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("files", BIG, nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("dirty_files", BIG, nullable=False),
        sa.Column("dirty_size", BIG, nullable=False),
        sa.Column("complete_ns", BIG, nullable=True),
        sa.Column("durable_ns", BIG, nullable=True),
        sa.Column("due_ns", BIG, nullable=True),
        sa.Column("evidence", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_checkpoint_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_checkpoint")),
    )
    op.create_index("ix_checkpoint_parent", "checkpoint", ["parent"])
    op.create_table(
        "catalogue",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rules", sa.String(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_catalogue_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_catalogue")),
    )
