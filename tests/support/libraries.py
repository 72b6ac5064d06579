"""Libraries that take long to import, and that commands without a use for them must not import."""

from __future__ import annotations

UNUSED = {"boto3", "botocore", "urllib3", "awscrt", "alembic", "psycopg", "sqlalchemy.orm"}
UNUSED |= {"httpx", "rich", "fastapi", "uvicorn"}
"""What a command or process must not import that has no use for it."""
