"""what a checkpoint was when it became complete"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

UNNUMBERED = sa.text("completion IS NULL")


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("grade", sa.String(), nullable=True))
    op.create_table(
        "checkpoint_record",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("run", sa.LargeBinary(), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("step", BIG, nullable=True),
        sa.Column("extent", sa.Integer(), nullable=False),
        sa.Column("grade", sa.String(), nullable=False),
        sa.Column("completion", BIG, nullable=True),
        sa.Column("complete_ns", BIG, nullable=False),
        sa.Column("durable_ns", BIG, nullable=True),
        sa.Column("files", BIG, nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("contents", sa.String(), nullable=False),
        sa.Column("shape", sa.String(), nullable=False),
        sa.Column("members", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_checkpoint_record_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_checkpoint_record")),
    )
    op.create_index("ix_checkpoint_record_run", "checkpoint_record", ["run", "completion"])
    op.create_index(
        "ix_checkpoint_record_unnumbered",
        "checkpoint_record",
        ["ino"],
        sqlite_where=UNNUMBERED,
        postgresql_where=UNNUMBERED,
    )
