"""tables for the imports of prefixes, and for their objects"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "imported_prefix",
        sa.Column("top", BIG, autoincrement=False, nullable=False),
        sa.Column("bucket", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("last_key", sa.String(), nullable=True),
        sa.Column("untold", sa.String(), nullable=False),
        sa.Column("asked_ns", BIG, nullable=False),
        sa.Column("ended_ns", BIG, nullable=True),
        *(sa.Column(name, BIG, nullable=False) for name in ("files", "size", "gone", "left_out")),
        sa.Column("examples", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["top"], ["inode.ino"], name=op.f("fk_imported_prefix_top"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("top", name=op.f("pk_imported_prefix")),
    )
    op.create_table(
        "imported_object",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("top", BIG, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("etag", sa.String(), nullable=False),
        sa.Column("gone_ns", BIG, nullable=True),
        sa.Column("block_bytes", BIG, nullable=True),
        sa.Column("crcs", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_imported_object_ino"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["top"],
            ["imported_prefix.top"],
            name=op.f("fk_imported_object_top"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_imported_object")),
    )
    op.create_index("ix_imported_object_top_key", "imported_object", ["top", "key"])
