"""The S3 requests themselves: which answers are accepted and which not, and lost answers."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
from botocore.utils import parse_timestamp

from gateway.common.errors import ObjectRefused, StoreUnavailable
from gateway.objectstore import bodies, signed_http
from gateway.objectstore.checksums import BodyChecksums, ChecksumKind, sum_of
from gateway.objectstore.client import parsed_time
from gateway.objectstore.objects import OBJECT_MAX_BYTES, part_bytes_of
from gateway.objectstore.ranges import ObjectLocation, Ranges
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act

GIB = 1024 * MIB
KEY = f"{PREFIX}/f"


@pytest.mark.parametrize("size", [0, 1, 16 * MIB, 160_000 * MIB, 160_000 * MIB + 1, 5 * 1024 * GIB])
def test_parts_are_few_enough(size: int) -> None:
    part_bytes = part_bytes_of(size, 16 * MIB)
    assert part_bytes >= 16 * MIB
    assert -(-size // part_bytes) <= 10_000


def test_what_no_object_can_hold_is_refused() -> None:
    assert part_bytes_of(OBJECT_MAX_BYTES, 16 * MIB) == 5 * GIB
    with pytest.raises(ObjectRefused, match="more than an object can have"):
        part_bytes_of(OBJECT_MAX_BYTES + 1, 16 * MIB)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T17:51:19.123Z",
        "2026-11-30T17:51:19Z",
        "Mon, 30 Nov 2026 17:51:19 GMT",
        1.5e9,
        "Z",
    ],
)
def test_times_are_what_botocore_makes_of_them(text: Any) -> None:
    expected: Any = None
    with suppress(ValueError):
        expected = parse_timestamp(text)
    if expected is None:
        with pytest.raises(ValueError, match="Invalid timestamp"):
            parsed_time(text)
    else:
        assert parsed_time(text) == expected
        assert parsed_time(text).utcoffset() == expected.utcoffset()


def test_body_and_answer_are_compared(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """rclone rejects bytes that do not match Content-MD5, and moto's ETag shows the difference."""
    store = S3Store(site.settings)
    honest = bodies.digest

    def wrong(*args: Any, **options: Any) -> BodyChecksums:
        return honest(*args, **options)._replace(md5=bytes(16))

    monkeypatch.setattr(signed_http, "digest", wrong)
    with pytest.raises((ObjectRefused, StoreUnavailable)):
        store.put(KEY, b"data", {})
    upload_id = store.begin(KEY, {})
    with pytest.raises((ObjectRefused, StoreUnavailable)):
        store.put_part(KEY, upload_id, 1, b"data")
    store.abort(KEY, upload_id)


@pytest.mark.parametrize("act", [Act.DROP, Act.DROP_ANSWER])
@pytest.mark.parametrize("operation", ["PUT", "PART", "COMPLETE"])
def test_one_lost_connection_is_survived(site: Site, operation: str, act: Act) -> None:
    """This holds also if the request was carried out and only its answer was lost."""
    store = S3Store(site.settings)
    site.proxy.inject(lambda r: r.operation == operation, act)
    metadata = {"ino": "16", "content-version": "3"}
    if operation == "PUT":
        assert store.put(KEY, b"data", metadata).head.size == 4
        assert site.objects() == {"f": b"data"}
        return
    data = os.urandom(5 * MIB)
    upload_id = store.begin(KEY, metadata)
    parts = [store.put_part(KEY, upload_id, 1, data), store.put_part(KEY, upload_id, 2, b"end")]
    head = store.complete(KEY, upload_id, parts, 5 * MIB + 3, metadata)
    assert head.size == 5 * MIB + 3
    assert head.metadata.items() >= metadata.items()
    assert site.objects() == {"f": data + b"end"}
    assert site.multiparts() == 0


def test_a_multipart_upload_that_vanished_is_not_taken_for_another_object(site: Site) -> None:
    store = S3Store(site.settings)
    data = os.urandom(5 * MIB)
    store.put(KEY, data, {"ino": "16", "content-version": "2"})
    upload_id = store.begin(KEY, {"ino": "16", "content-version": "3"})
    parts = [store.put_part(KEY, upload_id, 1, os.urandom(5 * MIB))]
    store.abort(KEY, upload_id)
    with pytest.raises((ObjectRefused, StoreUnavailable)):
        store.complete(KEY, upload_id, parts, 5 * MIB, {"ino": "16", "content-version": "3"})
    store.abort(KEY, upload_id)


def test_what_is_gone_is_gone(site: Site) -> None:
    store = S3Store(site.settings)
    assert store.head(KEY) is None
    assert store.delete_many([KEY]) == {KEY: None}
    store.put(KEY, b"data", {})
    assert store.delete_many([KEY]) == {KEY: None}
    assert store.head(KEY) is None


def test_the_etag_of_parts_is_the_md5_of_their_md5s(moto_site: Site) -> None:
    store = S3Store(moto_site.settings)
    upload_id = store.begin(KEY, {})
    parts = [store.put_part(KEY, upload_id, 1, os.urandom(5 * MIB))]
    parts.append(store.put_part(KEY, upload_id, 2, b"end"))
    head = store.complete(KEY, upload_id, parts, 5 * MIB + 3, {})
    assert head.etag == sum_of([part.digests for part in parts], ChecksumKind.MD5).value


def test_an_older_version_is_found_behind_a_page_of_newer_ones(moto_site: Site) -> None:
    site = moto_site
    status: Any = {"Status": "Enabled"}
    site.client.put_bucket_versioning(Bucket=site.bucket, VersioningConfiguration=status)
    first = site.client.put_object(Bucket=site.bucket, Key=KEY, Body=b"first")
    for number in range(1000):
        site.client.put_object(Bucket=site.bucket, Key=KEY, Body=b"%05d" % number)
    place = ObjectLocation(KEY, first["ETag"].strip('"'))
    assert Ranges(site.settings).other_version(place, 5) == first["VersionId"]
    assert Ranges(site.settings).other_version(place._replace(etag="none"), 5) is None


def test_an_object_that_is_gone_is_named_in_our_words(moto_site: Site) -> None:
    store = S3Store(moto_site.settings)
    head = store.put("a", b"data", {}).head
    moto_site.client.delete_object(Bucket=moto_site.bucket, Key="a")
    with pytest.raises(ObjectRefused) as copied:
        store.copy("a", "b", head, {})
    ranges = Ranges(moto_site.settings)
    with pytest.raises(ObjectRefused) as read, ranges.get(ObjectLocation("a", head.etag), 0, 4):
        pass
    for error, what in ((copied, "the source of b"), (read, "a")):
        said = str(error.value)
        assert said.startswith(f"{what}: the bucket has no such object (NoSuchKey")
        assert "bring it back" in said
        assert "An error occurred" not in said
    store.put("a", b"another", {})
    said = "a: the bucket has another object"
    with pytest.raises(ObjectRefused, match=said), ranges.get(ObjectLocation("a", head.etag), 0, 4):
        pass


def test_a_refusal_has_the_words_of_the_store_and_none_of_botocore(moto_site: Site) -> None:
    moto_site.proxy.inject(lambda r: r.operation == "PUT", Act.FAIL, 1, 400, "InvalidTag")
    with pytest.raises(ObjectRefused) as refused:
        S3Store(moto_site.settings).put("a", b"data", {})
    assert str(refused.value) == "a: the store refuses put_object: InvalidTag: injected"
