"""Alembic migrations of the namespace database: the only way its schema changes."""
