"""digests of sealed files"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "digest",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("checksum", sa.String(), nullable=False),
        sa.Column("computed_ns", BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_digest_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_digest")),
    )
