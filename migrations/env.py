"""Runs migrations; Alembic calls it. gateway.db.schema puts the database into its attributes."""

from __future__ import annotations

from alembic import context

from gateway.db.retentionmodels import Base

database = context.config.attributes["database"]
engine = database.engine()
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        # Alembic assumes that SQLite has no transactional DDL. With an explicit BEGIN it has.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
