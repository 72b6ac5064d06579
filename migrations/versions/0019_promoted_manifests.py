"""manifests of promoted copies, and what the trash must keep"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("promotion", sa.Column("manifest_etag", sa.String(), nullable=True))
    op.add_column("trash", sa.Column("complete_ns", BIG, nullable=True))
    op.add_column("trash", sa.Column("stays", sa.String(), nullable=True))
