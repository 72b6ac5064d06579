"""A refusal that only a person can end has a clear state and remedy, and few requests meanwhile.

Nothing is lost.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.common.errors import ObjectRefused, StoreRefused
from gateway.objectstore.objects import Head
from gateway.objectstore.s3 import S3Store
from tests.support.clisite import spillway
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Request
from tests.support.t4.ceph import ON_CEPH
from tests.support.t4.refused import bucket_state
from tests.support.waiting import until

WINDOW_SECONDS = 2.0
RETRY_SECONDS = 1.0

CREDENTIALS = "refuses our credentials ({}): correct "
NO_ROOM = "has no room left ({}): raise its quota"
KMS = "not authorized to perform: kms:GenerateDataKey"
CASES = [
    (400, "ExpiredToken", "The provided token has expired", CREDENTIALS),
    (403, "InvalidAccessKeyId", "No such key", CREDENTIALS),
    (404, "NoSuchBucket", "It is gone", "create it or correct bucket.name"),
    (403, "AccessDenied", "Access Denied", "grant these credentials list, read, write"),
    (403, "AccessDenied", KMS, "grant these credentials kms:GenerateDataKey"),
    (400, "KMS.DisabledException", "The key is disabled", "enable the key"),
    (403, "QuotaExceeded", "Quota exceeded", NO_ROOM),
    (507, "XMinioStorageFull", "Full", NO_ROOM),
]


def status(site: Site) -> dict[str, Any]:
    result = spillway("status", "--json", "--config", site.settings.source)
    facts: dict[str, Any] = json.loads(result.stdout)
    assert result.returncode == 1
    return facts


@pytest.mark.parametrize(("http", "code", "message", "remedy"), CASES)
def test_uploads_that_are_refused_mid_way(
    rclone_site: Site, http: int, code: str, message: str, remedy: str
) -> None:
    site = rclone_site
    site.configure(retry_max_seconds=RETRY_SECONDS, workers=8)
    contents = {f"first/{n}": b"%d" % n for n in range(5)}
    for path, data in contents.items():
        site.write(path, data)

    def is_upload(request: Request) -> bool:
        return request.operation in ("PUT", "CREATE", "PART", "COMPLETE")

    with site.process():
        until(lambda: not site.left(), "the first files are drained")
        fault = site.proxy.inject(is_upload, Act.FAIL, 1e9, http, code)
        fault.message = message
        large = os.urandom(11 * MIB)
        for path, data in {**{f"later/{n}": b"%d" % n for n in range(50)}, "large": large}.items():
            site.write(path, data)
            contents[path] = data
        until(lambda: bucket_state(site) == "refused", "refused is shown")
        assert remedy.format(code) in status(site)["drain"]["bucket"]["error"]
        # After the requests that were under way, there is one try for each pause.
        time.sleep(RETRY_SECONDS)
        site.proxy.forget()
        time.sleep(WINDOW_SECONDS)
        # The mean pause is half the longest pause; 51 files wait.
        assert len(site.proxy.operations()) <= 30
        tries = len([r for r in site.proxy.operations() if is_upload(r)])
        checks = len(site.proxy.operations("LIST"))
        assert tries <= checks + 1
        fault.release()
        until(lambda: not site.left(), "everything is drained")
        until(lambda: bucket_state(site) == "reachable", "reachable is shown")
    assert site.objects() == contents
    assert site.multiparts() == 0


def test_where_there_is_no_room_deletions_go_on(rclone_site: Site) -> None:
    site = rclone_site
    for number in range(20):
        site.write(f"old/{number}", b"x")
    site.drain()
    fault = site.proxy.inject(lambda r: r.operation == "PUT", Act.FAIL, 1e9, 403, "QuotaExceeded")
    # With this value the next try of an upload is far away.
    site.configure(retry_max_seconds=10_000)
    with site.process():
        for number in range(5):
            site.write(f"new/{number}", b"x")
        until(lambda: bucket_state(site) == "refused", "refused is shown")
        for number in range(20):
            site.unlink(f"old/{number}")
        until(lambda: not site.rows("SELECT * FROM tombstone"), "the old objects are deleted")
        assert site.objects() == {}
        assert bucket_state(site) == "refused"
    fault.release()
    site.drain()
    assert len(site.objects()) == 5


def test_a_bucket_that_is_deleted_and_made_again(rclone_site: Site) -> None:
    site = rclone_site
    with site.process():
        until(lambda: bucket_state(site) == "reachable", "it is there")
        site.delete_bucket()
        site.write("f", b"data")
        until(lambda: bucket_state(site) == "refused", "refused is shown")
        facts = status(site)
        assert f"no bucket {site.bucket}" in facts["bucket"]["error"]
        assert "create it or correct bucket.name" in facts["drain"]["bucket"]["error"]
        site.client.create_bucket(Bucket=site.bucket)
        until(lambda: not site.left(), "everything is drained")
    assert site.objects() == {"f": b"data"}


def test_retries_are_kept_over_a_restart(rclone_site: Site) -> None:
    site = rclone_site
    ino = site.write("f", b"data")
    path = site.namespace.files.path(ino, 0)
    aside = path.with_name("aside")
    path.rename(aside)
    site.drain()
    ((*job, tries, error),) = site.rows("SELECT work, ino, key, tries, error FROM retry")
    assert job == ["uploads", ino, f"{PREFIX}/f"]
    assert (tries, "is missing" in error) == (1, True)
    site.rows("UPDATE retry SET tries = 1000 RETURNING 1")
    with site.process():
        until(lambda: site.rows("SELECT tries FROM retry")[0][0] >= 1001, "it counts on")
        until(lambda: site.report()["failures"][0]["tries"] >= 1001, "it is shown")
        aside.rename(path)
        until(lambda: not site.left(), "the file is drained")
        until(lambda: not site.rows("SELECT * FROM retry"), "the failure is forgotten")
    assert site.objects() == {"f": b"data"}


@pytest.mark.skipif(ON_CEPH, reason="its default zone has no such storage class")
def test_an_archived_object_stops_no_other_move(moto_site: Site) -> None:
    """The store refuses to copy it with the same 403 as wrong credentials."""
    site = moto_site
    for path in ("cold", "warm"):
        site.write(path, path.encode())
    site.drain()
    site.client.copy_object(
        Bucket=site.bucket,
        Key=f"{PREFIX}/cold",
        CopySource={"Bucket": site.bucket, "Key": f"{PREFIX}/cold"},
        StorageClass="GLACIER",
        MetadataDirective="COPY",
    )
    site.rename("cold", "a")
    site.rename("warm", "b")
    with site.draining():
        until(lambda: f"{PREFIX}/b" in listed(site), "the other object is moved")
        until(lambda: bucket_state(site) == "reachable", "the bucket counts as reachable")
    store = S3Store(site.settings)
    head = Head(4, "", {}, False)
    with pytest.raises(ObjectRefused, match="is archived"):
        store.copy(f"{PREFIX}/cold", f"{PREFIX}/c", head, {})


def test_one_object_that_is_denied_is_not_taken_for_wrong_credentials(rclone_site: Site) -> None:
    """The answer to HEAD has no body, and therefore no code."""
    site = rclone_site
    site.write("mine", b"1")
    site.write("other", b"2")
    site.drain()
    site.proxy.inject(
        lambda r: r.operation == "HEAD" and r.key == f"{PREFIX}/mine", Act.FAIL, 1e9, 403
    )
    site.rename("mine", "a")
    site.rename("other", "b")
    with site.draining():
        until(lambda: f"{PREFIX}/b" in listed(site), "the other object is moved")
        assert bucket_state(site) == "reachable"
    with pytest.raises(ObjectRefused, match="403"):
        S3Store(site.settings).head(f"{PREFIX}/mine")


def test_wrong_credentials_are_told_from_a_denied_object(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"1")
    site.drain()
    site.rename("f", "g")
    for operation in ("HEAD", "LIST"):
        site.proxy.inject(
            lambda r, name=operation: r.operation == name,  # type: ignore[misc]
            Act.FAIL,
            1e9,
            403,
            "InvalidAccessKeyId",
        )
    with pytest.raises(StoreRefused, match="refuses our credentials"):
        S3Store(site.settings).head(f"{PREFIX}/f")


def listed(site: Site) -> set[str]:
    objects_v2 = site.client.list_objects_v2(Bucket=site.bucket)
    return {entry["Key"] for entry in objects_v2.get("Contents", [])}


@pytest.mark.parametrize("operation", ["check", "head", "put"])
@pytest.mark.parametrize(("status", "code"), [(301, "PermanentRedirect"), (307, "Other")])
def test_a_bucket_in_another_region_is_not_followed(
    rclone_site: Site, operation: str, status: int, code: str
) -> None:
    """A check that follows passes, and each upload is refused."""
    site = rclone_site
    store = S3Store(site.settings)
    fault = site.proxy.inject(lambda _r: True, Act.FAIL, 1, status, code)
    fault.headers = (("x-amz-bucket-region", "eu-south-2"),)
    calls: dict[str, Callable[[], object]] = {
        "check": store.check,
        "head": lambda: store.head(f"{PREFIX}/f"),
        "put": lambda: store.put(f"{PREFIX}/f", b"data", {}),
    }
    with pytest.raises(StoreRefused, match=r'write bucket\.region = "eu-south-2"'):
        calls[operation]()
    assert len(site.proxy.operations()) == 1
