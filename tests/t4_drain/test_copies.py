"""Objects that are too large for one request are copied in parts, and go where an interruption left
them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gateway.common.errors import StoreUnavailable
from gateway.objectstore.s3 import PART_COPIES, S3Store
from tests.support.drain import Drain
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Request
from tests.support.waiting import until

PARTS = 5
DATA = os.urandom(5 * MIB * (PARTS - 1) + 7)


@pytest.fixture
def large(moto_site: Site) -> Site:
    """Return a gateway with a file in the bucket that is too large for one copy."""
    moto_site.write("f", DATA)
    moto_site.drain()
    moto_site.proxy.forget()
    return moto_site


def drain(site: Site, cycles: int = 12) -> None:
    """Drain in a new drain, for which 5 MiB are all that one request copies."""
    site.rows("UPDATE retry SET next_ns = 0 RETURNING 1")
    running = Drain(site.settings, S3Store(site.settings, copy_max_bytes=5 * MIB))
    try:
        for _ in range(cycles):
            if running.cycle() == 0:
                return
    finally:
        running.close()


def part(number: int, key: str = "") -> Callable[[Request], bool]:
    return lambda r: (
        r.operation == "PART COPY" and r.query["partNumber"] == str(number) and r.key.endswith(key)
    )


def copied(site: Site) -> list[str]:
    """Return the parts that the store has copied since the record was cleared."""
    done = [request for request in site.proxy.operations("PART COPY") if request.status == 200]
    return sorted(request.query["partNumber"] for request in done)


def interrupt(site: Site) -> None:
    """Begin to move the file, and fail at its fourth part."""
    failing = site.proxy.inject(part(4), Act.FAIL, 1e9, 500, "InternalError")
    site.rename("f", "g")
    drain(site, 1)
    failing.release()
    assert site.multiparts() == 1
    assert len(site.rows("SELECT 1 FROM upload WHERE upload_id IS NOT NULL")) == 1
    assert "4" not in copied(site)
    site.proxy.forget()


def test_parts_are_copied_beside_each_other(large: Site) -> None:
    store = S3Store(large.settings, copy_max_bytes=5 * MIB)
    held = large.proxy.inject(lambda r: r.operation == "PART COPY" and not part(1)(r), Act.HOLD, 9)
    large.rename("f", "g")
    with large.draining(store):
        until(lambda: len(held.held) == PARTS - 1, "all other parts are under way")
        held.release()
        until(lambda: large.objects().keys() == {"g"}, "it has moved")
    assert PARTS - 1 <= PART_COPIES
    assert large.objects() == {"g": DATA}


def test_an_interrupted_copy_copies_what_is_missing(large: Site) -> None:
    """The next drain does, of another process perhaps: the row names the upload."""
    interrupt(large)
    drain(large)
    assert large.objects() == {"g": DATA}
    assert "4" in copied(large)
    assert "1" not in copied(large)
    assert len(copied(large)) < PARTS
    assert large.multiparts() == 0
    assert large.left() == []


def test_an_interrupted_copy_that_the_store_has_lost_begins_again(large: Site) -> None:
    interrupt(large)
    [(upload_id,)] = large.rows("SELECT upload_id FROM upload")
    large.client.abort_multipart_upload(Bucket=large.bucket, Key=f"{PREFIX}/g", UploadId=upload_id)
    drain(large)
    assert large.objects() == {"g": DATA}
    assert len(copied(large)) == PARTS
    assert large.left() == []


def test_a_copy_whose_last_answer_was_lost_is_found(large: Site) -> None:
    lost = large.proxy.inject(lambda r: r.operation == "COMPLETE", Act.DROP_ANSWER)
    large.rename("f", "g")
    drain(large, 1)
    assert lost.times == 0
    drain(large)
    assert large.objects() == {"g": DATA}
    assert len(copied(large)) == PARTS
    assert large.multiparts() == 0
    assert large.left() == []


@pytest.mark.parametrize("then", ["renamed", "renamed back", "changed", "deleted"])
def test_an_interrupted_copy_that_is_not_wanted_any_more_leaves_nothing(
    large: Site, then: str
) -> None:
    interrupt(large)
    expected = {"h": DATA}
    if then == "renamed":
        large.rename("g", "h")
    elif then == "renamed back":
        large.rename("g", "f")
        expected = {"f": DATA}
    elif then == "changed":
        large.write("g", b"other bytes")
        expected = {"g": b"other bytes"}
    else:
        large.unlink("g")
        expected = {}
    drain(large)
    assert large.objects() == expected
    assert large.multiparts() == 0
    assert large.left() == []


def test_a_file_that_is_deleted_during_its_copy_stops_it(large: Site) -> None:
    held = large.proxy.inject(part(2), Act.HOLD)
    store = S3Store(large.settings, copy_max_bytes=5 * MIB)
    large.rename("f", "g")
    with large.draining(store):
        held.wait()
        large.unlink("g")
        held.release()
        until(lambda: large.objects() == {} and large.left() == [], "nothing is left")
    assert large.proxy.operations("COMPLETE") == []
    assert large.multiparts() == 0


def test_a_copy_that_is_too_large_is_tried_once(large: Site) -> None:
    """Its bytes are only in the bucket, so that they cannot be sent from here instead."""
    large.rows("UPDATE inode SET residency = 0 WHERE kind = 1 RETURNING 1")
    large.proxy.inject(lambda r: r.operation == "COMPLETE", Act.FAIL, 1e9, 400, "EntityTooLarge")
    large.configure(retry_max_seconds=1)
    large.rename("f", "g")
    with large.draining(S3Store(large.settings, copy_max_bytes=5 * MIB)):

        def tries() -> int:
            failures = large.report().get("failures", [])
            return int(failures[0]["tries"]) if failures else 0

        until(lambda: tries() >= 3, "some tries")
        assert "too large for the store" in large.report()["failures"][0]["error"]
    assert len(copied(large)) == PARTS
    assert len(large.proxy.operations("COMPLETE")) == 1
    assert large.objects() == {"f": DATA}
    assert large.multiparts() == 0


def test_a_store_resumes_its_own_copies(large: Site) -> None:
    """Promotions, and transitions, have no row for it."""
    store = S3Store(large.settings, copy_max_bytes=5 * MIB)
    head = store.head(f"{PREFIX}/f")
    assert head is not None
    failing = large.proxy.inject(part(4), Act.FAIL, 1e9, 500, "InternalError")
    with pytest.raises(StoreUnavailable):
        store.copy(f"{PREFIX}/f", f"{PREFIX}/copy", head, head.metadata)
    failing.release()
    large.proxy.forget()
    # Another copy to the same key takes nothing of it.
    store.copy(f"{PREFIX}/f", f"{PREFIX}/copy", head, {**head.metadata, "other": "1"})
    assert len(copied(large)) == PARTS
    large.proxy.forget()
    store.copy(f"{PREFIX}/f", f"{PREFIX}/copy", head, head.metadata)
    assert large.objects()["copy"] == DATA
    assert "1" not in copied(large)
    assert "other" not in large.metadata("copy")
    assert large.multiparts() == 0
