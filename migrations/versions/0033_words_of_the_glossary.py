"""tables and columns named as the code and docs/glossary.md name what they hold"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

COLUMNS = {
    ("doubt", "look_ns"): "check_after_ns",
    ("manifest", "look_ns"): "check_after_ns",
    ("promotion", "released"): "key_prefix",
}
TABLES = {
    "doubt": "indeterminate_write",
    "elapsed": "elapsed_time",
    "override": "queue_order",
    "presence": "present_blocks",
    "warming": "warm_request",
}
CONSTRAINTS = {
    "doubt": ("pk_doubt",),
    "elapsed": ("pk_elapsed", "ck_elapsed_one_row"),
    "override": ("pk_override", "fk_override_ino", "ck_override_hold"),
    "presence": ("pk_presence", "fk_presence_ino"),
    "warming": ("pk_warming", "fk_warming_ino"),
}


def upgrade() -> None:
    for (table, column), name in COLUMNS.items():
        op.alter_column(table, column, new_column_name=name)
    if op.get_context().dialect.name == "postgresql":
        for old, new in TABLES.items():
            op.rename_table(old, new)
            for constraint in CONSTRAINTS[old]:
                name = constraint.replace(f"_{old}", f"_{new}", 1)
                op.execute(f"ALTER TABLE {new} RENAME CONSTRAINT {constraint} TO {name}")
        return
    # SQLite has no statement to rename constraints. An error shows the name of a CHECK, so the rows
    # of the two tables that have one are copied: a single row, and the orders that people gave. The
    # other tables may have a row for each file. They are renamed without a copy, and the old names
    # of their keys mean nothing there.
    for old in ("doubt", "presence", "warming"):
        op.rename_table(old, TABLES[old])
    op.create_table(
        "elapsed_time",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("elapsed_ns", BIG, nullable=False),
        sa.Column("boot", sa.String(), nullable=False),
        sa.Column("uptime_ns", BIG, nullable=False),
        sa.Column("clock_ns", BIG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_elapsed_time_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_elapsed_time")),
    )
    op.create_table(
        "queue_order",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("hold", sa.Integer(), nullable=False),
        sa.Column("set_ns", BIG, nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.CheckConstraint("hold IN (0, 1)", name=op.f("ck_queue_order_hold")),
        sa.ForeignKeyConstraint(
            ["ino"], ["inode.ino"], name=op.f("fk_queue_order_ino"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_queue_order")),
    )
    for old, columns in (
        ("elapsed", "id, elapsed_ns, boot, uptime_ns, clock_ns"),
        ("override", "ino, hold, set_ns, request_id"),
    ):
        op.execute(f"INSERT INTO {TABLES[old]} ({columns}) SELECT {columns} FROM {old}")
        op.drop_table(old)
