"""Run by Alembic. The database comes from gateway.db.schema through the config's attributes."""

from __future__ import annotations

from alembic import context

from gateway.db.models import Base

database = context.config.attributes["database"]
engine = database.engine()
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        # Alembic believes that SQLite cannot; with a BEGIN of our own it can.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
