"""A store that verifies a newer checksum gets it in place of MD5, and nothing is believed less."""

from __future__ import annotations

import os
from typing import Any

import pytest

from gateway.common.errors import ObjectRefused, StoreUnavailable
from gateway.db.engine import Database
from gateway.drain.verify import changed
from gateway.namespace.data_files import DataFiles
from gateway.objectstore import signed_http
from gateway.objectstore.bodies import digest
from gateway.objectstore.checksums import BodyChecksums, ChecksumKind, Crc
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.t4.block_digests import found, of
from tests.support.t4.checksum import flip, sealed_site, settle, unsettle
from tests.support.t4.interrupted import killed_after_two_parts, parts_sent
from tests.support.t4.negotiated import configured, remembered
from tests.support.verifier import Verifier

ANY = ("PUT", "PART", "HEAD")
SIZES = [0, 9, 3 * MIB, 9 * MIB + 1, 17 * MIB]
"""Sent in a batch, by itself, in parts."""


def test_only_what_is_compared_asks_for_the_checksum(newer_site: Site) -> None:
    """AWS refuses to tell the checksum of an object whose KMS key we may not use."""
    site = newer_site
    site.write("f", b"data")
    site.drain()
    site.proxy.forget()
    site.unlink("f")
    site.drain()
    heads = site.proxy.operations("HEAD")
    assert heads
    assert not any("x-amz-checksum-mode" in r.headers for r in heads)


@pytest.mark.parametrize("processes", [0, 1])
def test_objects_arrive_with_the_newer_checksum_alone(newer_site: Site, processes: int) -> None:
    site = newer_site
    site.configure(processes=processes)
    (kind,) = remembered(site)
    files = {f"f{size}": os.urandom(size) for size in SIZES}
    for path, data in files.items():
        site.write(path, data)
    site.drain()
    assert site.objects() == files
    assert found(site) == {path: of(data) for path, data in files.items()}
    bodies = site.proxy.operations("PUT", "PART")
    assert all(f"x-amz-checksum-{kind}" in r.headers for r in bodies)
    assert not any("content-md5" in r.headers for r in bodies)
    assert all(f"x-amz-checksum-{kind}" in r.headers for r in site.proxy.operations("COMPLETE"))
    recorded = dict(site.rows("SELECT key, checksum FROM object"))
    for path, data in files.items():
        crc = digest(data, {ChecksumKind(kind)}).value(ChecksumKind(kind))
        assert recorded[f"{PREFIX}/{path}"] == f"{kind}:{crc.hex()}"
    site.rename("f9", "moved")
    site.rename(f"f{SIZES[-1]}", "moved too")
    site.drain()
    assert site.objects().keys() == {*files, "moved", "moved too"} - {"f9", f"f{SIZES[-1]}"}
    assert site.left() == []


def wrong_digest(*args: Any, **options: Any) -> BodyChecksums:
    right = honest_digest(*args, **options)
    return right._replace(crcs=(Crc(1, 4),), crc32c=1)


honest_digest = digest


