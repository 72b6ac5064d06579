"""objects that policies move to another storage class"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("object", sa.Column("storage_class", sa.String(), nullable=True))
    op.add_column("checkpoint", sa.Column("storage_class", sa.String(), nullable=True))
    op.create_table(
        "transition",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("storage_class", sa.String(), nullable=False),
        sa.Column("action", BIG, nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("until_ns", BIG, nullable=True),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_transition")),
    )
    op.create_index("ix_transition_key", "transition", ["key"])
