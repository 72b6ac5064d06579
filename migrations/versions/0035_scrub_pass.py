"""a table for the passes of the scrub"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = ("files", "bytes", "found", "healed", "damaged")


def upgrade() -> None:
    op.create_table(
        "scrub_pass",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("is_whole", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("began_ns", BIG, nullable=False),
        sa.Column("ended_ns", BIG, nullable=True),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("done_bytes", BIG, nullable=False),
        *(sa.Column(name, BIG, nullable=False) for name in COUNTS),
        sa.CheckConstraint("is_whole IN (0, 1)", name=op.f("ck_scrub_pass_is_whole")),
        sa.PrimaryKeyConstraint("kind", "is_whole", name=op.f("pk_scrub_pass")),
    )
