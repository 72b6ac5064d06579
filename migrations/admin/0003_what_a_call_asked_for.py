"""a call of the audit log has what it asked for"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit", sa.Column("asked", sa.String(), nullable=True))
