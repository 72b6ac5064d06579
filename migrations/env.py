"""Runs migrations; Alembic calls it. gateway.db.upgrade says of which database, in its attributes.

``versions`` has the revisions of the namespace, ``admin`` those of the admin API's own database.
"""

from __future__ import annotations

from alembic import context

database = context.config.attributes["database"]
engine = database.engine()
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=context.config.attributes["metadata"],
        render_as_batch=True,
        # Alembic assumes that SQLite has no transactional DDL. With an explicit BEGIN it has.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
