"""how far the copy of the names in the bucket has come"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "names_copy",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("base_after", BIG),
        sa.Column("base_ns", BIG),
        sa.Column("base_bytes", BIG, nullable=False),
        sa.Column("log_bytes", BIG, nullable=False),
        sa.Column("log_segments", BIG, nullable=False),
        sa.Column("copied_ns", BIG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_names_copy_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_names_copy")),
    )
    op.create_index("ix_tombstone_ino", "tombstone", ["ino"])
    op.create_index("ix_promotion_member_copy", "promotion_member", ["copy"])
