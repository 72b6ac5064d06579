"""Sender of requests to one bucket: at a pace, with the conditions that its store heeds.

Stores differ: one ignores a condition and overwrites what is there, another one refuses every
request that has it. So a condition is trusted only after the store was seen to heed it
(owner_object.py asks). Errors are mapped to ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from gateway.common import failpoints
from gateway.common.errors import StoreRefused
from gateway.common.failpoints import DRAIN_REQUEST
from gateway.config.settings import Settings
from gateway.objectstore import client
from gateway.objectstore.bodies import Body
from gateway.objectstore.checksums import ChecksumKind
from gateway.objectstore.pace import Gate, Goes, always
from gateway.objectstore.signed_http import StoredBody

ABSENT = "*"
"""Nothing is expected at a key (If-None-Match: *). An ETag, without quotes, expects that object."""


class Conditions(StrEnum):
    """What was seen of a store. Each member also has what the one before it has."""

    NONE = "none"
    """It heeds none that helps."""
    CREATE = "create"
    """PutObject with If-None-Match: * replaces nothing."""
    REPLACE = "replace"
    """PutObject with If-Match replaces that object and no other."""

    @property
    def creates(self) -> bool:
        return self is not Conditions.NONE

    @property
    def replaces(self) -> bool:
        return self is Conditions.REPLACE

    def header(self, expected: str | None) -> dict[str, str]:
        """Return the header of a PUT that expects something at its key (ABSENT or an ETag), or
        nothing if the store does not heed it, or nothing is expected."""
        if expected == ABSENT:
            return {"If-None-Match": "*"} if self.creates else {}
        return {"If-Match": f'"{expected}"'} if expected and self.replaces else {}


T = TypeVar("T")


class Requests:
    """Sends requests to one bucket. It is safe to use from several threads.

    Nothing is contacted yet.

    Args:
        pace: lets requests pass (None: all at once).
        attempts: how often to try a request.
        address: address of another store's same bucket.
        kind: kind of the checksum that goes with bodies.
    """

    def __init__(
        self,
        settings: Settings,
        pace: Gate | None = None,
        attempts: int | None = None,
        address: str | None = None,
        kind: ChecksumKind = ChecksumKind.MD5,
    ) -> None:
        self.kind = kind
        """Changes at the most once, before the first body is sent."""
        self.conditions = Conditions.NONE
        """What the store heeds. Changes at the most once, before the first body is sent."""
        self.permit: Callable[[], None] | None = None
        """Called before each request that changes something. It raises StoreError if this gateway
        may not: the bucket and prefix may be another one's (gateway.objectstore.ownership)."""
        self._address = address
        self._pace = pace
        self._attempts = client.ATTEMPTS_MAX if attempts is None else attempts
        self._settings = settings
        self._making = threading.Lock()
        self._connection: client.BucketConnection | None = None
        self._credentials: client.FileStamp | None = None
        """The credentials file from which the connection was made."""
        self._kept_as = _kept_as(settings)

    def reload(self) -> None:
        """Read the credentials again at the next request, also if their file looks unchanged."""
        self._connection = None

    def require_permit(self) -> None:
        """Raise StoreError if this gateway may not change anything in the bucket now."""
        if self.permit is not None:
            self.permit()

    def check(self) -> None:
        """Check that the bucket answers. Raises StoreUnavailable or StoreRefused, with a remedy."""
        prefix = self._settings.bucket.prefix
        self._call("list_objects_v2", None, Prefix=f"{prefix}/" if prefix else "", MaxKeys=1)

    def address(self) -> str:
        """Return the URL of the bucket's objects, up to their keys. Raises StoreRefused."""
        with self._typed("put_object", None):
            return self._connected().address

    def _send(
        self,
        operation: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Body,
        also: Collection[ChecksumKind] = (),
        goes_first: Goes = always,
    ) -> tuple[StoredBody, dict[str, Any]]:
        """Send a body; returns also the part of the answer that describes the object."""
        kind = self.kind
        sent = self._do(
            operation,
            key,
            lambda to: to.wire.put(operation, key, query, headers, body, kind, also, goes_first),
        )
        described: dict[str, Any] = {
            "ETag": sent.headers.get("etag", ""),
            kind.field: sent.headers.get(kind.header.lower(), ""),
        }
        if kms := sent.headers.get("x-amz-server-side-encryption"):
            described["ServerSideEncryption"] = kms
        return sent, described

    def _call(self, operation: str, key: str | None, **arguments: Any) -> dict[str, Any]:
        if key is not None:
            arguments["Key"] = key
        answer: dict[str, Any] = self._do(
            operation,
            key,
            lambda to: getattr(to.client, operation)(
                Bucket=self._settings.bucket.name, **arguments
            ),
        )
        return answer

    def _do(
        self, operation: str, key: str | None, request: Callable[[client.BucketConnection], T]
    ) -> T:
        if not operation.startswith(_READS):
            self.require_permit()
        with self._typed(operation, key):
            connected = self._connected()
            failpoints.hit_counted(DRAIN_REQUEST.format(operation=operation, when="before"))
            answer = request(connected)
            failpoints.hit_counted(DRAIN_REQUEST.format(operation=operation, when="after"))
            return answer

    def _connected(self) -> client.BucketConnection:
        """Return the connection, a new one if the credentials file has changed: a session token
        lives for an hour or so, and what renews it writes the file before that."""
        # To make one takes half a second of processor time: not once in each of many threads.
        with self._making:
            # The name is local because another thread may call reload() meanwhile.
            connected, stamp = self._connection, client.stamp_of(self._settings)
            if connected is not None and stamp in (None, self._credentials):
                return connected
            self._credentials = stamp
            try:
                connected = client.BucketConnection(
                    self._settings, self._pace, self._attempts, self._address
                )
            except StoreRefused:
                # A file that is being written cannot be used yet: the former credentials still can.
                if connected is None:
                    raise
            self._connection = connected
            return connected

    @contextmanager
    def _typed(self, operation: str, key: str | None) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError, ResponseParserError) as exc:
            if client.refuses_credentials(exc):
                self.reload()
            raise client.typed(self._settings, operation, key, exc) from exc

    def _headers(self, metadata: Mapping[str, str]) -> dict[str, str]:
        headers = {f"x-amz-meta-{name}": value for name, value in metadata.items()}
        return headers | {_HEADERS[name]: value for name, value in self._kept_as.items()}


_READS = ("head_", "get_", "list_", "restore_")
"""The beginnings of the operations that change no object."""
_HEADERS = {
    "StorageClass": "x-amz-storage-class",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
}


def _kept_as(settings: Settings) -> dict[str, str]:
    """Return the arguments that tell the store how to keep a new object or a copy."""
    bucket = settings.bucket
    wanted = {
        "StorageClass": bucket.storage_class,
        "ServerSideEncryption": bucket.encryption,
        "SSEKMSKeyId": bucket.kms_key,
    }
    return {name: value for name, value in wanted.items() if value}
