"""an index that has the newest checkpoint of each run"""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_checkpoint_run", "checkpoint", ["run", "state", "complete_ns"])
