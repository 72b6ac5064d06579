"""Negotiation of the checksum that a store verifies, and its memory.

Wrong checksums are sent to a key of ours. A server that does not know the newer checksums accepts
wrong ones. Only a refusal shows that a checksum is verified. A store may also refuse the header
itself, so it must accept the right checksum too, and tell it afterwards. All this must hold for
whole objects and for parts.

A person may name the checksum (``bucket.checksum``). Otherwise the store is asked once: by the
drain before its first upload, or by ``spillway bucket setup``.
"""

from __future__ import annotations

import base64
import logging
import secrets
from contextlib import suppress

from sqlalchemy import delete, insert, select

from gateway.common import clock
from gateway.common.errors import ObjectRefused, StoreError
from gateway.config.settings import CHECKSUM_AUTO, BucketSettings, Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import endpoint
from gateway.objectstore import client
from gateway.objectstore.bodies import digest
from gateway.objectstore.checksums import ChecksumKind
from gateway.objectstore.key_mapper import probe_key
from gateway.objectstore.pace import Gate
from gateway.objectstore.s3 import S3Store

log = logging.getLogger("drain")

BODY = b"Spillway asks which checksums this store verifies.\n"


def negotiate(settings: Settings, pace: Gate | None = None) -> ChecksumKind | None:
    """Return the cheapest checksum that the store verifies, which is MD5 if it verifies no other.

    None means that the answers of the store did not tell this time, so the caller uses MD5 and may
    ask again.

    Args:
        pace: the limits that every request keeps.
    """
    for kind in (ChecksumKind.CRC64NVME, ChecksumKind.CRC32C):
        is_verified = _Trial(settings, kind, pace).is_verified()
        if is_verified is not False:
            return kind if is_verified else None
    # A store that takes no object at all (its key is disabled, the storage class is unknown) also
    # refuses both wrong and right checksums.
    return ChecksumKind.MD5 if _Trial(settings, ChecksumKind.MD5, pace).takes_objects() else None


class _Trial(S3Store):
    """A store that is assumed to verify one kind of checksum."""

    def __init__(self, settings: Settings, kind: ChecksumKind, pace: Gate | None) -> None:
        super().__init__(settings, pace=pace, kind=kind)
        # Another gateway may be asking at the same time.
        self._key = probe_key(settings.bucket.prefix, secrets.token_hex(8))

    def is_verified(self) -> bool | None:
        """Return whether the store verifies the checksum, or None if its answers do not tell."""
        try:
            return self._of_objects() and self._of_parts()
        except StoreError as exc:
            # An ObjectRefused without a cause comes from our own comparison: the store took the
            # object, and its answer has no checksum or another one.
            is_verdict = isinstance(exc, ObjectRefused) and exc.__cause__ is None
            if is_verdict or _is_refusal(exc):
                return False
            log.warning("cannot find out whether the bucket verifies %s: %s", self.kind, exc)
            return None
        finally:
            self._delete()

    def takes_objects(self) -> bool:
        """Return whether the store takes an object with this checksum, sent as any other object."""
        try:
            self.put(self._key, BODY, {})
        except StoreError as exc:
            log.warning("cannot find out which checksums the bucket verifies: %s", exc)
            return False
        finally:
            self._delete()
        return True

    def _delete(self) -> None:
        try:
            refused = self.delete_many([self._key])[self._key]
        except StoreError as exc:
            refused = exc
        if refused is not None:
            log.warning("an object of %d bytes stays at %s: %s", len(BODY), self._key, refused)

    def _of_objects(self) -> bool:
        # A policy may deny objects that are not encrypted as it says.
        if not self._refuses_wrong("put_object", {}, self._headers({})):
            return False
        self.put(self._key, BODY, {})
        return True

    def _of_parts(self) -> bool:
        upload_id = self.begin(self._key, {})
        query = {"partNumber": "1", "uploadId": upload_id}
        try:
            if not self._refuses_wrong("upload_part", query, {}):
                self.abort(self._key, upload_id)
                return False
            part = self.put_part(self._key, upload_id, 1, BODY)
            # An interrupted upload resumes with the parts that the store lists.
            listed = self.parts(self._key, upload_id)
            if listed is None or not listed[1].has(part.digests, self.kind):
                self.abort(self._key, upload_id)
                return False
            self.complete(self._key, upload_id, [part], len(BODY), {})
        except StoreError:
            with suppress(StoreError):
                self.abort(self._key, upload_id)
            raise
        return True

    def _refuses_wrong(
        self, operation: str, query: dict[str, str], headers: dict[str, str]
    ) -> bool:
        right = digest(BODY, {self.kind}).value(self.kind)
        wrong = base64.b64encode(bytes(byte ^ 0xFF for byte in right)).decode()
        try:
            self._send(operation, self._key, query, {**headers, self.kind.header: wrong}, BODY)
        except StoreError as exc:
            if _is_refusal(exc):
                return True
            raise
        return False


def _is_refusal(exc: StoreError) -> bool:
    """Return whether the store refuses the checksum or the kind of request. False means that it
    refuses our credentials, or cannot answer now."""
    return client.code_in(exc) == "BadDigest" or client.is_lacking(exc)


ENDPOINT = Statement(
    select(endpoint.c.checksum).where(endpoint.c.url == b("url"), endpoint.c.bucket == b("bucket"))
)
ENDPOINT_INSERT = Statement(insert(endpoint))
ENDPOINT_DELETE = Statement(
    delete(endpoint).where(endpoint.c.url == b("the_url"), endpoint.c.bucket == b("the_bucket"))
)


def configured(bucket: BucketSettings) -> ChecksumKind | None:
    """Return the checksum that a person chose, or None if the store is to be asked."""
    return None if bucket.checksum == CHECKSUM_AUTO else ChecksumKind(bucket.checksum)


def known(session: Session, bucket: BucketSettings) -> ChecksumKind | None:
    """Return the checksum for a store, or None if the store was not asked yet or its answers did
    not tell."""
    if (chosen := configured(bucket)) is not None:
        return chosen
    row = session.one(ENDPOINT, url=bucket.endpoint_url, bucket=bucket.name)
    return None if row is None else ChecksumKind(row[0])


def remember(session: Session, bucket: BucketSettings, kind: ChecksumKind) -> None:
    """Record the kind of checksum that a store was found to verify."""
    session.run(ENDPOINT_DELETE, the_url=bucket.endpoint_url, the_bucket=bucket.name)
    session.run(
        ENDPOINT_INSERT,
        url=bucket.endpoint_url,
        bucket=bucket.name,
        checksum=kind.value,
        asked_ns=clock.now_ns(),
    )
