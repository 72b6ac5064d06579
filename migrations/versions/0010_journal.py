"""the journal of touched inodes and its readers"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "journal",
        sa.Column("seq", BIG, autoincrement=True, nullable=False),
        sa.Column("what", sa.Integer(), nullable=False),
        sa.Column("inos", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_journal")),
    )
    op.create_table(
        "reader",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", BIG, nullable=False),
        sa.Column("lease", BIG, nullable=True),
        sa.ForeignKeyConstraint(
            ["lease"], ["lease.id"], name=op.f("fk_reader_lease"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_reader")),
    )
