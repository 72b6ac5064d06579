"""Reader of objects in ranges, which also asks archived objects back.

A body goes into the caller's buffer as it comes, and is never held as a whole. What it is worth is
the caller's to judge by digests: not every server heeds If-Match.

S3 operations: GetObject, HeadObject, ListObjectVersions, RestoreObject.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from gateway.common import clock
from gateway.common.errors import ObjectRefused, StoreError, StoreUnavailable
from gateway.common.types import DEEP_RESTORE_HOURS, RESTORE_HOURS, STANDARD, TIERED
from gateway.objectstore import client
from gateway.objectstore.bodies import Incoming
from gateway.objectstore.objects import etag_of
from gateway.objectstore.pace import Goes, always
from gateway.objectstore.request import Requests

_EXPIRY = re.compile('expiry-date="([^"]+)"')


class ObjectLocation(NamedTuple):
    """Where an object is, and as what it was recorded."""

    key: str
    etag: str
    """Without quotes."""
    version: str | None = None
    """The id of an older version that is to be read in place of the latest."""
    bucket: str | None = None
    """The bucket of an import. None: the gateway's own one."""


class Archived(NamedTuple):
    """An object that was refused because it is in an archive."""

    is_tiered: bool
    """Whether it is in an archive of INTELLIGENT_TIERING."""
    is_deep: bool
    is_asked: bool
    """Whether it is on its way back."""
    until_ns: int | None
    """The end of the time for which it is readable, if it is back. Then it is archived again."""

    @property
    def is_on_its_way(self) -> bool:
        """Whether it is asked back, or back already."""
        return self.is_asked or self.until_ns is not None

    def expected_restore(self, tier: str) -> tuple[str, float]:
        """Return how fast it comes back if it should come so fast, and the hours that this takes at
        the most, usually."""
        hours = DEEP_RESTORE_HOURS if self.is_deep else RESTORE_HOURS
        tier = tier if tier in hours else STANDARD
        return tier, hours[tier]


class Ranges(Requests):
    """The objects of one bucket. It is safe to use from several threads."""

    @contextmanager
    def get(
        self, place: ObjectLocation, start: int, size: int, goes_first: Goes = always
    ) -> Iterator[Incoming]:
        """Ask for bytes of an object. They are read inside of the context.

        Raises StoreUnavailable, also while the caller reads, and when the body ends early;
        StoreRefused; ObjectRefused when the object is gone, has another ETag, ends before these
        bytes, or is archived. The body of an object that ends among them is short.

        Args:
            goes_first: for the pace.
        """
        key, etag, version, _bucket = place
        headers = {"Range": f"bytes={start}-{start + size - 1}"}
        if etag:
            headers["If-Match"] = f'"{etag}"'
        query = {} if version is None else {"versionId": version}
        with self._typed("get_object", key), ExitStack() as stack:
            asked = self._connected().wire
            try:
                incoming = stack.enter_context(asked.get(key, query, headers, size, goes_first))
            except ClientError as exc:
                if (spelled := self._spelled(place, exc)) is None:
                    raise
                headers["If-Match"] = f'"{spelled}"'
                incoming = stack.enter_context(asked.get(key, query, headers, size, goes_first))
            yield incoming

    def _spelled(self, place: ObjectLocation, exc: ClientError) -> str | None:
        """Return how the store spells an ETag that it refused as a condition, if only the case of
        its letters was recorded otherwise, as older releases did."""
        if client.code_of(exc) not in ("PreconditionFailed", "412"):
            return None
        etag = etag_of(self._call("head_object", place.key, **_version_of(place)))
        return str(etag) if etag == place.etag and str(etag) != str(place.etag) else None

    def other_version(self, place: ObjectLocation, size: int) -> str | None:
        """Return the id of an older version of an object that has the recorded ETag, or None.

        Raises StoreUnavailable.

        Args:
            size: size of the object, in bytes.
        """
        marker: dict[str, str] = {}
        while True:
            try:
                answer = self._call("list_object_versions", None, Prefix=place.key, **marker)
            except StoreError as exc:
                if isinstance(exc, StoreUnavailable):
                    raise
                return None  # not every server knows versions, not every policy lets us see them
            for listed_version in answer.get("Versions", []):
                is_same = etag_of(listed_version) == place.etag and listed_version["Size"] == size
                if (
                    listed_version["Key"] == place.key
                    and is_same
                    and not listed_version["IsLatest"]
                ):
                    version: str = listed_version["VersionId"]
                    return version
            before, after = marker, str(answer.get("NextKeyMarker") or "")
            marker = {
                "KeyMarker": after,
                "VersionIdMarker": str(answer.get("NextVersionIdMarker") or ""),
            }
            # Longer keys that begin so are not looked at, nor one page twice.
            if not answer.get("IsTruncated") or after != place.key or marker == before:
                return None

    def archived(self, place: ObjectLocation) -> Archived:
        """Return what the store says of an archived object. Raises StoreError."""
        answer = self._call("head_object", place.key, **_version_of(place))
        kept_in = answer.get("StorageClass", ""), answer.get("ArchiveStatus", "")
        restore = answer.get("Restore", "")
        match = _EXPIRY.search(restore)
        return Archived(
            is_tiered=kept_in[0] == TIERED,
            is_deep=any(storage_class.startswith("DEEP_ARCHIVE") for storage_class in kept_in),
            is_asked='ongoing-request="true"' in restore,
            until_ns=None if match is None else _time_ns(match[1]),
        )

    def restore(
        self, place: ObjectLocation, archived: Archived, tier: str, days: int
    ) -> str | None:
        """Ask an archived object back. Returns how fast it comes; None: it was asked back before.
        Raises StoreError.

        Args:
            tier: how fast it should come.
            days: for which it stays readable.
        """
        tier, _hours = archived.expected_restore(tier)
        # The archives of INTELLIGENT_TIERING give objects back for good, and refuse a number of
        # days.
        wanted: dict[str, Any] = {} if archived.is_tiered else {"Days": days}
        wanted["GlacierJobParameters"] = {"Tier": tier}
        try:
            self._call("restore_object", place.key, RestoreRequest=wanted, **_version_of(place))
        except StoreError as exc:
            if client.code_in(exc) == "RestoreAlreadyInProgress":
                return None
            if client.code_in(exc) != "GlacierExpeditedRetrievalNotAvailable" or tier == STANDARD:
                raise
            # There is no capacity for it now. That says nothing of the bucket.
            return self.restore(place, archived, STANDARD, days)
        return tier


def _version_of(place: ObjectLocation) -> dict[str, str]:
    return {} if place.version is None else {"VersionId": place.version}


def _time_ns(text: str) -> int | None:
    try:
        return int(parsedate_to_datetime(text).timestamp()) * clock.NS
    except (TypeError, ValueError):
        return None


def is_archived(exc: Exception) -> bool:
    """Return whether an object was refused because it must be asked back first."""
    return isinstance(exc, ObjectRefused) and client.code_in(exc) in client.ARCHIVED
