"""What takes long does not hold up what takes a moment, nor what a person or client waits for."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime

import pytest

from gateway.drain import job, queue
from gateway.drain.context import COPIES
from gateway.drain.tidy import move
from gateway.objectstore import pace
from gateway.objectstore.pace import Pace, Rates, RequestEnd, patiently
from gateway.objectstore.s3 import S3Store
from gateway.service.queue import opened
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Fault
from tests.support.waiting import meanwhile, until

WORKERS = 2


@pytest.fixture
def site(rclone_site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(job, "LARGE_BYTES", 8 * MIB)
    # What is held frees no thread by its time-out.
    rclone_site.values["bucket"]["read_timeout_seconds"] = 600.0
    rclone_site.configure(workers=WORKERS)
    return rclone_site


def hold_large_ones(site: Site) -> Fault:
    """Write more large files than there are threads, and hold their parts back."""
    for number in range(WORKERS + 2):
        site.write(f"large/{number}", os.urandom(9 * MIB))
    return site.proxy.inject(lambda r: r.operation == "PART" and "/large/" in r.key, Act.HOLD, 1e9)


def keys_of_parts(site: Site) -> set[str]:
    return {request.key for request in site.proxy.operations("PART")}


def test_small_files_pass_large_ones(site: Site) -> None:
    held = hold_large_ones(site)
    with site.draining():
        until(lambda: len(keys_of_parts(site)) == WORKERS, "all threads send large files")
        site.write("small", b"data")
        until(lambda: site.objects().keys() == {"small"}, "the small file is there")
        held.release()
        until(lambda: len(site.objects()) == WORKERS + 3, "all files are there")


@pytest.mark.parametrize("size", [4, 9 * MIB])
def test_what_a_person_puts_first_passes_all_others(site: Site, size: int) -> None:
    held = hold_large_ones(site)
    with site.draining():
        until(lambda: len(keys_of_parts(site)) == WORKERS, "all threads send large files")
        ino = site.write("first", os.urandom(size))
        with opened(site.settings) as context:
            queue.say(context, ino, hold=False)
        until(lambda: site.objects().keys() == {"first"}, "the first file is there")
        held.release()
        until(lambda: not site.left(), "all is done")


def test_a_close_that_waits_for_a_large_file_passes_all_others(site: Site) -> None:
    site.values["acknowledge"] = {"rule": [{"path": "first"}]}
    site.configure()
    held = hold_large_ones(site)
    with site.draining():
        until(lambda: len(keys_of_parts(site)) == WORKERS, "all threads send large files")
        site.write("first/f", os.urandom(9 * MIB))
        until(lambda: site.objects().keys() == {"first/f"}, "the first file is there")
        held.release()
        until(lambda: not site.left(), "all is done")


def test_copies_hold_up_neither_deletions_nor_uploads(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "SMALL_BYTES", 0)
    for number in range(COPIES + 2):
        site.write(f"old{number}", b"%d" % number)
    site.write("gone", b"data")
    site.drain()
    held = site.proxy.inject(lambda r: r.operation == "COPY", Act.HOLD, 1e9)
    for number in range(COPIES + 2):
        site.rename(f"old{number}", f"new{number}")
    with site.draining():
        until(lambda: len(held.held) == COPIES, "all threads copy")
        site.unlink("gone")
        site.write("sent", b"data")
        until(lambda: "sent" in site.objects() and "gone" not in site.objects(), "both are done")
        assert not any(key.startswith("new") for key in site.objects())
        # The key of another file is taken, so that an upload must wait for a copy.
        site.write("old0", b"another")
        site.write("sent too", b"data")
        until(lambda: "sent too" in site.objects(), "it does not wait for the copy")
        held.release()
        until(lambda: not site.left(), "all is done")
    assert site.objects()["old0"] == b"another"


def test_a_file_that_grows_changes_lanes(site: Site) -> None:
    held = hold_large_ones(site)
    with site.draining():
        until(lambda: len(keys_of_parts(site)) == WORKERS, "all threads send large files")
        for _ in range(3):
            site.write("large/grown", os.urandom(9 * MIB))
            site.write("large/grown", b"small")
        until(lambda: "large/grown" in site.objects(), "the small file is there")
        held.release()
        until(lambda: not site.left(), "all is done")
    assert f"{PREFIX}/large/grown" not in keys_of_parts(site)


class OnePlace:
    """A store with one place, which is taken."""

    def __init__(self, site: Site) -> None:
        self.pace = Pace(Rates(0, 0), 1, threading.Event())
        self.store = S3Store(site.settings, pace=self.pace)
        self.key = f"{PREFIX}/f"
        self.upload_id = self.store.begin(self.key, {})
        site.proxy.forget()
        self._taken = self.pace.begin()

    def waits(self, requests: int) -> None:
        until(lambda: len(self.pace._waiting) == requests, f"{requests} requests wait")

    def free(self) -> None:
        self.pace.end(self._taken, RequestEnd(False))

    def look(self) -> None:
        self.store.head(self.key)

    def send_part(self) -> None:
        self.store.put_part(self.key, self.upload_id, 1, b"part", goes_first=patiently())


@pytest.mark.parametrize("patience_seconds", [600.0, 0.0])
def test_a_part_gives_way_to_other_requests_for_a_time(
    site: Site, monkeypatch: pytest.MonkeyPatch, patience_seconds: float
) -> None:
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", patience_seconds)
    place = OnePlace(site)
    with meanwhile(place.send_part):
        place.waits(1)
        with meanwhile(place.look):
            place.waits(2)
            place.free()
    order = [request.operation for request in site.proxy.operations("PART", "HEAD")]
    if patience_seconds:
        assert order == ["HEAD", "PART"]
    assert sorted(order) == ["HEAD", "PART"]


@pytest.mark.parametrize(("operation", "send"), [("PART", "send_part"), ("HEAD", "look")])
def test_a_request_is_signed_when_there_is_a_place(site: Site, operation: str, send: str) -> None:
    """A signature is taken for 15 minutes, and the parts before it may take longer."""
    place = OnePlace(site)
    with meanwhile(getattr(place, send)):
        place.waits(1)
        began = int(time.time())
        until(lambda: time.time() >= began + 2, "a signature of before would be old")
        free_at = datetime.now(UTC).replace(microsecond=0)
        place.free()
    (sent,) = site.proxy.operations(operation)
    assert datetime.strptime(sent.headers["x-amz-date"] + "+0000", "%Y%m%dT%H%M%SZ%z") >= free_at
