"""Legal holds (S3 Object Lock) and tags of objects.

A legal hold is of one version of an object. Even a user who may delete versions cannot delete it.
Policies of the store and inventories know objects by their tags.

S3 operations: PutObjectLegalHold, PutObjectTagging, GetObjectTagging, ListObjectVersions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from gateway.common.errors import ObjectRefused, StoreRefused, StoreUnavailable
from gateway.objectstore import client
from gateway.objectstore.key_mapper import probe_key
from gateway.objectstore.s3 import S3Store

BODY = b"Spillway asks whether this store keeps tags.\n"


class TaggingStore(S3Store):
    """A bucket whose objects can have the tag. Args: as of S3Store."""

    def keeps_tags(self) -> bool:
        """Return whether the store keeps tags of objects, and lets us set them.

        A server that does not know them may take the request for that of an object, and replace
        what it was to tag. So an object of ours is tried first. Raises StoreUnavailable.
        """
        key = probe_key(self._settings.bucket.prefix, secrets.token_hex(8))
        wanted = {"spillway": "promoted"}
        try:
            self.put(key, BODY, {})
            self.tag(key, wanted)
            answer = self._call("get_object_tagging", key)
            tags = {tag.get("Key"): tag.get("Value") for tag in answer.get("TagSet", [])}
            head = self.head(key)
            return tags == wanted and head is not None and head.size == len(BODY)
        except (ObjectRefused, StoreRefused) as exc:
            if client.code_in(exc) in client.OF_ALL_REQUESTS - {"AccessDenied"}:
                raise
            return False
        finally:
            self.delete_many([key])

    def tag(self, key: str, tags: dict[str, str]) -> None:
        """Give an object tags, in place of those that it has. Raises StoreError."""
        listed = [{"Key": name, "Value": value} for name, value in tags.items()]
        self._call("put_object_tagging", key, Tagging={"TagSet": listed})


_GONE = ("NoSuchKey", "NoSuchVersion", "MethodNotAllowed", "404", "405")
"""Answers about an object or version that is not there, or is only a mark of its deletion."""


class HoldingStore(TaggingStore):
    """A bucket whose objects can be under a legal hold. Args: as of S3Store."""

    def has_lock(self) -> bool:
        """Return whether the bucket has Object Lock. Raises StoreUnavailable, StoreRefused."""
        try:
            answer = self._call("get_object_lock_configuration", None)
        except StoreUnavailable:
            raise
        except (ObjectRefused, StoreRefused) as exc:
            if client.code_in(exc) in client.OF_ALL_REQUESTS - {"AccessDenied"}:
                raise
            return False
        object_lock_configuration = answer.get("ObjectLockConfiguration", {})
        return bool(object_lock_configuration.get("ObjectLockEnabled") == "Enabled")

    def hold(self, key: str) -> None:
        """Put what is at a key under a legal hold. Raises StoreError."""
        self._call("put_object_legal_hold", key, LegalHold={"Status": "ON"})

    def release(self, key: str) -> None:
        """Release all versions of what is or was at a key. Raises StoreError."""
        for version in list(self._versions(key)):
            try:
                self._call(
                    "put_object_legal_hold", key, VersionId=version, LegalHold={"Status": "OFF"}
                )
            except ObjectRefused as exc:
                if client.code_in(exc) not in _GONE:
                    raise

    def _versions(self, key: str) -> Iterator[str]:
        marker: dict[str, str] = {}
        while True:
            answer = self._call("list_object_versions", None, Prefix=key, **marker)
            for version in answer.get("Versions", []):
                if version["Key"] == key:
                    yield version["VersionId"]
            after = str(answer.get("NextKeyMarker") or "")
            # Longer keys that begin so are not looked at.
            if not answer.get("IsTruncated") or after != key:
                return
            marker = {"KeyMarker": after, "VersionIdMarker": answer["NextVersionIdMarker"]}
