"""Bytes that are not those that were stored are never present, and people are told."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from gateway.cache.fetch_recovery import NO_OBJECT
from gateway.cache.hydration import ALONE_SECONDS, ALONE_TRIES, BlockState, LoneFailures
from gateway.rpc.frames import Op
from tests.support.drainsite import MIB, PREFIX
from tests.support.s3proxy import Act, Request
from tests.support.t8.site import BLOCK_BYTES, ColdSite
from tests.support.waiting import until

SIZE = 12 * MIB
WRONG = 1
"""The block that a flipped byte is in."""


def flipped(data: bytes, block: int = WRONG) -> bytes:
    at = block * BLOCK_BYTES + 12345
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def flip(site: ColdSite, data: bytes) -> None:
    site.replace("f", flipped(data))


def truncate(site: ColdSite, data: bytes) -> None:
    site.replace("f", data[: 5 * MIB])


def other_bytes(site: ColdSite, data: bytes) -> None:
    site.replace("f", os.urandom(len(data)))


def longer(site: ColdSite, data: bytes) -> None:
    site.replace("f", os.urandom(len(data) + 9))


def delete(site: ColdSite, _data: bytes) -> None:
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/f")


def swap(site: ColdSite, data: bytes) -> None:
    """Put the bytes of another object of the same length there."""
    site.write("g", os.urandom(len(data)))
    site.drain()
    site.client.copy_object(
        Bucket=site.bucket,
        Key=f"{PREFIX}/f",
        CopySource={"Bucket": site.bucket, "Key": f"{PREFIX}/g"},
    )


def ranged(request: Request) -> bool:
    return "range" in request.headers


@pytest.mark.parametrize(
    ("server", "spoil"),
    [
        *(("site", spoil) for spoil in (flip, truncate, other_bytes, longer, delete, swap)),
        *(("aws_site", spoil) for spoil in (truncate, delete)),
    ],
)
def test_a_damaged_object_is_an_error(
    request: pytest.FixtureRequest,
    server: str,
    spoil: Callable[[ColdSite, bytes], None],
) -> None:
    site: ColdSite = request.getfixturevalue(server)
    ino, data = site.cold_file(SIZE)
    spoil(site, data)
    site.proxy.forget()
    with site.hydrating():
        site.control.want(ino, WRONG * BLOCK_BYTES)
        site.control.wait(Op.FAILED, ino)
        until(lambda: site.retries(), "the row of the failure")
        # What was written is not present: FakeControlSocket compares each block that is told.
        told = [message.offset for message in site.control.of(Op.PRESENT, ino)]
        assert WRONG * BLOCK_BYTES not in told
        assert site.control.of(Op.ARRIVED) == []
        failed = len(site.control.of(Op.FAILED, ino))
        # A client that asks again is answered again, after another try.
        tries = len(site.gets())
        site.control.want(ino, WRONG * BLOCK_BYTES)
        site.control.wait(Op.FAILED, ino, failed + 1)
        assert len(site.gets()) > tries
    assert not site.is_resident(ino)
    rows = site.retries()
    assert [(row[0], row[1]) for row in rows] == [(ino, f"{PREFIX}/f")]
    report = site.cache_report()
    assert report["counters"]["wrong_objects"] >= 2
    assert [entry["path"] for entry in report["damaged"]] == ["f"]
    assert report["damaged"][0]["reason"] == rows[0][3]
    assert "\n" not in rows[0][3]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE object SET content_version = content_version + 1",
        "UPDATE object SET size = size + 1",
        "UPDATE block_digest SET crcs = x'0123456789abcdef'",
    ],
)
def test_an_object_of_another_version_or_with_digests_of_another_size_is_not_read(
    site: ColdSite, change: str
) -> None:
    ino, _data = site.cold_file(SIZE)
    site.rows(f"{change} WHERE ino = {ino} RETURNING 1")
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.FAILED, ino)
        until(lambda: site.retries(), "the row of the failure")
    assert site.gets() == []
    assert NO_OBJECT in site.retries()[0][3]
    assert not site.is_resident(ino)


def test_an_object_without_digests_is_read_by_its_etag_and_gets_them(site: ColdSite) -> None:
    ino, data = site.cold_file(SIZE)
    [digests] = site.rows("SELECT ino, block_bytes, crcs FROM block_digest")
    site.rows("DELETE FROM block_digest RETURNING 1")
    site.hydrate(ino, data)
    assert site.is_resident(ino)
    assert site.rows("SELECT ino, block_bytes, crcs FROM block_digest") == [digests]


def test_another_object_is_not_read_for_one_without_digests(site: ColdSite) -> None:
    ino, data = site.cold_file(SIZE)
    site.rows("DELETE FROM block_digest RETURNING 1")
    flip(site, data)
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.FAILED, ino)
    assert not site.is_resident(ino)
    assert site.rows("SELECT ino FROM block_digest") == []


def test_the_good_blocks_of_a_damaged_object_come(site: ColdSite) -> None:
    ino, data = site.cold_file(SIZE)
    flip(site, data)
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.PRESENT, ino, 2)
        until(lambda: site.retries(), "the row of the failure")
    told = {message.offset // BLOCK_BYTES for message in site.control.of(Op.PRESENT, ino)}
    assert told == {0, 2}
    # No client waits for the bad block, so no client is told EIO.
    assert site.control.of(Op.FAILED) == []


def test_a_healed_object_is_read_again_by_itself(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cache.fetch_scheduler.RETRY_MAX_SECONDS", 0.2)
    ino, data = site.cold_file(SIZE)
    flip(site, data)
    with site.hydrating() as hydrator:
        site.control.want(ino, WRONG * BLOCK_BYTES)
        site.control.wait(Op.FAILED, ino)
        site.replace("f", data)
        site.finish(hydrator)
    assert site.bytes_of(ino) == data
    assert site.retries() == []


def test_a_damaged_file_is_tried_again_after_a_restart(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cache.fetch_scheduler.RETRY_MAX_SECONDS", 0.2)
    ino, data = site.cold_file(SIZE)
    flip(site, data)
    with site.hydrating():
        site.control.want(ino, WRONG * BLOCK_BYTES)
        site.control.wait(Op.FAILED, ino)
    site.replace("f", data)
    site.control.clear()
    with site.hydrating():
        site.arrive(ino)
        until(lambda: not site.retries(), "the end of the row")
    assert site.bytes_of(ino) == data


def test_the_drain_leaves_the_failures_of_the_hydrator_alone(site: ColdSite) -> None:
    ino, data = site.cold_file(SIZE)
    flip(site, data)
    with site.hydrating():
        site.control.want(ino, WRONG * BLOCK_BYTES)
        until(lambda: site.retries(), "the row of the failure")
    site.write("other", b"bytes")
    site.drain()
    assert len(site.retries()) == 1


@pytest.mark.parametrize("act", [Act.TRUNCATE, Act.DROP_ANSWER, Act.FAIL])
def test_a_fault_on_the_wire_heals_by_itself(site: ColdSite, act: Act) -> None:
    ino, data = site.cold_file(SIZE)
    site.proxy.inject(ranged, act)
    site.hydrate(ino, data)
    assert site.control.of(Op.FAILED) == []


def test_a_flipped_byte_on_the_wire_heals_by_itself(site: ColdSite) -> None:
    ino, data = site.cold_file(SIZE)
    site.proxy.inject(ranged, Act.FLIP)
    site.hydrate(ino, data)
    assert site.control.of(Op.FAILED) == []
    assert site.cache_report()["counters"]["retries"] == 1


def test_zeros_are_written_over_wrong_bytes(site: ColdSite) -> None:
    """Wrong bytes came where the object has zeros: they must not stay."""
    data = os.urandom(MIB) + bytes(2 * MIB) + os.urandom(MIB)
    ino = site.cold({"f": data})[0]
    site.proxy.inject(ranged, Act.FLIP)
    site.hydrate(ino, data)


def test_a_short_body_is_no_block(site: ColdSite) -> None:
    """A body that ends before its length."""
    ino, data = site.cold_file(3 * MIB)
    site.proxy.inject(ranged, Act.CUT, 2)
    site.hydrate(ino, data)
    assert len(site.control.of(Op.PRESENT, ino)) == 1
    # The network is to blame, not the object.
    assert site.control.of(Op.FAILED) == []
    assert site.cache_report()["counters"]["wrong_objects"] == 0


def test_the_recorded_etag_is_a_condition(aws_site: ColdSite) -> None:
    """An object with the right bytes in this block, and others elsewhere."""
    site = aws_site
    ino, data = site.cold_file(SIZE)
    flip(site, data)
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.FAILED, ino)
    assert site.control.of(Op.PRESENT) == []
    assert "PreconditionFailed" in site.retries()[0][3]


def test_an_older_version_with_the_recorded_etag_is_read(aws_site: ColdSite) -> None:
    site = aws_site
    site.client.put_bucket_versioning(
        Bucket=site.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    ino, data = site.cold_file(SIZE)
    site.replace("f", os.urandom(SIZE))
    site.proxy.forget()
    site.hydrate(ino, data)
    assert site.control.of(Op.FAILED) == []
    assert site.cache_report()["counters"]["older_versions"] == 1
    assert any("versionId" in request.query for request in site.gets())


def test_the_version_behind_a_delete_marker_is_read(
    aws_site: ColdSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = aws_site
    site.client.put_bucket_versioning(
        Bucket=site.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    ino, data = site.cold_file(SIZE)
    delete(site, data)
    assert site.objects() == {}
    site.proxy.forget()
    site.hydrate(ino, data)
    assert site.control.of(Op.FAILED) == []
    assert site.cache_report()["counters"]["older_versions"] == 1
    assert "which has the recorded ETag" in caplog.text


def test_another_version_behind_a_delete_marker_is_no_copy(aws_site: ColdSite) -> None:
    site = aws_site
    ino, data = site.cold_file(SIZE)
    # The versions begin with other bytes: the recorded object was replaced before.
    other_bytes(site, data)
    site.client.put_bucket_versioning(
        Bucket=site.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    delete(site, data)
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.FAILED, ino)
    assert site.control.of(Op.PRESENT) == []
    assert site.cache_report()["counters"]["older_versions"] == 0


def test_the_bucket_goes_and_comes_back(site: ColdSite) -> None:
    """No client is told EIO for it, and few requests try it meanwhile."""
    ino, data = site.cold_file(SIZE)
    away = site.proxy.inject(ranged, Act.FAIL, 10**6, status=503, code="SlowDown")
    with site.hydrating() as hydrator:
        site.control.want(ino)
        until(lambda: site.cache_report().get("bucket", {}).get("state") == "unreachable", "it")
        assert len(site.gets()) < 30
        away.release()
        site.finish(hydrator)
    assert site.bytes_of(ino) == data
    assert site.control.of(Op.FAILED) == []
    assert site.retries() == []


def test_refused_credentials_are_no_damage(site: ColdSite) -> None:
    ino, data = site.cold_file(3 * MIB)
    refused = site.proxy.inject(ranged, Act.FAIL, 99, status=403, code="InvalidAccessKeyId")
    with site.hydrating() as hydrator:
        site.control.want(ino, 0)
        until(lambda: site.cache_report().get("bucket", {}).get("state") == "refused", "it")
        refused.release()
        site.finish(hydrator, 40)
    assert site.bytes_of(ino) == data
    assert site.control.of(Op.FAILED) == []


def test_a_file_fails_alone_only_while_others_are_served() -> None:
    alone = LoneFailures()
    assert not alone.failed(began=9, now=10, worked_at=9, throttles=0)
    assert not alone.failed(began=10, now=11, worked_at=9, throttles=0), (
        "the bucket has not worked since"
    )
    assert alone.failed(began=11, now=12, worked_at=11.5, throttles=0)
    assert alone.failed(began=11, now=12.1, worked_at=11.5, throttles=0), "the same failure"
    assert alone.failures == 1
    assert not alone.failed(began=12, now=13, worked_at=12.5, throttles=1), "requests are throttled"
    for second in range(ALONE_TRIES):
        assert not alone.is_lasting(14 + second)
        assert alone.failed(13 + second, 14 + second, worked_at=13.5 + second, throttles=1)
        assert not alone.failed(14 + second, 14 + second, worked_at=13.5 + second, throttles=1)
    assert alone.failures == ALONE_TRIES, "what says nothing of the file leaves the count"
    assert not alone.is_lasting(14 + ALONE_SECONDS - 0.1)
    assert alone.is_lasting(14 + ALONE_SECONDS)


def test_a_key_that_is_always_refused_is_an_error(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other files are read meanwhile, so the bucket is not what is wrong."""
    monkeypatch.setattr("gateway.cache.hydration.ALONE_SECONDS", 0.0)
    monkeypatch.setattr("gateway.cache.hydration.ALONE_TRIES", 2)
    monkeypatch.setattr("gateway.cache.fetch_scheduler.RETRY_DOUBLINGS", 10)  # not within this test
    names = [f"good-{number}" for number in range(12)]
    files = {name: os.urandom(BLOCK_BYTES) for name in ("bad", *names, "last")}
    bad, *good, last = site.cold(files)
    denied = site.proxy.inject(
        lambda r: ranged(r) and r.key.endswith("/bad"), Act.FAIL, 10**6, status=500, code="Broken"
    )

    def is_answered(tried: int) -> bool:
        # The request may have come just before the file was given up: then it is not fetched for
        # it.
        return len(site.gets()) > tried or bool(site.control.of(Op.FAILED, bad))

    with site.hydrating() as hydrator:
        site.control.want(bad)
        for ino in good:
            site.control.want(ino)
            site.arrive(ino)
            until(lambda: len(hydrator._scheduler) == 1, "the end of the good file")
            tried = len(site.gets())
            site.control.want(bad, 0)
            until(partial(is_answered, tried), "the next try, or the error")
            if site.control.of(Op.FAILED, bad):
                break
        site.control.wait(Op.FAILED, bad)
        until(lambda: site.cache_report().get("damaged"), "the report")
        [shown] = site.cache_report()["damaged"]
        assert shown["path"] == "bad"
        assert "the bucket gives other files, but not this one" in shown["reason"]
        refused = hydrator._scheduler.get(bad)
        assert refused is not None
        assert refused.map[0] is BlockState.BAD, "it is fetched again before a client asks"
        for _ in range(2):
            # No other file is read meanwhile. The client gets its error all the same, at once.
            told = len(site.control.of(Op.FAILED, bad))
            site.control.want(bad)
            site.control.wait(Op.FAILED, bad, told + 1)
        assert hydrator._scheduler.bucket.shown()["state"] == "reachable"
        site.control.want(last)
        site.arrive(last)
        denied.release()

        def read_again() -> bool:
            # A request of before may fail only now, which pauses the file, and a client asks again.
            if not site.is_resident(bad):
                site.control.want(bad)
            return len(hydrator._scheduler) == 0 and site.is_resident(bad)

        until(read_again, "the end of all hydrations")
    assert site.bytes_of(bad) == files["bad"]
    assert site.retries() == []
