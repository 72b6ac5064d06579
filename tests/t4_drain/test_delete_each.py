"""In a store without DeleteObjects, each object is deleted by a request of its own."""

from __future__ import annotations

import pytest

from gateway.common.errors import ObjectRefused, StoreRefused
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act

LACKING = [(501, "NotImplemented"), (400, "InvalidArgument"), (405, "MethodNotAllowed")]


@pytest.mark.parametrize(("http", "code"), LACKING)
def test_deletions_go_one_by_one(rclone_site: Site, http: int, code: str) -> None:
    site = rclone_site
    site.proxy.inject(lambda r: r.method == "POST", Act.FAIL, 1e9, http, code)
    for number in range(20):
        site.write(f"d/{number}", b"x")
    site.write("stays", b"x")
    site.drain()
    for number in range(20):
        site.unlink(f"d/{number}")
    site.drain()
    assert site.objects() == {"stays": b"x"}
    assert site.left() == []
    store = S3Store(site.settings)
    assert store.delete_many([f"{PREFIX}/gone"]) == {f"{PREFIX}/gone": None}
    site.proxy.forget()
    store.delete_many([f"{PREFIX}/gone"])
    # The drain remembers that the store lacks DeleteObjects.
    assert [r.method for r in site.proxy.operations()] == ["DELETE"]


def test_one_object_that_must_stay_does_not_keep_the_others(rclone_site: Site) -> None:
    site = rclone_site
    site.proxy.inject(lambda r: r.method == "POST", Act.FAIL, 1e9, 501, "NotImplemented")
    site.proxy.inject(
        lambda r: r.method == "DELETE" and r.key == "locked", Act.FAIL, 1e9, 403, "AccessDenied"
    )
    for key in ("locked", "free"):
        site.client.put_object(Bucket=site.bucket, Key=key, Body=b"x")
    results = S3Store(site.settings).delete_many(["locked", "free"])
    assert results["free"] is None
    assert isinstance(results["locked"], (StoreRefused, ObjectRefused))
    assert site.objects() == {"!locked": b"x"}


def test_a_store_that_refuses_us_is_asked_once(rclone_site: Site) -> None:
    """One refusal of the credentials must not become a thousand requests."""
    site = rclone_site
    site.proxy.inject(lambda r: r.method == "POST", Act.FAIL, 1e9, 403, "InvalidAccessKeyId")
    with pytest.raises(StoreRefused, match="refuses our credentials"):
        S3Store(site.settings).delete_many(["a", "b"])
    assert len(site.proxy.operations()) == 1
