"""Stores of imports: buckets that other programs write, and that are only read here.

Every request that could change something there is refused before it is sent: whatever asks for it
would be a mistake. The endpoint and the credentials are those of the gateway's own bucket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from gateway.common.errors import ObjectRefused, StoreRefused
from gateway.config.settings import Settings
from gateway.objectstore import client
from gateway.objectstore.bodies import Incoming
from gateway.objectstore.pace import Gate, Goes, always
from gateway.objectstore.ranges import Archived, ObjectLocation, Ranges
from gateway.objectstore.request import Requests
from gateway.objectstore.s3 import S3Store

T = TypeVar("T")

_READS = ("head_object", "get_object", "list_objects_v2", "list_object_versions")


class _ReadsOnly(Requests):
    """Sends only requests that read."""

    def _do(
        self, operation: str, key: str | None, request: Callable[[client.BucketConnection], T]
    ) -> T:
        if operation not in _READS:
            raise ObjectRefused(
                f"{key}: {operation} is not sent: nothing is changed in the bucket of an import"
            )
        return super()._do(operation, key, request)


class ImportedStore(_ReadsOnly, S3Store):
    """The bucket of an import, to list its objects and to ask for them."""


class ImportedRanges(_ReadsOnly, Ranges):
    """The bucket of an import, to read its objects."""


def settings_of(settings: Settings, bucket: str) -> Settings:
    """Return settings in which another bucket of the same endpoint is that of the gateway."""
    return replace(settings, bucket=replace(settings.bucket, name=bucket, prefix=""))


class AnyRanges:
    """The objects of the gateway's own bucket and of those of its imports. It is safe to use from
    several threads. The methods are those of ``Ranges``.

    Args:
        settings: of the gateway.
        pace: lets requests pass, whatever their bucket is.
    """

    def __init__(self, settings: Settings, pace: Gate | None = None) -> None:
        self._settings = settings
        self._pace = pace
        self._own = Ranges(settings, pace=pace)
        self._imported: dict[str, ImportedRanges] = {}
        self._making = threading.Lock()

    def reload(self) -> None:
        """Read the credentials again at the next request."""
        with self._making:
            for store in (self._own, *self._imported.values()):
                store.reload()

    def address(self) -> str:
        """Return the URL of the objects of the gateway's own bucket. Raises StoreRefused."""
        return self._own.address()

    @contextmanager
    def get(
        self, place: ObjectLocation, start: int, size: int, goes_first: Goes = always
    ) -> Iterator[Incoming]:
        """Ask for bytes of an object. Args and errors as of ``Ranges.get``."""
        with self._telling(place), self._of(place).get(place, start, size, goes_first) as body:
            yield body

    def other_version(self, place: ObjectLocation, size: int) -> str | None:
        """Return the id of an older version. Args and errors as of ``Ranges.other_version``."""
        return self._of(place).other_version(place, size)

    def archived(self, place: ObjectLocation) -> Archived:
        """Return what the store says of an archived object. Raises StoreError."""
        with self._telling(place):
            return self._of(place).archived(place)

    def restore(
        self, place: ObjectLocation, archived: Archived, tier: str, days: int
    ) -> str | None:
        """Ask an archived object back, but not that of an import. Args and errors as of
        ``Ranges.restore``."""
        return self._of(place).restore(place, archived, tier, days)

    def _of(self, place: ObjectLocation) -> Ranges:
        if place.bucket is None:
            return self._own
        with self._making:
            store = self._imported.get(place.bucket)
            if store is None:
                settings = settings_of(self._settings, place.bucket)
                store = self._imported[place.bucket] = ImportedRanges(settings, pace=self._pace)
            return store

    @contextmanager
    def _telling(self, place: ObjectLocation) -> Iterator[None]:
        """Raise ObjectRefused in place of StoreRefused if the bucket is that of an import: the
        gateway's own one, and all other files, are as they were."""
        try:
            yield
        except StoreRefused as exc:
            if place.bucket is None:
                raise
            raise ObjectRefused(f"{place.key}: {exc}") from exc.__cause__
