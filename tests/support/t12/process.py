"""The process that copies the names, as a test sees it: its report, and what the bucket has."""

from __future__ import annotations

import json
from typing import Any

from gateway.config.settings import Settings
from gateway.objectstore.s3 import S3Store
from gateway.recovery.copy_objects import BucketObjects
from gateway.recovery.names_store import NamesStore, Series
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Request
from tests.support.waiting import until

NAMES = f"{PREFIX}/.spillway/names/"
SECONDS = 60.0
"""The start of a process takes seconds of processor time, on a busy machine many."""


def names_store(settings: Settings) -> NamesStore:
    """Return the copy of the names of a gateway, to be read."""
    return NamesStore(BucketObjects(settings, S3Store(settings)))


def series_of(settings: Settings) -> list[Series]:
    """Return the series that the bucket has."""
    return names_store(settings).series()


def report_of(settings: Settings) -> dict[str, Any]:
    """Return what the process reported last, or nothing."""
    try:
        found: dict[str, Any] = json.loads((settings.run_dir / "recovery.json").read_text())
    except FileNotFoundError:
        return {}
    names: dict[str, Any] = found["names"]
    return names


def is_log(request: Request) -> bool:
    """Return whether a request puts a segment of the log."""
    return request.operation == "PUT" and request.key.startswith(NAMES) and "/log/" in request.key


def is_document(request: Request) -> bool:
    """Return whether a request puts the document of a base."""
    is_base = request.key.startswith(NAMES) and "/base/" in request.key
    return request.operation == "PUT" and is_base and request.key.endswith(".json")


def until_based(settings: Settings) -> None:
    """Wait until the bucket has a whole base."""
    until(lambda: report_of(settings).get("base_ns"), "a base of the names", SECONDS)


def until_copied(site: Site) -> None:
    """Wait until the bucket has the names as they are now."""

    def is_copied() -> bool:
        [(last,)] = site.rows("SELECT coalesce(max(seq), 0) FROM journal")
        saved = site.rows("SELECT position FROM reader WHERE name = 'names'")
        return saved == [(last,)]

    until(is_copied, "the names in the bucket", SECONDS)
