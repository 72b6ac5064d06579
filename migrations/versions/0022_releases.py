"""legal holds, tags and keys of promoted copies that a person wanted"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "promotion",
        sa.Column("legal_hold", sa.Integer(), nullable=False, server_default="0"),
    )
    op.add_column("promotion", sa.Column("tags", sa.String(), nullable=True))
    op.add_column("promotion", sa.Column("released", sa.String(), nullable=True))
