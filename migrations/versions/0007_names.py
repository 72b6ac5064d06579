"""tables and columns named as in docs/glossary.md"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.rename_table("deletion", "tombstone")
    if op.get_context().dialect.name == "postgresql":
        # SQLite has no statement to rename constraints, and their names mean nothing there.
        op.execute("ALTER INDEX pk_deletion RENAME TO pk_tombstone")
        op.execute("ALTER TABLE claim RENAME CONSTRAINT fk_claim_generation TO fk_claim_lease")
    op.drop_index("ix_claim_generation", "claim")
    op.alter_column("claim", "generation", new_column_name="lease")
    op.alter_column("lease", "generation", new_column_name="id")
    op.create_index("ix_claim_lease", "claim", ["lease"])
