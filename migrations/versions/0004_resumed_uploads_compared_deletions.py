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
    # The inode of an old row is not known. As before, 0 permits to delete any object at the key.
    rows = [
        {"key": key, "ino": 0, "content_version": 0, "etag": None, "deleted_ns": deleted_ns}
        for key, deleted_ns in old
    ]
    if rows:
        op.bulk_insert(made, rows)
