"""the trash, and the time that has passed for certain"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "trash",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.Column("run", sa.LargeBinary(), nullable=False),
        sa.Column("step", BIG, nullable=True),
        sa.Column("files", BIG, nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("dirty_used", BIG, nullable=False),
        sa.Column("deleted_ns", BIG, nullable=False),
        sa.Column("since_ns", BIG, nullable=False),
        sa.Column("expires_ns", BIG, nullable=False),
        sa.Column("deleted_by", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_trash_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trash")),
        sa.UniqueConstraint("ino", name=op.f("uq_trash_ino")),
    )
    op.create_table(
        "elapsed",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("elapsed_ns", BIG, nullable=False),
        sa.Column("boot", sa.String(), nullable=False),
        sa.Column("uptime_ns", BIG, nullable=False),
        sa.Column("clock_ns", BIG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_elapsed_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_elapsed")),
    )
