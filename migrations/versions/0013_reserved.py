"""the gateway's own directory, which clients only read"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A check that is a part of the column needs no copy of the table on SQLite.
    op.execute(
        "ALTER TABLE inode ADD COLUMN reserved INTEGER DEFAULT 0 NOT NULL"
        " CONSTRAINT ck_inode_reserved CHECK (reserved IN (0, 1))"
    )
