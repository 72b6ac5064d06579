"""Settings of the bucket, and one request of each kind, for tests of options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.config.settings import Settings
from gateway.objectstore.s3 import S3Store
from tests.support.s3server import credentials
from tests.support.volumes import make_settings

METADATA = {"ino": "16"}


def use(store: S3Store) -> None:
    """Send each kind of request: with a body, in parts, without a body, a copy, a deletion."""
    store.check()
    head = store.put("a", b"data", METADATA).head
    upload_id = store.begin("b", METADATA)
    parts = [store.put_part("b", upload_id, 1, b"data")]
    store.complete("b", upload_id, parts, 4, METADATA)
    store.copy("a", "c", head, METADATA)
    assert {store.head(key).size for key in "abc"} == {4}  # type: ignore[union-attr]
    assert store.delete_many(["c"]) == {"c": None}


def settings_of(directory: Path, **bucket: Any) -> Settings:
    settings = make_settings(directory / "data", {"bucket": {"name": "b", **bucket}})
    settings.data_dir.mkdir()
    settings.credentials_file.write_text(credentials())
    return settings
