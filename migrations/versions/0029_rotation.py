"""what clients remove of a checkpoint, and what the bucket keeps until a newer one is durable"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("trash", sa.Column("rotated", BIG, nullable=True))
    op.add_column("trash", sa.Column("completion", BIG, nullable=True))
    op.add_column("trash", sa.Column("run_ino", BIG, nullable=True))
    op.add_column("trash", sa.Column("released_by", sa.String(), nullable=True))
    is_rotated = sa.text("rotated IS NOT NULL")
    op.create_index(
        "ix_trash_rotated",
        "trash",
        ["rotated"],
        sqlite_where=is_rotated,
        postgresql_where=is_rotated,
    )
