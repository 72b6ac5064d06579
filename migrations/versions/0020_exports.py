"""exports beside the namespace as a whole"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "export",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", BIG, autoincrement=False, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("directory", BIG, nullable=False),
        sa.Column("document", sa.String(), nullable=True),
        sa.Column("created_ns", BIG, nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("ck_export_version")),
        sa.CheckConstraint("number >= 2 AND number <= 65535", name=op.f("ck_export_number")),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_export")),
    )
