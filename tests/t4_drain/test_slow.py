"""Requests that the store takes and does not answer in time, because it is still at work."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Fault
from tests.support.waiting import until

READ_TIMEOUT_SECONDS = 2.0
SENT = ("PUT", "CREATE", "PART", "COMPLETE", "COPY", "PART COPY")


def outlasts(site: Site, operation: str, act: Act, times: float = 1) -> Fault:
    """Have requests outlast the time-out: their answers (Act.HOLD_ANSWER), or also what they do."""
    site.values["bucket"]["read_timeout_seconds"] = READ_TIMEOUT_SECONDS
    site.configure()
    site.proxy.forget()
    return site.proxy.inject(lambda r: r.operation == operation, act, times)


def sent(site: Site) -> list[str]:
    return [request.operation for request in site.proxy.operations(*SENT)]


def await_object(site: Site) -> None:
    until(lambda: site.rows("SELECT 1 FROM object"), "the object is recorded")


def test_an_object_that_is_whole_is_not_sent_again(site: Site) -> None:
    """However often the answer to its completion comes too late."""
    data = os.urandom(11 * MIB)
    outlasts(site, "COMPLETE", Act.HOLD_ANSWER, times=100)
    site.write("f", data)
    with site.draining():
        await_object(site)
    assert sorted(sent(site)) == ["COMPLETE", "CREATE", "PART", "PART", "PART"]
    assert site.objects() == {"f": data}
    assert site.left() == []


def test_a_completion_that_takes_long_is_waited_for(rclone_site: Site) -> None:
    site = rclone_site
    data = os.urandom(11 * MIB)
    slow = outlasts(site, "COMPLETE", Act.HOLD)
    site.write("f", data)
    with site.draining() as drain:
        slow.wait()
        until(lambda: drain.counters.retries, "it is given up")
        seen = len(site.proxy.operations("HEAD"))
        until(lambda: len(site.proxy.operations("HEAD")) > seen + 2, "it is looked for")
        before = sent(site)
        slow.arrive()
        await_object(site)
    assert sorted(before) == sorted(sent(site)) == ["COMPLETE", "CREATE", "PART", "PART", "PART"]
    assert site.objects() == {"f": data}
    assert site.left() == []


def test_a_completion_that_never_comes_is_asked_for_again(rclone_site: Site) -> None:
    """The parts are there, so they are not sent again."""
    site = rclone_site
    data = os.urandom(11 * MIB)
    lost = outlasts(site, "COMPLETE", Act.HOLD)
    site.write("f", data)
    with site.draining():
        lost.wait()
        await_object(site)
    first, second = (request.time for request in site.proxy.operations("COMPLETE"))
    assert second - first >= site.settings.bucket.late_seconds
    assert sent(site).count("PART") == 3
    assert site.objects() == {"f": data}


def test_a_completion_that_a_proxy_cut_off_is_waited_for(rclone_site: Site) -> None:
    """nginx, HAProxy and the balancers of AWS answer 504 then."""
    site = rclone_site
    data = os.urandom(11 * MIB)
    fault = outlasts(site, "COMPLETE", Act.FAIL)
    fault.status, fault.code = 504, "504"
    site.write("f", data)
    with site.draining():
        await_object(site)
    first, second = (request.time for request in site.proxy.operations("COMPLETE"))
    assert second - first >= site.settings.bucket.late_seconds
    assert sent(site).count("PART") == 3


def test_a_drain_that_starts_finds_the_object_of_the_one_before(rclone_site: Site) -> None:
    site = rclone_site
    data = os.urandom(11 * MIB)
    slow = outlasts(site, "COMPLETE", Act.HOLD_ANSWER, times=100)
    site.write("f", data)
    with site.process() as process:
        slow.wait()
        site.kill(process)
    site.proxy.forget()
    site.drain()
    assert sent(site) == []
    assert site.objects() == {"f": data}
    assert site.left() == []


def test_an_object_of_other_bytes_is_not_taken_for_the_file(moto_site: Site) -> None:
    """Its metadata may say what it wants."""
    site = moto_site
    data = os.urandom(11 * MIB)
    slow = outlasts(site, "COMPLETE", Act.HOLD_ANSWER)
    site.write("f", data)
    with site.process() as process:
        slow.wait()
        site.kill(process)
    replace(site, bytes(11 * MIB))
    site.drain()
    assert "the store has" in site.report()["failures"][0]["error"]
    site.drain()
    assert site.objects() == {"f": data}


def replace(site: Site, data: bytes) -> None:
    """Replace the object of "f" with other bytes in parts of the same size, and its metadata."""
    key, metadata = f"{PREFIX}/f", site.metadata("f")
    client: Any = site.client
    begun = client.create_multipart_upload(Bucket=site.bucket, Key=key, Metadata=metadata)
    upload = {"Bucket": site.bucket, "Key": key, "UploadId": begun["UploadId"]}
    size = int(metadata["part-bytes"])
    parts = []
    for number, at in enumerate(range(0, len(data), size), 1):
        part = client.upload_part(**upload, PartNumber=number, Body=data[at : at + size])
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


@pytest.mark.parametrize("act", [Act.HOLD_ANSWER, Act.HOLD])
def test_a_copy_that_takes_long_is_made_once(rclone_site: Site, act: Act) -> None:
    site = rclone_site
    site.write("old", b"data")
    site.drain()
    slow = outlasts(site, "COPY", act)
    site.rename("old", "new")
    with site.draining() as drain:
        slow.wait()
        until(lambda: drain.counters.retries, "it is given up")
        if act is Act.HOLD:
            seen = len(site.proxy.operations("HEAD"))
            until(lambda: len(site.proxy.operations("HEAD")) > seen + 4, "it is looked for")
            slow.arrive()
        until(lambda: site.objects() == {"new": b"data"} and not site.left(), "it has moved")
    assert sent(site) == ["COPY"]


def test_a_file_sent_whole_is_not_sent_again(rclone_site: Site) -> None:
    site = rclone_site
    data = os.urandom(3 * MIB)
    outlasts(site, "PUT", Act.HOLD_ANSWER, times=2)
    site.write("f", data)
    with site.draining():
        await_object(site)
    assert sent(site) == ["PUT", "PUT"]
    assert site.objects() == {"f": data}


@pytest.mark.parametrize("operation", ["COMPLETE", "COPY"])
def test_one_slow_request_says_nothing_of_the_bucket(rclone_site: Site, operation: str) -> None:
    """All others continue, as many at a time as before."""
    site = rclone_site
    site.write("old", b"data")
    site.drain()
    slow = outlasts(site, operation, Act.HOLD_ANSWER, times=100)
    site.write("large", os.urandom(11 * MIB))
    site.rename("old", "new")
    with site.draining() as drain:
        slow.wait()
        site.write("other", b"other")
        until(lambda: not site.left(), "all is done")
        assert site.report()["counters"]["throttles"] == 0
        assert drain.health.state.shown == "reachable"
    assert len(site.proxy.operations("LIST")) == 1
