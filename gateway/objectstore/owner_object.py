"""Owner object, ``<prefix>/.spillway/owner.json``: which gateway a bucket and prefix belong to.

Its requests have short time-outs of their own, the same for every gateway: one that reads back what
it wrote must know how long a request of another gateway may be under way.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from gateway.common import clock
from gateway.common.errors import (
    ObjectRefused,
    OtherOwner,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from gateway.config.settings import Settings
from gateway.objectstore import client
from gateway.objectstore.key_mapper import owner_key, probe_key, probes_below
from gateway.objectstore.objects import etag_of
from gateway.objectstore.request import Conditions
from gateway.objectstore.s3 import S3Store

CONNECT_SECONDS = 5.0
READ_SECONDS = 5.0
REQUEST_SECONDS = CONNECT_SECONDS + READ_SECONDS
"""The longest that a request for the owner object can take. It is sent once."""
CONTENT_BYTES = 65536
"""The most that is read of the owner object."""
LISTED = 1000
"""The keys of one page of a listing."""

T = TypeVar("T")


class BucketOwner(NamedTuple):
    """The content of the owner object."""

    namespace: str
    """Id of the namespace, in hex."""
    gateway: str
    """Id of the gateway, in hex. Empty if it has none yet."""
    epoch: int
    """Grows with each move to another holder."""
    token: str
    """Random for each epoch: of two copies of one gateway, one does not know it."""
    holder: str
    """The data directory of the gateway, on one boot of its machine."""
    address: str
    """The name of its host."""
    time_ns: int
    """When it was written last."""
    released: bool
    """Whether the gateway was stopped."""

    def text(self) -> bytes:
        """Return the JSON document."""
        facts = self._asdict()
        seconds = facts.pop("time_ns") // clock.NS
        time = datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
        return json.dumps({**facts, "time": time}, indent=1).encode() + b"\n"

    def __str__(self) -> str:
        time = datetime.fromtimestamp(self.time_ns // clock.NS, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{self.address} (namespace {self.namespace[:8]}, last seen {time})"


class SeenOwner(NamedTuple):
    """An owner object that the store has."""

    owner: BucketOwner
    etag: str


class OwnerStore(S3Store):
    """The owner object of one bucket and prefix.

    Args:
        address: address of the bucket, if it is known: to make a client that tells it takes long.
    """

    def __init__(self, settings: Settings, address: str | None = None) -> None:
        bucket = replace(
            settings.bucket,
            connect_timeout_seconds=min(CONNECT_SECONDS, settings.bucket.connect_timeout_seconds),
            read_timeout_seconds=min(READ_SECONDS, settings.bucket.read_timeout_seconds),
            # It is read all the time.
            storage_class="",
        )
        super().__init__(replace(settings, bucket=bucket), attempts=1, address=address)
        self.prefix = bucket.prefix
        self._key = owner_key(bucket.prefix)

    def look(self) -> SeenOwner | None:
        """Return the owner object, or None if there is none. Raises StoreError."""
        try:
            return self._look(self._key)
        except StoreUnavailable:
            # A connection that was idle for too long fails like this.
            return self._look(self._key)

    def stranger(self, prefix: str, namespace: str) -> str | None:
        """Return which gateway of another namespace owns another prefix, for people, or None.

        Credentials may be for the own prefix alone: then nothing is known of others. Raises
        StoreUnavailable.
        """
        try:
            seen = self._look(owner_key(prefix))
        except OtherOwner:
            return "a gateway whose owner object cannot be understood"
        except (StoreRefused, ObjectRefused):
            return None
        return None if seen is None or seen.owner.namespace == namespace else str(seen.owner)

    def _look(self, key: str) -> SeenOwner | None:
        text = memoryview(bytearray(CONTENT_BYTES))
        try:
            with (
                self._typed("get_object", key),
                self._connected().wire.get(key, {}, {}, len(text)) as incoming,
            ):
                content = bytes(text[: incoming.readinto(text)])
                etag = etag_of({"ETag": incoming.headers.get("etag", "")})
        except ObjectRefused as exc:
            if client.code_in(exc) in client.NO_OBJECT:
                return None
            raise
        return SeenOwner(_parsed(key, content), etag)

    def etag(self) -> str | None:
        """Return the ETag of the owner object, whatever its content, or None if there is none.
        Raises StoreError."""
        head = self.head(self._key)
        return None if head is None else head.etag

    def write(self, owner: BucketOwner, expected: str | None) -> None:
        """Write the owner object.

        Raises Occupied if another one is there, StoreError.

        Args:
            expected: ABSENT or the ETag of the object that is replaced: heeded as far as the store
                heeds conditions.
        """
        self.put(self._key, owner.text(), {}, expected)

    def listed(self) -> Sequence[str]:
        """Return the first keys below the prefix, without those of this module. Raises
        StoreError."""
        prefix = f"{self.prefix}/" if self.prefix else ""
        answer = self._call("list_objects_v2", None, Prefix=prefix, MaxKeys=LISTED)
        keys = (object_["Key"] for object_ in answer.get("Contents", []))
        probes = probes_below(self.prefix)
        return [key for key in keys if key != self._key and not key.startswith(probes)]

    def ask_conditions(self) -> Conditions:
        """Find out which conditions of a PUT the store heeds. Raises StoreError when its answers
        do not tell.

        A store that heeds If-Match must also take the right ETag: Ceph 16 refuses every one.
        """
        key = probe_key(self.prefix, secrets.token_hex(8))
        try:
            etag = self.put(key, b"1", {}).head.etag
            if not self._refuses(key, b"2", "If-None-Match", "*"):
                return Conditions.NONE
            if not self._refuses(key, b"3", "If-Match", f'"{"0" * 32}"'):
                return Conditions.CREATE
            is_taken = not self._refuses(key, b"4", "If-Match", f'"{etag}"')
            return Conditions.REPLACE if is_taken else Conditions.CREATE
        finally:
            self._forget(key)

    def _refuses(self, key: str, body: bytes, header: str, value: str) -> bool:
        """Return whether a PUT with a condition is refused. A store that refuses the header itself
        heeds it no more than one that ignores it."""
        try:
            self._send("put_object", key, {}, {**self._headers({}), header: value}, body)
        except ObjectRefused as exc:
            if client.is_failed_condition(exc):
                return True
            if client.is_lacking(exc):
                return False
            raise
        return False

    def _forget(self, key: str) -> None:
        try:
            self.delete_many([key])
        except StoreError:
            # It is a byte, below a prefix that nothing else reads.
            return

    def _do(
        self, operation: str, key: str | None, request: Callable[[client.BucketConnection], T]
    ) -> T:
        # No permission is asked for: these requests find out whether there is one.
        with self._typed(operation, key):
            return request(self._connected())


def _parsed(key: str, text: bytes) -> BucketOwner:
    try:
        document: Any = json.loads(text)
        time_ns = int(datetime.fromisoformat(document["time"]).timestamp()) * clock.NS
        return BucketOwner(
            str(document["namespace"]),
            str(document["gateway"]),
            int(document["epoch"]),
            str(document["token"]),
            str(document["holder"]),
            str(document["address"]),
            time_ns,
            bool(document["released"]),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise OtherOwner(
            f"{key} cannot be understood ({exc}), so it is not known which gateway has "
            "this prefix: look at the object; spillway adopt bucket --adopt replaces it"
        ) from None
