"""each figure of a sample has a column"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
FIGURES: dict[str, Any] = {
    "dirty_bytes": BIG,
    "written_bytes_per_second": sa.Float(),
    "sent_bytes_per_second": sa.Float(),
    "fetched_bytes_per_second": sa.Float(),
    "dirty_limit_bytes": BIG,
    "headroom_bytes": BIG,
    "disk_used_bytes": BIG,
    "disk_size_bytes": BIG,
    "rpo_seconds": sa.Float(),
    "alarms": BIG,
}


def upgrade() -> None:
    op.rename_table("sample", "old_sample")
    op.create_table(
        "sample",
        sa.Column("at_ns", BIG, autoincrement=False, nullable=False),
        *(sa.Column(name, kind, nullable=name != "dirty_bytes") for name, kind in FIGURES.items()),
        sa.PrimaryKeyConstraint("at_ns", name=op.f("pk_sample")),
    )
    values = ", ".join(f"json_extract(figures, '$.{name}')" for name in FIGURES)
    op.execute(
        f"INSERT INTO sample (at_ns, {', '.join(FIGURES)}) SELECT at_ns, {values} FROM old_sample"
    )
    op.drop_table("old_sample")
