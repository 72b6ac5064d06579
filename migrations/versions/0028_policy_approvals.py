"""the versions of policies of which a person has approved deletions"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    # No version of before is approved: what an older release deleted by it was judged by names.
    op.create_table(
        "policy_approval",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", BIG, autoincrement=False, nullable=False),
        sa.Column("approved_ns", BIG, nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_policy_approval")),
    )
    op.add_column("approval", sa.Column("policies", sa.String(), nullable=True))
