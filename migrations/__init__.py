"""Alembic migrations of the namespace database. Its schema changes in no other way."""
