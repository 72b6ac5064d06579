"""Objects in archives are restored. People see which ones and until when, and moves wait."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.common import clock
from gateway.common.types import BULK, EXPEDITED, STANDARD
from gateway.rpc.frames import Op
from tests.support.clisite import spillway
from tests.support.drainsite import MIB, PREFIX
from tests.support.s3proxy import Act, Fault, Request
from tests.support.t8.site import ColdSite
from tests.support.waiting import until

HOUR_NS = 3600 * clock.NS
ONGOING = {"x-amz-storage-class": "GLACIER", "x-amz-restore": 'ongoing-request="true"'}
EXPIRES_NS = 4_070_908_800 * clock.NS
BACK = {
    "x-amz-storage-class": "GLACIER",
    "x-amz-restore": 'ongoing-request="false", expiry-date="Thu, 01 Jan 2099 00:00:00 GMT"',
}


def archive(site: ColdSite, path: str = "f") -> None:
    """Put an object into an archive, as a rule of the bucket does."""
    key = f"{PREFIX}/{path}"
    site.client.copy_object(
        Bucket=site.bucket,
        Key=key,
        CopySource={"Bucket": site.bucket, "Key": key},
        StorageClass="GLACIER",
        MetadataDirective="COPY",
    )
    site.proxy.forget()


def frozen(site: ColdSite) -> Fault:
    """Let the store refuse all reads, as it does until an object is back."""
    return site.proxy.inject(
        lambda r: "range" in r.headers, Act.FAIL, 1e9, 403, "InvalidObjectState"
    )


def heads(site: ColdSite, headers: dict[str, str]) -> Fault:
    """Answer HEAD in place of the store."""
    more = tuple(headers.items())
    fault = Fault(lambda r: r.method == "HEAD", Act.FAIL, 1e9, 200, headers=more)
    site.proxy.faults.append(fault)
    return fault


def asks_back(request: Request) -> bool:
    return "restore" in request.query


def restoring(site: ColdSite) -> list[dict[str, Any]]:
    return list(site.cache_report().get("restoring", []))


def restore_requests(site: ColdSite) -> list[str]:
    """Return the bodies of the requests that ask objects back."""
    return [
        request.restore_body.decode() for request in site.proxy.operations() if asks_back(request)
    ]


def warm(site: ColdSite, ino: int) -> None:
    site.rows(f"INSERT INTO warm_request VALUES ({ino}, {clock.now_ns()}) RETURNING 1")


def test_an_archived_object_is_asked_back(aws_site: ColdSite) -> None:
    """Clients wait for a while and are told EIO; when the object is back, it is fetched."""
    site = aws_site
    site.configure("cache", restore_wait_seconds=0.5, restore_tier=BULK)
    ino, data = site.cold_file(3 * MIB)
    archive(site)
    cold = frozen(site)
    with site.hydrating() as hydrator:
        site.control.want(ino, 0)
        site.control.wait(Op.FAILED, ino)
        [shown] = until(lambda: restoring(site), "the report")
        assert (shown["path"], shown["tier"]) == ("f", BULK)
        assert shown["expected_ns"] - shown["since_ns"] == 12 * HOUR_NS
        assert abs(clock.now_ns() - shown["since_ns"]) < HOUR_NS
        cold.release()
        site.control.want(ino, 0)
        site.finish(hydrator)
    assert site.bytes_of(ino) == data
    [restore_body] = restore_requests(site)
    assert "<Days>7</Days>" in restore_body
    assert "<Tier>Bulk</Tier>" in restore_body
    assert restoring(site) == []
    assert site.rows("SELECT 1 FROM warm_request") == []


def test_an_archived_object_is_warmed(aws_site: ColdSite) -> None:
    site = aws_site
    ino, data = site.cold_file(3 * MIB)
    archive(site)
    warm(site, ino)
    with site.hydrating() as hydrator:
        site.arrive(ino)
        site.finish(hydrator)
    assert site.bytes_of(ino) == data
    assert len(restore_requests(site)) == 1


@pytest.mark.parametrize(
    ("storage_class", "status", "wanted", "sent", "hours"),
    [
        ("GLACIER", "", EXPEDITED, EXPEDITED, 5 / 60),
        ("DEEP_ARCHIVE", "", EXPEDITED, STANDARD, 12),
        ("DEEP_ARCHIVE", "", BULK, BULK, 48),
        ("INTELLIGENT_TIERING", "ARCHIVE_ACCESS", STANDARD, STANDARD, 5),
        ("INTELLIGENT_TIERING", "ARCHIVE_ACCESS", EXPEDITED, EXPEDITED, 5 / 60),
        ("INTELLIGENT_TIERING", "DEEP_ARCHIVE_ACCESS", EXPEDITED, STANDARD, 12),
    ],
)
def test_each_archive_is_asked_as_it_can_be(
    aws_site: ColdSite, storage_class: str, status: str, wanted: str, sent: str, hours: float
) -> None:
    """moto knows no archives of INTELLIGENT_TIERING, so the proxy answers for the store."""
    site = aws_site
    site.configure("cache", restore_tier=wanted)
    ino, _ = site.cold_file(MIB)
    frozen(site)
    heads(site, {"x-amz-storage-class": storage_class, "x-amz-archive-status": status})
    site.proxy.inject(asks_back, Act.FAIL, 1e9, 202)
    warm(site, ino)
    with site.hydrating():
        [shown] = until(lambda: restoring(site), "the report")
    assert shown["tier"] == sent
    assert shown["expected_ns"] - shown["since_ns"] == int(hours * HOUR_NS)
    assert re.findall("<Tier>(.*)</Tier>", restore_requests(site)[0]) == [sent]
    assert ("<Days>" in restore_requests(site)[0]) == (storage_class != "INTELLIGENT_TIERING")


def test_without_capacity_for_expedited_it_is_asked_again_as_standard(aws_site: ColdSite) -> None:
    site = aws_site
    site.configure("cache", restore_tier=EXPEDITED)
    ino, data = site.cold_file(3 * MIB)
    archive(site)

    def is_expedited(request: Request) -> bool:
        return b"<Tier>Expedited</Tier>" in request.restore_body

    code = "GlacierExpeditedRetrievalNotAvailable"
    site.proxy.inject(is_expedited, Act.FAIL, 1e9, 503, code)
    cold = frozen(site)
    with site.hydrating():
        site.control.want(ino, 0)
        [shown] = until(lambda: restoring(site), "the report")
        assert shown["tier"] == STANDARD
        assert site.cache_report()["bucket"]["state"] == "reachable"
        cold.release()
        site.arrive(ino)
    assert site.bytes_of(ino) == data
    assert "<Tier>Standard</Tier>" in restore_requests(site)[-1]


def test_what_is_being_restored_is_known_after_a_restart(aws_site: ColdSite) -> None:
    """No client asks again, and the object is not asked back again."""
    site = aws_site
    ino, data = site.cold_file(3 * MIB)
    archive(site)
    cold = frozen(site)
    with site.hydrating():
        site.control.want(ino, 0)
        [before] = until(lambda: restoring(site), "the report")
    site.control.clear()
    (site.settings.run_dir / "cache.json").unlink()
    answers = heads(site, ONGOING)
    with site.hydrating():
        [after] = until(lambda: restoring(site), "the report of the next hydrator")
        assert after == before
        cold.release()
        answers.release()
        site.arrive(ino)
    assert site.bytes_of(ino) == data
    assert len(restore_requests(site)) == 1


def test_it_is_shown_until_when_an_object_is_back_that_has_no_room(aws_site: ColdSite) -> None:
    site = aws_site
    site.values["space"]["reserve_bytes"] = 1 << 50
    site.configure("cache", restore_wait_seconds=0.2)
    ino, data = site.cold_file(3 * MIB)
    archive(site)
    cold = frozen(site)
    with site.hydrating() as hydrator:
        until(lambda: not hydrator._scheduler.has_room, "a disk without room")
        site.control.want(ino, 0)
        site.control.wait(Op.FAILED, ino)
        cold.release()
        answers = heads(site, BACK)
        gets = len(site.gets())
        until(lambda: restoring(site) and restoring(site)[0]["expires_ns"] == EXPIRES_NS, "the end")
        assert len(site.gets()) == gets
        # A client has its bytes all the same.
        site.control.want(ino, 0)
        site.control.wait(Op.PRESENT, ino)
        until(lambda: restoring(site) == [], "the end of the restore")
        answers.release()
    assert len(restore_requests(site)) == 1
    assert site.bytes_of(ino) == data


def errors(site: ColdSite) -> list[str]:
    return [error for (error,) in site.rows("SELECT error FROM retry WHERE work != 'hydrate'")]


def test_the_move_of_an_archived_object_waits_until_it_is_back(aws_site: ColdSite) -> None:
    site = aws_site
    ino, data = site.cold_file(3 * MIB, "a")
    archive(site, "a")
    site.rename("a", "b")
    for _ in range(2):  # the first failure of a job is not for good
        site.drain()
    [error] = errors(site)
    assert error.startswith("the move is deferred until its object is back")
    assert site.rows("SELECT ino FROM warm_request") == [(ino,)]
    config = ("--config", site.settings.source)
    shown = spillway("status", *config).stdout
    assert "stuck" not in shown
    waits = spillway("drain", "--wait", "--timeout", "2", *config)
    assert "not drained within 2 s" in waits.stderr
    with site.hydrating(), site.process():
        until(site.is_clean, "the move", 90.0)
        waits = spillway("drain", "--wait", "--timeout", "25", *config)
    assert waits.returncode == 0, waits.stderr
    assert site.objects() == {"b": data}
    assert site.left() == []


def test_a_move_needs_a_person_if_its_object_is_not_given_back(aws_site: ColdSite) -> None:
    site = aws_site
    site.cold_file(3 * MIB, "a")
    archive(site, "a")
    site.proxy.inject(asks_back, Act.FAIL, 1e9, 403, "AccessDenied")
    site.rename("a", "b")
    site.drain()
    with site.hydrating():
        until(site.retries, "the failure of the hydrator")
    site.drain()
    [error] = errors(site)
    assert error.startswith("needs a person: ")
    assert "archived, and not given back" in error
