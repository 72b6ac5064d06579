"""Multipart uploads that a crash left, and stores that do not list them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.drain import worker
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act, Fault, Request
from tests.support.t4.ceph import ON_CEPH
from tests.support.waiting import until

ENDLESS = (
    "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{}</ListMultipartUploadsResult>"
)
SAME_PLACE = "<NextKeyMarker>a</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>"


def is_listing(request: Request) -> bool:
    return request.operation == "LIST UPLOADS"


def answer(site: Site, content: str) -> Fault:
    fault = site.proxy.inject(is_listing, Act.FAIL, 1e9, 200)
    fault.content = content
    return fault


@pytest.mark.parametrize("act", [Act.FAIL, Act.DROP, Act.TRUNCATE, Act.HOLD])
def test_a_store_that_fails_to_list_unfinished_uploads_stops_nothing(
    moto_site: Site, act: Act
) -> None:
    site = moto_site
    fault = site.proxy.inject(is_listing, act, 1e9, 500, "InternalError")
    site.write("f", b"data")
    with site.draining():
        until(site.is_clean, "the file is drained", 10)
        until(lambda: site.report().get("bucket", {}).get("state") == "reachable", "it is shown")
        fault.discard()  # Otherwise the end of the drain waits for the time-out of the listing.
    assert site.objects() == {"f": b"data"}


@pytest.mark.parametrize("content", [ENDLESS.format(""), ENDLESS.format(SAME_PLACE)])
def test_a_listing_without_an_end_is_not_followed_for_ever(moto_site: Site, content: str) -> None:
    site = moto_site
    answer(site, content)
    assert list(S3Store(site.settings).uploads(PREFIX)) == []
    site.write("f", b"data")
    site.drain()
    assert site.is_clean()
    assert len(site.proxy.operations("LIST UPLOADS")) <= 6


@pytest.mark.skipif(ON_CEPH, reason="an upload must be a day old; moto says so of each")
def test_a_listing_that_failed_is_tried_again_soon(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LOOK_AGAIN", timedelta(seconds=0.5))
    site = moto_site
    site.write("f", b"data")
    site.drain()
    site.client.create_multipart_upload(Bucket=site.bucket, Key=f"{PREFIX}/f")
    fault = site.proxy.inject(is_listing, Act.FAIL, 1e9, 500, "InternalError")
    with site.draining():
        until(lambda: len(site.proxy.operations("LIST UPLOADS")) > 4, "it is tried again")
        fault.release()
        until(lambda: site.multiparts() == 0, "ours is aborted")
