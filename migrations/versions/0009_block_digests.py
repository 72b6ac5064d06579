"""block digests of objects"""

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
