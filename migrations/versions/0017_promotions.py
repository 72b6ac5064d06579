"""promotions and pins"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "pin",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("pinned_by", sa.String(), nullable=False),
        sa.Column("pinned_ns", BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_pin_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_pin")),
    )
    op.create_table(
        "promotion",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.Column("run", sa.LargeBinary(), nullable=True),
        sa.Column("step", BIG, nullable=True),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("asked_by", sa.String(), nullable=False),
        sa.Column("asked_ns", BIG, nullable=False),
        sa.Column("begun_ns", BIG, nullable=True),
        sa.Column("done_ns", BIG, nullable=True),
        sa.Column("top", BIG, nullable=False),
        sa.Column("generation", BIG, nullable=False),
        sa.Column("files", BIG, nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("is_tagged", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_promotion")),
    )
    op.create_table(
        "promotion_member",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("copy", BIG, autoincrement=False, nullable=False),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.Column("parent", BIG, nullable=False),
        sa.Column("kind", sa.Integer(), nullable=False),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("is_made", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["name"], ["promotion.name"], name=op.f("fk_promotion_member_name"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("name", "copy", name=op.f("pk_promotion_member")),
    )
    op.create_index("ix_promotion_member_ino", "promotion_member", ["ino"])
