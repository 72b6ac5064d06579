"""retries keyed by what the job is about; rows of earlier revisions are dropped

Rows of earlier revisions name their job by a text for people. A job without its row loses nothing:
it is tried at once, fails again, is counted from one, and is shown to a person after its second
try.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.drop_table("retry")
    op.create_table(
        "retry",
        sa.Column("work", sa.String(), nullable=False),
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("tries", BIG, nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("next_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("work", "ino", "key", name=op.f("pk_retry")),
    )
