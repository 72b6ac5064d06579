"""the request of the admin API that caused an order of a person"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("override", "retry"):
        op.add_column(table, sa.Column("request_id", sa.String(), nullable=True))
