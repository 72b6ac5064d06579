"""Gives objects a tag, by which policies of the store and inventories know them."""

from __future__ import annotations

import secrets

from gateway.errors import ObjectRefused, StoreRefused
from gateway.objectstore import client
from gateway.objectstore.keys import probe_key
from gateway.objectstore.s3 import S3Store

BODY = b"Spillway asks whether this store keeps tags.\n"


class TaggingStore(S3Store):
    """A bucket whose objects can have the tag. Parameters: those of S3Store."""

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
            found = {one.get("Key"): one.get("Value") for one in answer.get("TagSet", [])}
            head = self.head(key)
            return found == wanted and head is not None and head.size == len(BODY)
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
