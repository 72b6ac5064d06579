"""The S3 requests of the drain, each with its checks; knows nothing of files or the database.

Every body goes out with Content-MD5, which every S3 server checks; what the server says it stored
(ETag where it is an MD5, size always) is compared before a caller may believe it. The newer
checksums in trailers are switched off: many servers do not decode them. Errors come out as the
three classes below BucketError; no message holds a secret.

boto's own retries are few: the drain retries, with its own pauses, and shows that it does.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from gateway import failpoints
from gateway.config import Settings
from gateway.errors import BucketError, ObjectRefused, StoreRefused
from gateway.failpoints import DRAIN_REQUEST
from gateway.objectstore import client
from gateway.objectstore.pace import Pace

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

MIB = 1024 * 1024
PARTS_MAX = 10_000
COPY_MAX_BYTES = 5 * 1024 * MIB
"""Most that one CopyObject takes (S3's limit); larger objects are copied in parts."""
COPY_PART_BYTES = 512 * MIB

_MD5 = re.compile("[0-9a-f]{32}")
_MULTIPART_ETAG = re.compile("[0-9a-f]{32}-[0-9]+")


class Part(NamedTuple):
    """One part of a multipart upload, as the store answered."""

    number: int
    etag: str
    digest: bytes
    """MD5 of what was sent."""


class Head(NamedTuple):
    """What the store says about an object."""

    size: int
    """Bytes."""
    etag: str
    """Without quotes."""
    metadata: dict[str, str]
    """Names in lower case (servers differ)."""
    opaque_etag: bool
    """The object is encrypted with a key of the store: its ETag looks like an MD5 but is none."""


class PendingUpload(NamedTuple):
    """A multipart upload that was neither completed nor aborted."""

    key: str
    upload_id: str
    initiated: datetime


def part_bytes_of(size: int, wanted_bytes: int) -> int:
    """Size of the parts of an object, so that the most parts S3 takes suffice; whole MiB."""
    least = -(-size // PARTS_MAX)
    return max(wanted_bytes, -(-least // MIB) * MIB)


def multipart_etag(digests: Sequence[bytes]) -> str:
    """The ETag S3 gives an object of parts: the MD5 of their MD5s, and their number."""
    return f"{_md5(b''.join(digests)).hexdigest()}-{len(digests)}"


class S3Store:
    """One bucket. Safe to use from several threads.

    Parameters: settings; copy_max_bytes, what one CopyObject may take; pace, which lets requests
    pass (None: all at once). Nothing is contacted yet.
    """

    def __init__(
        self,
        settings: Settings,
        copy_max_bytes: int = COPY_MAX_BYTES,
        pace: Pace | None = None,
    ) -> None:
        self._pace = pace
        self._settings = settings
        self._bucket = settings.bucket.name
        self._copy_max_bytes = copy_max_bytes
        self._client: S3Client | None = None

    def reload(self) -> None:
        """Read the credentials again at the next request: a person may have corrected them."""
        self._client = None

    def check(self) -> None:
        """Whether the bucket answers us. Raises StoreUnavailable or StoreRefused, with a remedy."""
        prefix = self._settings.bucket.prefix
        self._call("list_objects_v2", None, Prefix=f"{prefix}/" if prefix else "", MaxKeys=1)

    def head(self, key: str) -> Head | None:
        """What is stored at a key; None: nothing."""
        try:
            answer = self._call("head_object", key)
        except ObjectRefused as exc:
            if _code(exc) in ("404", "NoSuchKey", "NotFound"):
                return None
            raise
        return Head(
            answer["ContentLength"],
            _etag(answer),
            {name.lower(): value for name, value in answer["Metadata"].items()},
            _is_opaque(answer),
        )

    def put(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Head:
        """Store an object in one request and make sure of it. Raises BucketError."""
        digest = _md5(body)
        answer = self._call(
            "put_object",
            key,
            Body=body,
            ContentMD5=base64.b64encode(digest.digest()).decode(),
            Metadata=metadata,
        )
        _require_etag(answer, digest.hexdigest(), key)
        return self._verified(key, len(body), digest.hexdigest())

    def begin(self, key: str, metadata: Mapping[str, str]) -> str:
        """Start a multipart upload; returns its id."""
        upload_id: str = self._call("create_multipart_upload", key, Metadata=metadata)["UploadId"]
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, body: bytes) -> Part:
        """Send one part (numbers start at 1) and make sure of it."""
        digest = _md5(body)
        answer = self._call(
            "upload_part",
            key,
            UploadId=upload_id,
            PartNumber=number,
            Body=body,
            ContentMD5=base64.b64encode(digest.digest()).decode(),
        )
        _require_etag(answer, digest.hexdigest(), key)
        return Part(number, answer["ETag"], digest.digest())

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        size: int,
        metadata: Mapping[str, str],
    ) -> Head:
        """Make the object of its parts and make sure of it. Raises BucketError.

        An upload the store no longer knows may be one whose first answer was lost: then the object
        must prove to be this one.
        """
        expected = multipart_etag([part.digest for part in parts])
        answered = self._complete(key, upload_id, [(part.number, part.etag) for part in parts])
        if answered is not None and _MULTIPART_ETAG.fullmatch(_etag(answered)):
            _require_etag(answered, expected, key)
        head = self._verified(key, size, expected)
        if answered is None and head.etag != expected and not _same(head.metadata, metadata):
            raise ObjectRefused(f"{key}: the multipart upload is gone; it will be sent again")
        return head

    def abort(self, key: str, upload_id: str) -> None:
        """Give up a multipart upload. One that is already gone is fine."""
        try:
            self._call("abort_multipart_upload", key, UploadId=upload_id)
        except ObjectRefused as exc:
            if _code(exc) not in ("NoSuchUpload", "404"):
                raise

    def delete(self, key: str) -> None:
        """Delete an object. One that is already gone is fine."""
        try:
            self._call("delete_object", key)
        except ObjectRefused as exc:
            if _code(exc) not in ("NoSuchKey", "404"):
                raise

    def copy(self, source: str, target: str, head: Head) -> Head:
        """Copy an object inside the store, metadata and all, and make sure of the copy.

        Parameters: head, of the source: if the source is no longer that, the store refuses.
        Raises: BucketError. The target is untouched, or complete.
        """
        copied = head.size > self._copy_max_bytes and self._copy_parts(source, target, head)
        if not copied:
            self._call(
                "copy_object",
                target,
                CopySource={"Bucket": self._bucket, "Key": source},
                MetadataDirective="COPY",
                **_if_still(head),
            )
        plain = _MD5.fullmatch(head.etag) and not head.opaque_etag and not copied
        return self._verified(target, head.size, head.etag if plain else None)

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """All unfinished multipart uploads of keys that start with a prefix."""
        marker: dict[str, str] = {}
        while True:
            try:
                answer = self._call("list_multipart_uploads", None, Prefix=prefix, **marker)
            except StoreRefused as exc:
                if _code(exc) == "NoSuchUpload":
                    return  # rclone's way to say: none
                raise
            for found in answer.get("Uploads", []):
                yield PendingUpload(found["Key"], found["UploadId"], found["Initiated"])
            if not answer.get("IsTruncated"):
                return
            marker = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer["NextUploadIdMarker"],
            }

    def _copy_parts(self, source: str, target: str, head: Head) -> bool:
        """Copy range by range. False: the server cannot, though it may answer 200 (rclone)."""
        part_bytes = part_bytes_of(head.size, min(COPY_PART_BYTES, self._copy_max_bytes))
        upload_id = self.begin(target, head.metadata)
        done: list[tuple[int, str]] = []
        try:
            for number, start in enumerate(range(0, head.size, part_bytes), 1):
                end = min(start + part_bytes, head.size) - 1
                answer = self._call(
                    "upload_part_copy",
                    target,
                    UploadId=upload_id,
                    PartNumber=number,
                    CopySource={"Bucket": self._bucket, "Key": source},
                    CopySourceRange=f"bytes={start}-{end}",
                    **_if_still(head),
                )
                if not answer["CopyPartResult"].get("ETag"):
                    self.abort(target, upload_id)
                    return False
                done.append((number, answer["CopyPartResult"]["ETag"]))
            if self._complete(target, upload_id, done) is None:
                raise ObjectRefused(f"{target}: the copy's multipart upload is gone")
        except BaseException:
            # A copy that is not finished is worth nothing; the drain starts it again.
            with suppress(BucketError):
                self.abort(target, upload_id)
            raise
        return True

    def _complete(
        self, key: str, upload_id: str, parts: Sequence[tuple[int, str]]
    ) -> dict[str, Any] | None:
        try:
            return self._call(
                "complete_multipart_upload",
                key,
                UploadId=upload_id,
                MultipartUpload={
                    "Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts]
                },
            )
        except ObjectRefused as exc:
            if _code(exc) == "NoSuchUpload":
                return None
            raise

    def _verified(self, key: str, size: int, etag: str | None) -> Head:
        """HEAD what was just stored and compare. A plain MD5 for an object of parts is no proof
        either way (some servers hash the whole), so ETags are compared only form by form."""
        head = self.head(key)
        if head is None:
            raise ObjectRefused(f"{key}: stored, but the store does not have it")
        if head.size != size:
            raise ObjectRefused(f"{key}: stored {size} bytes, the store has {head.size}")
        if etag is not None and not head.opaque_etag and _form(head.etag) == _form(etag):
            _require(head.etag, etag, key)
        return head

    def _call(self, operation: str, key: str | None, **arguments: Any) -> dict[str, Any]:
        if key is not None:
            arguments["Key"] = key
        try:
            # A local name: another thread may reload() meanwhile.
            connected = self._client
            if connected is None:
                connected = client.connect(self._settings)
                if self._pace is not None:
                    self._pace.attach(connected)
                self._client = connected
            failpoints.hit_counted(DRAIN_REQUEST.format(operation=operation, when="before"))
            answer: dict[str, Any] = getattr(connected, operation)(Bucket=self._bucket, **arguments)
            failpoints.hit_counted(DRAIN_REQUEST.format(operation=operation, when="after"))
        except (ClientError, BotoCoreError, ResponseParserError) as exc:
            raise client.typed(self._settings, operation, key, exc) from exc
        return answer


def _md5(data: bytes) -> Any:
    return hashlib.md5(data, usedforsecurity=False)


def _etag(answer: Mapping[str, Any]) -> str:
    return str(answer.get("ETag", "")).strip('"').lower()


def _if_still(head: Head) -> dict[str, str]:
    return {"CopySourceIfMatch": f'"{head.etag}"'} if head.etag else {}


def _form(etag: str) -> str:
    if _MD5.fullmatch(etag):
        return "md5"
    return "md5 of md5s" if _MULTIPART_ETAG.fullmatch(etag) else "opaque"


def _is_opaque(answer: Mapping[str, Any]) -> bool:
    kms = str(answer.get("ServerSideEncryption", "")).startswith("aws:")
    return kms or "SSECustomerAlgorithm" in answer


def _require_etag(answer: Mapping[str, Any], expected: str, key: str) -> None:
    if not _is_opaque(answer) and _form(_etag(answer)) == _form(expected):
        _require(_etag(answer), expected, key)


def _require(found: str, expected: str, key: str) -> None:
    if found != expected:
        raise ObjectRefused(f"{key}: sent bytes with ETag {expected}, the store has {found}")


def _same(found: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    return all(found.get(name) == value for name, value in sent.items())


def _code(exc: BucketError) -> str:
    cause = exc.__cause__
    return client.code_of(cause) if isinstance(cause, ClientError) else ""
