"""Comparison of a manifest with a bucket, through boto3 alone: no database, no data directory.

A member is proven by the checksum that the store tells, by its ETag, or (deep) by its bytes. An
object that was copied from another bucket may have another ETag: its checksum decides.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from awscrt.checksums import crc32c, crc64nvme
from botocore.exceptions import ClientError

from gateway.catalogue.manifests import FORMAT
from gateway.common.errors import SpillwayError
from gateway.objectstore.client import code_of
from gateway.objectstore.objects import etag_of, form, is_opaque

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PIECE_BYTES = 1 << 20
AT_ONCE = 16
"""The members that are asked for at the same time."""
_ABSENT = {"404", "NoSuchKey", "NotFound"}
_FIELDS = {"crc64nvme": "ChecksumCRC64NVME", "crc32c": "ChecksumCRC32C"}
"""The fields of the answer to a HEAD that have the checksum of the whole object."""


class NoManifest(SpillwayError):
    """There is no manifest at a key, or it cannot be understood. The message says why."""


class Differing(NamedTuple):
    """A member that the bucket does not have as the manifest says."""

    path: str
    why: str


def listed(client: S3Client, bucket: str, below: str) -> Iterator[str]:
    """Yield the keys of the manifests below a prefix."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below)
    for page in pages:
        yield from (listed_object["Key"] for listed_object in page.get("Contents", []))


def promoted(client: S3Client, bucket: str, below: str) -> Iterator[str]:
    """Yield the keys of the manifests of promoted copies.

    Args:
        below: all copies are below.
    """
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=below, Delimiter="/"
    )
    for page in pages:
        yield from (
            listed_object["Key"]
            for listed_object in page.get("Contents", [])
            if listed_object["Key"].endswith(".json")
        )


def read(client: S3Client, bucket: str, key: str) -> dict[str, Any]:
    """Return a manifest. Raises NoManifest."""
    try:
        body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except ClientError as exc:
        if code_of(exc) not in _ABSENT:
            raise
        raise NoManifest("there is no manifest: the checkpoint is not known to be whole") from None
    try:
        manifest = json.loads(body)
        number = manifest["spillway_manifest"]
        files = [member for member in manifest["members"] if member["type"] == "file"]
        has_all = all({"path", "size", "key", "etag"} <= file.keys() for file in files)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise NoManifest("it is no whole manifest") from None
    if number != FORMAT:
        raise NoManifest(f"it has format {number}, and this spillway knows {FORMAT}: use a newer")
    if not has_all or manifest.get("files") != len(files):
        raise NoManifest("it does not name the object of each file")
    return dict(manifest)


def differing(
    client: S3Client, bucket: str, manifest: Mapping[str, Any], is_deep: bool
) -> Iterator[Differing]:
    """Yield the members that the bucket does not have as the manifest says. Raises ClientError,
    BotoCoreError.

    Args:
        is_deep: whether to read all bytes.
    """

    def why(member: Mapping[str, Any]) -> str | None:
        return _why(client, bucket, member, is_deep)

    files = (file for file in manifest["members"] if file["type"] == "file")
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="verify") as pool:
        for some in _batches(files):
            for member, difference in zip(some, pool.map(why, some), strict=True):
                if difference is not None:
                    yield Differing(str(member["path"]), difference)


def _batches(members: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    members = iter(members)
    while some := list(islice(members, AT_ONCE * 8)):
        yield some


def _why(client: S3Client, bucket: str, member: Mapping[str, Any], is_deep: bool) -> str | None:
    """Return what is wrong with a member, or None."""
    key = member["key"]
    try:
        head: Mapping[str, Any] = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        if head["ContentLength"] != member["size"]:
            return f"{key} has {head['ContentLength']} bytes instead of {member['size']}"
        is_proven = _proves(head, member)
        if is_deep and is_proven is not False:
            is_proven = _read(client, bucket, member)
    except ClientError as exc:
        if code_of(exc) not in _ABSENT:
            raise
        return f"{key} is missing"
    if is_proven is False:
        return f"{key} has other bytes: not the checksum {member['checksum']}"
    if not is_proven and etag_of(head) != member["etag"]:
        return f"{key} was replaced: its ETag is {etag_of(head)} instead of {member['etag']}"
    return None


def _proves(head: Mapping[str, Any], member: Mapping[str, Any]) -> bool | None:
    """Return whether the store tells the checksum of a member, or None if it does not say."""
    algorithm, checksum = member.get("algorithm"), member.get("checksum", "")
    if algorithm in _FIELDS:
        stored = str(head.get(_FIELDS[algorithm]) or "")
        # One of parts' checksums, with their number behind it, says nothing of the whole.
        if not stored or "-" in stored:
            return None
        return stored == base64.b64encode(bytes.fromhex(checksum)).decode()
    if algorithm == "md5" and not is_opaque(head) and form(etag_of(head)) == "md5":
        # Some servers make an ETag of 32 digits that is no MD5: a difference proves nothing.
        return etag_of(head) == checksum or None
    return None


def _read(client: S3Client, bucket: str, member: Mapping[str, Any]) -> bool | None:
    """Return whether the bytes of a member have its checksum, or None if none is recorded."""
    algorithm = member.get("algorithm")
    if algorithm is None:
        return None
    # An algorithm that is not known leaves the body unread, and its connection would stay open.
    with closing(client.get_object(Bucket=bucket, Key=member["key"])["Body"]) as body:
        checksum = _checksum(algorithm, body.iter_chunks(PIECE_BYTES), member.get("part_bytes", 0))
    return None if checksum is None else checksum == member["checksum"]


def _checksum(algorithm: str, pieces: Iterable[bytes], part_bytes: int) -> str | None:
    """Return a checksum of bytes, or None for an algorithm that is not known.

    Args:
        part_bytes: part bytes of ``md5-parts``: the size of the parts whose MD5s it is made of.
    """
    if algorithm == "crc64nvme" or algorithm == "crc32c":
        crc, add = 0, (crc64nvme if algorithm == "crc64nvme" else crc32c)
        for piece in pieces:
            crc = add(piece, crc)
        return f"{crc:0{16 if algorithm == 'crc64nvme' else 8}x}"
    if algorithm == "md5":
        whole = hashlib.md5(usedforsecurity=False)
        for piece in pieces:
            whole.update(piece)
        return whole.hexdigest()
    return _of_parts(pieces, part_bytes) if algorithm == "md5-parts" and part_bytes > 0 else None


def _of_parts(pieces: Iterable[bytes], part_bytes: int) -> str:
    digests, part, left = b"", hashlib.md5(usedforsecurity=False), part_bytes
    for piece in pieces:
        while piece:
            taken, piece = piece[:left], piece[left:]
            part.update(taken)
            left -= len(taken)
            if not left:
                digests += part.digest()
                part, left = hashlib.md5(usedforsecurity=False), part_bytes
    if left < part_bytes:
        digests += part.digest()
    return hashlib.md5(digests, usedforsecurity=False).hexdigest()
