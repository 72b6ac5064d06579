"""S3 requests of the drain, each with its checks, without files or the database.

Every body is sent with a checksum that the server verifies. It is Content-MD5, which every S3
server checks, or a newer one (x-amz-checksum-*) if the server was seen to refuse a wrong one. Each
answer says what the server stored: the newer checksum, or an ETag that is an MD5, and the size. It
is compared before a caller may believe it. Errors are raised as the three classes below StoreError.
No message has a secret.

Requests are seldom repeated here: the drain repeats jobs, with its own pauses, and shows that it
does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from gateway.common import clock
from gateway.common.errors import (
    Deferred,
    ObjectRefused,
    Occupied,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
)
from gateway.config.settings import Settings
from gateway.objectstore import client
from gateway.objectstore.bodies import Body
from gateway.objectstore.checksums import BodyChecksums, ChecksumKind, ExpectedChecksum, sum_of
from gateway.objectstore.deletions import Deletions
from gateway.objectstore.objects import (
    COPY_MAX_BYTES,
    COPY_PART_BYTES,
    PART_BYTES,
    BegunCopy,
    Head,
    ListedObject,
    ListedPart,
    Part,
    PendingUpload,
    VerifiedObject,
    etag_of,
    form,
    is_opaque,
    is_plain_md5,
    part_bytes_of,
    require,
    require_sum,
    sum_in,
)
from gateway.objectstore.pace import Gate, Goes, always
from gateway.objectstore.part_copies import InMemory, PartCopy, in_flight
from gateway.objectstore.request import ABSENT
from gateway.objectstore.signed_http import StoredBody

_UNKNOWN_UPLOAD = ("NoSuchUpload", "NoSuchKey", "404")
"""Answers about a multipart upload that the store does not know, or that was completed. Ceph
answers the second one to a request for its parts."""

PART_COPIES = 8
"""The parts that are copied at a time, of all copies. Each only waits for the store."""

T = TypeVar("T")


class S3Store(Deletions):
    """One bucket. It is safe to use from several threads.

    Args:
        settings, pace, attempts, address, kind: as of Requests.
        copy_max_bytes: the limit for one CopyObject.
    """

    def __init__(
        self,
        settings: Settings,
        copy_max_bytes: int = COPY_MAX_BYTES,
        pace: Gate | None = None,
        attempts: int | None = None,
        address: str | None = None,
        kind: ChecksumKind = ChecksumKind.MD5,
    ) -> None:
        super().__init__(settings, pace, attempts, address, kind)
        self._bucket = settings.bucket.name
        self.copy_max_bytes = copy_max_bytes
        """Larger objects are copied in parts."""
        self._part_copies = threading.BoundedSemaphore(PART_COPIES)
        self._begun: dict[Hashable, BegunCopy] = {}
        """The copies in parts that were begun and have not ended."""

    def head(self, key: str, with_sum: bool = False) -> Head | None:
        """Return what is stored at a key, or None. Raises StoreError.

        AWS refuses that for an object whose KMS key we may not use, so a deletion must not ask.

        Args:
            with_sum: ask also for the newer checksum, if the store verifies one.
        """
        asks = {"ChecksumMode": "ENABLED"} if with_sum and self.kind is not ChecksumKind.MD5 else {}
        try:
            answer = self._call("head_object", key, **asks)
        except ObjectRefused as exc:
            if client.code_in(exc) in client.NO_OBJECT:
                return None
            if client.code_in(exc) in ("403", "Forbidden"):
                # An answer to HEAD has no body that could name the reason. The bucket's answer
                # does, where the reason is that of all requests.
                self.check()
            raise
        return Head(
            answer["ContentLength"],
            etag_of(answer),
            {name.lower(): value for name, value in answer["Metadata"].items()},
            is_opaque(answer),
            sum_in(answer, self.kind),
            answer.get("StorageClass", ""),
        )

    def put(
        self, key: str, body: Body, metadata: Mapping[str, str], there: str | None = None
    ) -> VerifiedObject:
        """Store an object in one request and verify it. Raises StoreError.

        The store confirms the bytes by their checksum in its answer, or by an ETag that is their
        MD5. An answer without either (the store encrypts) makes us ask for the object.

        Raises Occupied if it is something else.

        Args:
            there: what is at the key now: ABSENT, or the ETag of an object (heeded if the store
                heeds it), or None for anything.
        """
        if self.looks_first(there) and self.head(key) is not None:
            raise Occupied(f"{key}: something is there already")
        headers = self._headers(metadata)

        def send(condition: dict[str, str]) -> tuple[StoredBody, dict[str, Any]]:
            return self._send("put_object", key, {}, headers | condition, body)

        try:
            sent, answer = self._where_nothing_is(key, there, self.conditions.header(there), send)
        except ObjectRefused as exc:
            if there is not None and client.is_failed_condition(exc):
                raise Occupied(f"{key}: something else is there already") from exc
            raise
        expected = sent.digests.sum(self.kind)
        if require_sum(answer, expected, key) and etag_of(answer):
            stored_sum = sum_in(answer, self.kind)
            head = Head(len(body), etag_of(answer), dict(metadata), False, stored_sum)
        else:
            head = self._verified(key, len(body), expected)
        return VerifiedObject(head, sent.digests, sent.is_repeated)

    def looks_first(self, there: str | None) -> bool:
        """Return whether ``put`` asks first what is at the key: a request more.

        Args:
            there: as of ``put``.
        """
        return there == ABSENT and not self.conditions.creates

    def has(self, head: Head, digests: BodyChecksums) -> bool:
        """Return whether an object that was sent in one request is shown to be of some bytes."""
        return digests.sum(self.kind) in (head.sum, ExpectedChecksum(ChecksumKind.MD5, head.etag))

    def begin(self, key: str, metadata: Mapping[str, str]) -> str:
        """Start a multipart upload. Returns its id.

        Raises StoreError. After StoreUnavailable, an upload with an unknown id may exist.
        """
        return self._begin(key, metadata, self._checksum_of_parts() | self._kept_as)

    def _begin(self, key: str, metadata: Mapping[str, str], how: Mapping[str, str]) -> str:
        answer = self._call("create_multipart_upload", key, Metadata=metadata, **how)
        upload_id: str = answer["UploadId"]
        return upload_id

    def _checksum_of_parts(self) -> dict[str, str]:
        if self.kind is ChecksumKind.MD5:
            return {}
        return {"ChecksumAlgorithm": self.kind.algorithm, "ChecksumType": "FULL_OBJECT"}

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: Body,
        also: Collection[ChecksumKind] = (),
        goes_first: Goes = always,
    ) -> Part:
        """Send one part and verify the answer. Raises StoreError.

        Args:
            number: number from 1.
            also: other checksums of the part that are wanted.
            goes_first: for the pace.
        """
        query = {"partNumber": str(number), "uploadId": upload_id}
        sent, answer = self._send("upload_part", key, query, {}, body, also, goes_first)
        require_sum(answer, sent.digests.sum(self.kind), key)
        return Part(number, answer["ETag"], sent.digests)

    def parts(self, key: str, upload_id: str) -> dict[int, ListedPart] | None:
        """Return the parts that the store has of an upload, by number.

        None means that the store does not know the upload, or that the upload was begun with
        another checksum. Then it takes no parts with ours, and it is aborted. Raises StoreError.
        """
        wanted = None if self.kind is ChecksumKind.MD5 else self.kind.algorithm
        return self._listed(key, upload_id, wanted)

    def _listed(
        self, key: str, upload_id: str, algorithm: str | None = None
    ) -> dict[int, ListedPart] | None:
        """Return the parts of an upload.

        Args:
            algorithm: that of the checksum that it must have been begun with; None for any.
        """
        parts: dict[int, ListedPart] = {}
        marker = 0
        while True:
            try:
                answer = self._call("list_parts", key, UploadId=upload_id, PartNumberMarker=marker)
            except (ObjectRefused, StoreRefused) as exc:
                if client.code_in(exc) in _UNKNOWN_UPLOAD:
                    return None
                raise
            used = str(answer.get("ChecksumAlgorithm")).upper()
            if algorithm is not None and used != algorithm:
                self.abort(key, upload_id)
                return None
            for part in answer.get("Parts", []):
                listed = ListedPart(etag_of(part), part["Size"], sum_in(part, self.kind))
                parts[part["PartNumber"]] = listed
            last = max(parts, default=0)
            if not answer.get("IsTruncated") or last == marker:
                return parts
            marker = last

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        size: int,
        metadata: Mapping[str, str],
        there: str | None = None,
    ) -> Head:
        """Make the object of its parts and verify it. Raises StoreError.

        If the store no longer knows the upload, or a try got no answer, the object may be there.
        Then the checksum or the metadata must prove that it is this one. The same holds if
        something is at the key at which nothing is expected. After StoreSlow, the store may still
        make the object.

        Args:
            there: as of ``put``.
        """
        kind = self.kind
        expected = sum_of([part.digests for part in parts], kind)
        listed = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        how: dict[str, str] = {}
        if kind is not ChecksumKind.MD5:
            how = {kind.field: expected.value, "ChecksumType": "FULL_OBJECT"}
            for listed_part, part in zip(listed, parts, strict=True):
                listed_part[kind.field] = part.digests.header(kind)
        absent = self._if_absent(there)

        def complete(condition: dict[str, str]) -> dict[str, Any] | None:
            return self._complete(key, upload_id, listed, how | condition)

        for tries_left in reversed(range(self._attempts)):
            try:
                answered = self._where_nothing_is(key, there, absent, complete)
                break
            except StoreBusy:
                raise
            except StoreUnavailable as exc:
                object_head = self.head(key, with_sum=True)
                if object_head is not None and is_made_of(object_head, size, expected, metadata):
                    return self.compare(key, object_head, size, expected)
                if not tries_left or isinstance(exc, StoreSlow):
                    raise
        if answered is not None:
            require_sum(answered, expected, key)
        head = self._verified(key, size, expected)
        if answered is None and not is_made_of(head, size, expected, metadata):
            raise ObjectRefused(f"{key}: the multipart upload is gone; it will be sent again")
        return head

    def abort(self, key: str, upload_id: str) -> None:
        """Abort a multipart upload. It is no error if the upload is gone already."""
        try:
            self._call("abort_multipart_upload", key, UploadId=upload_id)
        except ObjectRefused as exc:
            if client.code_in(exc) not in _UNKNOWN_UPLOAD:
                raise

    def copied(self, target: str, head: Head, metadata: Mapping[str, str]) -> Head | None:
        """Return what is at the target of a copy that got no answer, if it is the copy.

        Raises StoreError.

        Args: as of ``copy``.
        """
        target_head = self.head(target, with_sum=True)
        if target_head is None or target_head.size != head.size:
            return None
        both = (target_head, head)
        if all(either.sum is not None for either in both):
            is_same = target_head.sum == head.sum
        elif all(is_plain_md5(either.etag) and not either.opaque_etag for either in both):
            is_same = target_head.etag == head.etag
        else:
            # A copy in parts has another ETag.
            is_same = bool(metadata)
        return target_head if is_same and _same(target_head.metadata, metadata) else None

    def copy(
        self,
        source: str,
        target: str,
        head: Head,
        metadata: Mapping[str, str],
        storage_class: str | None = None,
        there: str | None = None,
        in_parts: PartCopy | None = None,
    ) -> Head:
        """Copy an object inside the store and verify the copy.

        A large object is copied in parts. If that is interrupted, the next call copies only the
        parts that are missing.

        Raises StoreError; Deferred, if the copy is not wanted any more: the target is then
        untouched, or complete.

        Args:
            head: head of the source (if the source has changed since, the store refuses).
            metadata: metadata of the copy.
            storage_class: None for that of all that is sent.
            there: as of ``put``: not every store heeds it here.
            in_parts: what remembers the copy (default: this object).
        """
        part_bytes = 0
        if head.size > self.copy_max_bytes:
            part_bytes = part_bytes_of(head.size, min(COPY_PART_BYTES, self.copy_max_bytes))
        kept_as = self._keep(storage_class)

        def copy(condition: dict[str, str]) -> Head:
            return self._copy(
                source, target, head, metadata, part_bytes, kept_as, condition, in_parts
            )

        return self._where_nothing_is(target, there, self._if_absent(there), copy)

    def _where_nothing_is(
        self,
        key: str,
        there: str | None,
        condition: dict[str, str],
        send: Callable[[dict[str, str]], T],
    ) -> T:
        """Send a request with its condition. SeaweedFS takes a directory at the key, also an empty
        one, for an object, and would refuse the request for ever: there a look decides."""
        try:
            return send(condition)
        except ObjectRefused as exc:
            is_of_nothing = condition and there == ABSENT and client.is_failed_condition(exc)
            if not is_of_nothing or self.head(key) is not None:
                raise
        return send({})

    def _if_absent(self, there: str | None) -> dict[str, str]:
        """Return the argument of a request that expects nothing at its key."""
        return {"IfNoneMatch": "*"} if there == ABSENT and self.conditions.creates else {}

    def keep_in(self, key: str, head: Head, storage_class: str) -> Head:
        """Copy an object onto itself, into another storage class, and verify it.

        It is copied in the parts that it was sent in. So its ETag stays, except where the store
        makes ETags of other things than bytes. Raises StoreError.

        Args: as of ``copy``.
        """
        part_bytes = 0
        if not is_plain_md5(head.etag) or head.size > self.copy_max_bytes:
            # An object that another program sent does not say in which parts.
            noted_bytes = head.metadata.get(PART_BYTES, "")
            part_bytes = (
                part_bytes_of(head.size, int(noted_bytes)) if noted_bytes.isdecimal() else 0
            )
        if head.size > self.copy_max_bytes and not part_bytes:
            part_bytes = part_bytes_of(head.size, min(COPY_PART_BYTES, self.copy_max_bytes))
        kept, in_parts = self._keep(storage_class), InMemory({}, key)
        try:
            return self._copy(key, key, head, head.metadata, part_bytes, kept, in_parts=in_parts)
        except StoreError:
            # It is not resumed: a completion that is late would put the bytes of this version over
            # those of a newer one.
            if (begun := in_parts.begun()) is not None:
                with suppress(StoreError):
                    self.abort(key, begun.upload_id)
            raise

    def _keep(self, storage_class: str | None) -> dict[str, str]:
        return self._kept_as | ({"StorageClass": storage_class} if storage_class else {})

    def _copy(
        self,
        source: str,
        target: str,
        head: Head,
        metadata: Mapping[str, str],
        part_bytes: int,
        kept_as: Mapping[str, str],
        absent: Mapping[str, str] = MappingProxyType({}),
        in_parts: PartCopy | None = None,
    ) -> Head:
        """Copy an object.

        Args:
            part_bytes: 0 to copy it whole.
            kept_as: how the store is to keep the copy.
            absent: the condition that nothing is at the target.
            in_parts: as of ``copy``.
        """
        copied = False
        if part_bytes:
            described = {**metadata, PART_BYTES: str(part_bytes)}
            if in_parts is None:
                described_as = (*sorted(described.items()), *sorted(kept_as.items()))
                # Without an ETag, parts of another version could not be told from those of this.
                known = self._begun if head.etag else {}
                in_parts = InMemory(known, (source, target, head.etag, head.size, described_as))
            begun, there = self._begin_copy(target, described, part_bytes, kept_as, in_parts)
            copied = self._copy_parts(source, target, head, begun, there, absent, in_parts)
        if not copied:
            self._call(
                "copy_object",
                target,
                CopySource={"Bucket": self._bucket, "Key": source},
                **_changed(head, metadata),
                **kept_as,
                **_if_unchanged(head),
                **absent,
            )
        plain = is_plain_md5(head.etag) and not head.opaque_etag and not copied
        copied_head = self._verified(
            target, head.size, ExpectedChecksum(ChecksumKind.MD5, head.etag) if plain else None
        )
        if head.sum is not None and copied_head.sum is not None:
            require(copied_head.sum.value, head.sum.value, target)
        return copied_head

    def listing(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """Yield all objects whose keys start with a prefix. Raises StoreError.

        Args:
            prefix, after: as of ``pages``.
        """
        for page in self.pages(prefix, after):
            yield from page

    def pages(self, prefix: str, after: str = "") -> Iterator[list[ListedObject]]:
        """Yield all objects whose keys start with a prefix, page by page, in the order that the
        store has for keys.

        Args:
            prefix: the beginning of the keys.
            after: a key, after which the listing begins. It need not exist.

        Raises:
            StoreError: the bucket cannot be read, or its listing has no end.
        """
        begin = {"StartAfter": after} if after else {}
        while True:
            answer = self._call("list_objects_v2", None, Prefix=prefix, **begin)
            yield [
                ListedObject(
                    found["Key"],
                    found["Size"],
                    etag_of(found),
                    int(found["LastModified"].timestamp() * clock.NS),
                )
                for found in answer.get("Contents", [])
            ]
            if not answer.get("IsTruncated"):
                return
            following = {"ContinuationToken": str(answer.get("NextContinuationToken") or "")}
            if following in (begin, {"ContinuationToken": ""}):
                # A list that ends early would make everything behind its end a lost object.
                raise StoreUnavailable("the store does not list all objects: try again")
            begin = following

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """Yield all unfinished multipart uploads of keys that start with a prefix."""
        marker: dict[str, str] = {}
        while True:
            try:
                answer = self._call("list_multipart_uploads", None, Prefix=prefix, **marker)
            except StoreRefused as exc:
                if client.code_in(exc) == "NoSuchUpload":
                    return  # rclone's way to say: none
                raise
            for upload in answer.get("Uploads", []):
                yield PendingUpload(upload["Key"], upload["UploadId"], upload["Initiated"])
            found_next = {
                "KeyMarker": str(answer.get("NextKeyMarker") or ""),
                "UploadIdMarker": str(answer.get("NextUploadIdMarker") or ""),
            }
            # Without these checks, a page without a next one, or with itself as the next one, would
            # be requested for ever.
            if not answer.get("IsTruncated") or found_next["KeyMarker"] == "":
                return
            if found_next == marker:
                return
            marker = found_next

    def _begin_copy(
        self,
        target: str,
        metadata: Mapping[str, str],
        part_bytes: int,
        kept_as: Mapping[str, str],
        in_parts: PartCopy,
    ) -> tuple[BegunCopy, dict[int, ListedPart]]:
        """Return the upload of a copy in parts, and the parts that an earlier try has copied."""
        begun = in_parts.begun()
        if begun is not None:
            there = self._listed(target, begun.upload_id)
            if there is not None:
                return begun, there
        begun = BegunCopy(self._begin(target, metadata, kept_as), part_bytes)
        in_parts.record(begun)
        return begun, {}

    def _copy_parts(
        self,
        source: str,
        target: str,
        head: Head,
        begun: BegunCopy,
        there: Mapping[int, ListedPart],
        absent: Mapping[str, str],
        in_parts: PartCopy,
    ) -> bool:
        """Copy in ranges. Returns False if the server cannot, though it may answer 200 (rclone).

        After an error that says nothing of the object, the upload stays, to be resumed.

        Args:
            there: the parts that need not be copied.
        """
        upload_id, part_bytes = begun
        count = -(-head.size // part_bytes)

        def copy_one(number: int) -> dict[str, Any]:
            start = (number - 1) * part_bytes
            end = min(start + part_bytes, head.size) - 1
            part = there.get(number)
            if part is not None and part.size == end - start + 1:
                return {"PartNumber": number, "ETag": f'"{part.etag}"'}
            with self._part_copies:
                answer = self._call(
                    "upload_part_copy",
                    target,
                    UploadId=upload_id,
                    PartNumber=number,
                    CopySource={"Bucket": self._bucket, "Key": source},
                    CopySourceRange=f"bytes={start}-{end}",
                    **_if_unchanged(head),
                )
            return {"PartNumber": number, "ETag": answer["CopyPartResult"].get("ETag")}

        try:
            first = copy_one(1)
            if not first["ETag"]:
                self.abort(target, upload_id)
                in_parts.ended()
                return False
            rest = in_flight(
                range(2, count + 1), PART_COPIES, copy_one, lambda _part: in_parts.is_wanted()
            )
            if rest is None:
                raise Deferred(f"the copy to {target} is interrupted: it is resumed, or aborted")
            if self._complete(target, upload_id, [first, *rest], absent) is None:
                raise ObjectRefused(f"{target}: the copy's multipart upload is gone")
        except ObjectRefused:
            # The next try would get the same answer, or needs another upload.
            with suppress(StoreError):
                self.abort(target, upload_id)
                in_parts.ended()
            raise
        in_parts.ended()
        return True

    def _complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Mapping[str, Any]],
        how: Mapping[str, str],
    ) -> dict[str, Any] | None:
        try:
            return self._call(
                "complete_multipart_upload",
                key,
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
                **how,
            )
        except ObjectRefused as exc:
            if client.code_in(exc) in _UNKNOWN_UPLOAD or client.is_failed_condition(exc):
                return None
            raise

    def _verified(self, key: str, size: int, expected: ExpectedChecksum | None) -> Head:
        """Ask (HEAD) for what was just stored, and compare."""
        head = self.head(key, with_sum=True)
        if head is None:
            raise ObjectRefused(f"{key}: stored, but the store does not have it")
        return self.compare(key, head, size, expected)

    def compare(self, key: str, head: Head, size: int, expected: ExpectedChecksum | None) -> Head:
        """Return what the store has at a key, if it has these bytes. Raises ObjectRefused.

        Args:
            head: asked for with the checksum.
            size, expected: those of the bytes.
        """
        if head.size != size:
            raise ObjectRefused(f"{key}: stored {size} bytes, the store has {head.size}")
        if expected is None:
            return head
        # ETags are compared only if they have the same form: some servers answer the MD5 of the
        # whole for an object of parts. A newer checksum must be in the answer, because it is used
        # only with stores that tell it.
        if expected.kind is not ChecksumKind.MD5:
            if head.sum is None:
                raise ObjectRefused(
                    f"{key}: stored, but the store does not tell its {expected.kind}: find out "
                    "which checksums it verifies: spillway bucket setup"
                )
            require(head.sum.value, expected.value, key)
        elif not head.opaque_etag and form(head.etag) == form(expected.value):
            require(head.etag, expected.value, key)
        return head


def _changed(head: Head, metadata: Mapping[str, str]) -> dict[str, Any]:
    if metadata == head.metadata:
        # A server that does not show the metadata to us may still copy it.
        return {"MetadataDirective": "COPY"}
    return {"MetadataDirective": "REPLACE", "Metadata": metadata}


def _if_unchanged(head: Head) -> dict[str, str]:
    return {"CopySourceIfMatch": f'"{head.etag}"'} if head.etag else {}


def is_made_of(
    head: Head, size: int, expected: ExpectedChecksum, metadata: Mapping[str, str]
) -> bool:
    """Return whether an object that was there already is proven to be of these bytes: by its
    checksum, or by the metadata that it was sent with."""
    is_proven = expected in (head.sum, ExpectedChecksum(ChecksumKind.MD5, head.etag))
    return head.size == size and (is_proven or _same(head.metadata, metadata))


def _same(stored: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    return all(stored.get(name) == value for name, value in sent.items())
