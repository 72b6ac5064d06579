"""Reads objects of one bucket in ranges, and asks archived ones back.

A body goes into the caller's buffer as it comes, and is never held as a whole. What it is worth is
the caller's to judge by digests: not every server heeds If-Match.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gateway.errors import BucketError, ObjectRefused, StoreUnavailable
from gateway.objectstore import client
from gateway.objectstore.incoming import Incoming
from gateway.objectstore.objects import etag_of
from gateway.objectstore.pace import Goes, always
from gateway.objectstore.request import Requests


class Place(NamedTuple):
    """Where an object is, and as what it was recorded."""

    key: str
    etag: str
    """Without quotes."""
    version: str | None = None
    """The id of an older version that is to be read in place of the latest."""


class Ranges(Requests):
    """The objects of one bucket. It is safe to use from several threads."""

    @contextmanager
    def get(
        self, place: Place, start: int, size: int, goes_first: Goes = always
    ) -> Iterator[Incoming]:
        """Ask for bytes of an object. They are read inside of the context.

        Parameters: goes_first, for the pace.

        Raises StoreUnavailable, also while the caller reads, and when the body ends early;
        StoreRefused; ObjectRefused when the object is gone, has another ETag, ends before these
        bytes, or is archived. The body of an object that ends among them is short.
        """
        key, etag, version = place
        headers = {"Range": f"bytes={start}-{start + size - 1}"}
        if etag:
            headers["If-Match"] = f'"{etag}"'
        query = {} if version is None else {"versionId": version}
        with (
            self._typed("get_object", key),
            self._connected().wire.get(key, query, headers, size, goes_first) as incoming,
        ):
            yield incoming

    def other_version(self, place: Place, size: int) -> str | None:
        """Return the id of an older version of an object that has the recorded ETag, or None.

        Raises StoreUnavailable.

        Parameters: size, of the object, in bytes.
        """
        try:
            answer = self._call("list_object_versions", None, Prefix=place.key)
        except BucketError as exc:
            if isinstance(exc, StoreUnavailable):
                raise
            return None  # not every server knows versions, not every policy lets us see them
        for found in answer.get("Versions", []):
            is_same = etag_of(found) == place.etag and found["Size"] == size
            if found["Key"] == place.key and is_same and not found["IsLatest"]:
                version: str = found["VersionId"]
                return version
        return None

    def restore(self, key: str, tier: str, days: int) -> None:
        """Ask an archived object back. It is no error if it is on its way. Raises BucketError.

        Parameters: tier, how fast; days, for which it stays readable.
        """
        wanted = {"Days": days, "GlacierJobParameters": {"Tier": tier}}
        try:
            self._call("restore_object", key, RestoreRequest=wanted)
        except ObjectRefused as exc:
            if client.code_in(exc) != "RestoreAlreadyInProgress":
                raise


def is_archived(exc: Exception) -> bool:
    """Return whether an object was refused because it must be asked back first."""
    return isinstance(exc, ObjectRefused) and client.code_in(exc) in client.ARCHIVED
