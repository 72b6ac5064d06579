"""extended attributes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "xattr",
        sa.Column("ino", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 255", name=op.f("ck_xattr_name_length")),
        sa.CheckConstraint("length(value) <= 65536", name=op.f("ck_xattr_value_length")),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_xattr_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", "name", name=op.f("pk_xattr")),
        sqlite_with_rowid=False,
    )
