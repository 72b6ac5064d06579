"""Rows that say that a file is in the bucket, for tests without a bucket."""

from __future__ import annotations

from gateway.config.settings import Settings
from tests.support.volumes import query


def record_object(settings: Settings, ino: int, key: str) -> None:
    """Record a file as drained, with digests, as the drain does."""
    query(settings, "UPDATE inode SET drained_version = content_version WHERE ino = :ino", ino=ino)
    query(
        settings,
        "INSERT INTO object SELECT ino, :key, content_version, size, 'e', 'c', 1, NULL FROM inode"
        " WHERE ino = :ino",
        ino=ino,
        key=key,
    )
    query(
        settings,
        "INSERT INTO block_digest VALUES (:ino, 4194304, :crcs)",
        ino=ino,
        crcs=b"12345678",
    )