def test_body_and_checksum_are_compared(newer_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store(newer_site.settings, kind=ChecksumKind(remembered(newer_site)[0]))
    monkeypatch.setattr(signed_http, "digest", wrong_digest)
    with pytest.raises(StoreUnavailable, match="BadDigest"):
        store.put(f"{PREFIX}/f", b"data", {})
    upload_id = store.begin(f"{PREFIX}/f", {})
    with pytest.raises(StoreUnavailable, match="BadDigest"):
        store.put_part(f"{PREFIX}/f", upload_id, 1, b"data")
    store.abort(f"{PREFIX}/f", upload_id)


@pytest.mark.parametrize(
    ("flaw", "value", "size"),
    [
        *(("tells", False, size) for size in (9, 3 * MIB, 11 * MIB)),
        *(("tells_wrong", ANY, size) for size in (9, 3 * MIB, 11 * MIB)),
        ("tells_wrong", ("HEAD",), 11 * MIB),
    ],
)
def test_what_the_store_does_not_confirm_is_not_published(
    verifying_site: Site, verifier: Verifier, flaw: str, value: Any, size: int
) -> None:
    site = verifying_site
    site.drain()
    setattr(verifier, flaw, value)
    site.write("f", os.urandom(size))
    site.drain()
    assert site.rows("SELECT count(*) FROM object") == [(0,)]
    (failure,) = site.report()["failures"]
    expected = "the store has" if flaw == "tells_wrong" else "spillway bucket setup"
    assert expected in failure["error"]
    setattr(verifier, flaw, getattr(Verifier(), flaw))
    site.drain()
    site.drain()
    assert site.rows("SELECT count(*) FROM object") == [(1,)]


def test_an_etag_that_the_answer_lacks_is_asked_for(
    verifying_site: Site, verifier: Verifier
) -> None:
    """What is recorded of an object is compared before it is copied or deleted."""
    site = verifying_site
    verifier.hides_etag = True
    site.write("f", b"data")
    site.drain()
    assert site.rows("SELECT etag FROM object") == [(site.etags()["f"],)]


def test_the_whole_is_compared_also_when_each_part_was(
    verifying_site: Site, verifier: Verifier
) -> None:
    """Parts in another order, say."""
    site = verifying_site
    store = S3Store(site.settings, kind=ChecksumKind.CRC64NVME)
    key = f"{PREFIX}/f"
    upload_id = store.begin(key, {})
    parts = [store.put_part(key, upload_id, 1, os.urandom(5 * MIB))]
    parts.append(store.put_part(key, upload_id, 2, b"end"))
    wrong = parts[1].digests._replace(crcs=(Crc(1, 3),))
    with pytest.raises((ObjectRefused, StoreUnavailable)):
        store.complete(
            key, upload_id, [parts[0], parts[1]._replace(digests=wrong)], 5 * MIB + 3, {}
        )
    assert site.objects() == {}
    assert store.complete(key, upload_id, parts, 5 * MIB + 3, {}).sum is not None


def test_a_copy_is_compared_with_its_source(verifying_site: Site, verifier: Verifier) -> None:
    site = verifying_site
    store = S3Store(site.settings, kind=ChecksumKind.CRC64NVME)
    head = store.put(f"{PREFIX}/f", b"data", {}).head
    assert store.copy(f"{PREFIX}/f", f"{PREFIX}/g", head, {}).sum == head.sum
    other = store.put(f"{PREFIX}/f", b"DATA", {}).head
    with pytest.raises(ObjectRefused, match="the store has"):
        store.copy(f"{PREFIX}/f", f"{PREFIX}/g", other._replace(sum=head.sum), {})


def test_an_interrupted_upload_goes_on_by_the_newer_checksum(newer_site: Site) -> None:
    site = newer_site
    data = killed_after_two_parts(site)
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"f": data}
    assert parts_sent(site) == ["3", "4"]
    assert found(site) == {"f": of(data)}
    assert site.multiparts() == 0


def test_a_listed_part_with_another_checksum_is_sent_again(
    verifying_site: Site, verifier: Verifier
) -> None:
    site = configured(verifying_site, "crc64nvme")
    data = killed_after_two_parts(site)
    (key, upload_id) = site.rows("SELECT key, upload_id FROM upload")[0]
    S3Store(site.settings, kind=ChecksumKind.CRC64NVME).put_part(
        key, upload_id, 1, os.urandom(5 * MIB)
    )
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"f": data}
    assert parts_sent(site) == ["1", "3", "4"]


def test_an_upload_that_was_begun_with_md5_is_begun_anew(verifying_site: Site) -> None:
    """A store takes no part with another checksum than the upload's."""
    site = configured(verifying_site, "md5")
    data = killed_after_two_parts(site)
    configured(site, "crc64nvme")
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"f": data}
    assert parts_sent(site) == ["1", "2", "3", "4"]
    assert site.multiparts() == 0
    assert site.left() == []


@pytest.mark.parametrize("size", [9, 3 * MIB, 11 * MIB])
@pytest.mark.parametrize(("before", "after"), [("md5", "crc64nvme"), ("crc32c", "md5")])
def test_bytes_that_changed_since_their_seal_are_found_also_by_an_older_kind(
    verifying_site: Site, size: int, before: str, after: str
) -> None:
    site = sealed_site(configured(verifying_site, before))
    site.write("f", os.urandom(size))
    unsettle(site)
    site.drain()
    ((recorded,),) = site.rows("SELECT checksum FROM digest")
    assert recorded.startswith(before)
    flip(site, "f", size - 1)
    configured(site, after)
    settle(site)
    site.drain()
    assert site.objects() == {}
    assert "changed on the disk since they were sealed" in site.report()["failures"][0]["error"]
    flip(site, "f", size - 1)
    site.drain()
    site.drain()
    assert len(site.objects()) == 1


def test_the_newer_checksum_serves_for_local_bytes_too(newer_site: Site) -> None:
    """It serves fsck where an object has no block digests."""
    site = newer_site
    files = {"f": os.urandom(9), "g": os.urandom(17 * MIB)}
    for path, data in files.items():
        site.write(path, data)
    site.drain()
    site.rows("DELETE FROM block_digest RETURNING 1")
    flip(site, "g", 16 * MIB)
    database = Database(site.settings.database_url)
    ((file, why),) = changed(database, DataFiles(site.settings.files_dir))
    database.close()
    assert file.ino == site.attr("g").ino
    assert "changed on the disk" in why
