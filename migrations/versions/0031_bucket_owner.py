"""the claim of a gateway to its bucket and prefix"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "bucket_owner",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("bucket", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("conditions", sa.String(), nullable=True),
        sa.Column("epoch", BIG, nullable=False),
        sa.Column("token", sa.String(), nullable=True),
        sa.Column("former", sa.String(), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_bucket_owner_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bucket_owner")),
    )
