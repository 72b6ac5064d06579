"""resumed uploads, compared deletions"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("upload", sa.Column("part_bytes", _BIG, nullable=True))
    deletion = sa.table("deletion", sa.column("key"), sa.column("deleted_ns"))
    old = op.get_bind().execute(sa.select(deletion)).all()
    op.drop_table("deletion")
    made = op.create_table(
        "deletion",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("ino", _BIG, autoincrement=False, nullable=False),
        sa.Column("content_version", _BIG, nullable=False),
        sa.Column("etag", sa.String(), nullable=True),
        sa.Column("deleted_ns", _BIG, nullable=False),
        sa.PrimaryKeyConstraint("key", "ino", name=op.f("pk_deletion")),
    )
    # Nothing tells which inode an old row was of: 0 licenses whatever is at the key, as before.
    rows = [
        {"key": key, "ino": 0, "content_version": 0, "etag": None, "deleted_ns": deleted_ns}
        for key, deleted_ns in old
    ]
    if rows:
        op.bulk_insert(made, rows)
