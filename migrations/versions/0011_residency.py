"""evicted files: blocks that are here, data files to delete, files to warm, last reads"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _of_inode(table: str, *columns: sa.Column[object]) -> None:
    """Make a table with at most one row for each inode, which is deleted with it."""
    op.create_table(
        table,
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        *columns,
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f(f"fk_{table}_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f(f"pk_{table}")),
    )


def upgrade() -> None:
    _of_inode(
        "presence",
        sa.Column("epoch", BIG, nullable=False),
        sa.Column("block_bytes", BIG, nullable=False),
        sa.Column("blocks", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "eviction",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("epoch", BIG, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("ino", "epoch", name=op.f("pk_eviction")),
    )
    _of_inode("warming", sa.Column("asked_ns", BIG, nullable=False))
    _of_inode("last_read", sa.Column("read_ns", BIG, nullable=False))
