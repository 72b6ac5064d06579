"""manifests in the bucket, and since when a checkpoint is not in it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "manifest",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.Column("change", BIG, nullable=False),
        sa.Column("evidence", sa.String(), nullable=False),
        sa.Column("durable_ns", BIG, nullable=False),
        sa.Column("etag", sa.String(), nullable=True),
        sa.Column("written_ns", BIG, nullable=False),
        sa.Column("look_ns", BIG, nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_manifest")),
    )
    op.create_index("ix_manifest_ino", "manifest", ["ino"])
    op.add_column("checkpoint", sa.Column("dirty_since_ns", BIG, nullable=True))
    # All rows are made again, with the new column.
    op.execute("DELETE FROM catalogue")
