"""indexes of the checkpoints that the bucket lacks, and of those in another storage class"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

DIRTY = sa.text("dirty_files > 0")
MOVED = sa.text("storage_class IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        "ix_checkpoint_dirty",
        "checkpoint",
        ["run"],
        sqlite_where=DIRTY,
        postgresql_where=DIRTY,
    )
    op.create_index(
        "ix_checkpoint_storage_class",
        "checkpoint",
        ["state"],
        sqlite_where=MOVED,
        postgresql_where=MOVED,
    )
