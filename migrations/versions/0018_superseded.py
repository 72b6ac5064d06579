"""checkpoints that are not uploaded because a policy deletes them anyway"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "superseded",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("since_ns", BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_superseded_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_superseded")),
    )
