"""a row that only the NFS server writes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    fence = op.create_table(
        "fence",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_fence_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fence")),
    )
    op.bulk_insert(fence, [{"id": 1}])
