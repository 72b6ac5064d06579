"""identity of the bucket and the gateway, damage, generations of what may be deleted"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("volume", sa.Column("bucket", sa.String(), nullable=True))
    op.add_column("volume", sa.Column("prefix", sa.String(), nullable=True))
    op.add_column("volume", sa.Column("gateway", sa.LargeBinary(), nullable=True))
    op.add_column("volume", _zero("mark"))
    # Rows of an older database have no generation: 0 means that it is not known.
    op.add_column("upload", _zero("generation"))
    op.add_column("deletion", _zero("generation"))
    op.create_index("ix_upload_key", "upload", ["key"])
    op.add_column("retry", _zero("ino"))
    op.add_column("doubt", _zero("look_ns"))
    with op.batch_alter_table("object") as batch:
        batch.alter_column("checksum", existing_type=sa.String(), nullable=True)
    op.create_table(
        "damage",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("noted_ns", BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_damage_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_damage")),
    )


def _zero(name: str) -> sa.Column[int]:
    return sa.Column(name, BIG, nullable=False, server_default="0")
