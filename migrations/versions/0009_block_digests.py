"""block digests of objects, and which checksum a store verifies"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "block_digest",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("block_bytes", BIG, nullable=False),
        sa.Column("crcs", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["ino"], ["object.ino"], name=op.f("fk_block_digest_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_block_digest")),
    )
    op.create_table(
        "endpoint",
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("bucket", sa.String(), nullable=False),
        sa.Column("checksum", sa.String(), nullable=False),
        sa.Column("asked_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("url", "bucket", name=op.f("pk_endpoint")),
    )
