"""A bucket and prefix have one owner: every other gateway writes nothing there, and says why."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.common import clock
from gateway.common.errors import OtherOwner, StoreUnavailable
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace import data_files
from gateway.objectstore import ownership as ownership_module
from gateway.objectstore.ownership import Ownership, guarded
from gateway.objectstore.request import Conditions
from gateway.objectstore.s3 import S3Store
from gateway.service import alarms
from tests.support.clisite import spillway
from tests.support.drain import Drain
from tests.support.drainsite import PREFIX, Site
from tests.support.owner import OWNER
from tests.support.s3server import MotoServer
from tests.support.sites import MakeSite
from tests.support.t4.ceph import ON_CEPH
from tests.support.volumes import alarms_in, status_of
from tests.support.waiting import until

KEY = f"{PREFIX}/{OWNER}"
CHANGES = ("PUT", "PART", "PART COPY", "COPY", "CREATE", "COMPLETE", "ABORT", "DELETE")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request for the owner object be under way for a moment only."""
    monkeypatch.setattr(ownership_module, "REQUEST_SECONDS", 0.2)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each look be a minute ago as soon as it was made."""
    monkeypatch.setattr(ownership_module, "LOOK_SECONDS", 0.0)


def owner_of(site: Site) -> dict[str, Any]:
    answer = site.client.get_object(Bucket=site.bucket, Key=KEY)
    document: dict[str, Any] = json.loads(answer["Body"].read())
    return document


def disown(site: Site) -> None:
    """Take the claim away on both sides, as if no Spillway had known of owners yet."""
    site.client.delete_object(Bucket=site.bucket, Key=KEY)
    site.rows("DELETE FROM bucket_owner RETURNING 1")


def beside(site: Site, other: Site) -> Site:
    """Give a gateway the bucket and prefix of another one, without a claim."""
    other.values["bucket"]["name"] = other.bucket = site.bucket
    other.configure()
    other.rows("DELETE FROM bucket_owner RETURNING 1")
    other.proxy.forget()
    return other


def changed(site: Site) -> list[tuple[str, str]]:
    """Return what a gateway changed in the bucket, by the record of its proxy."""
    probes = f"{PREFIX}/.spillway/probe/"
    sent = [*site.proxy.operations(*CHANGES), *site.proxy.owner_requests]
    return [
        (request.operation, key)
        for request in sent
        for key in (request.keys or (request.key,))
        if request.operation not in ("GET", "HEAD") and not key.startswith(probes)
    ]


def ownership(site: Site, settings: Settings | None = None) -> Ownership:
    settings = settings or site.settings
    return Ownership(settings, Database(settings.database_url))


def namespace(site: Site) -> str:
    return bytes(site.rows("SELECT fs_id FROM volume")[0][0]).hex()


def shown(site: Site) -> dict[str, Any]:
    bucket: dict[str, Any] = site.report()["bucket"]
    return bucket


def test_a_new_gateway_claims_an_empty_prefix(site: Site) -> None:
    disown(site)
    site.write("f", b"data")
    site.drain()
    assert site.objects() == {"f": b"data"}
    owner = owner_of(site)
    assert (owner["namespace"], owner["epoch"]) == (namespace(site), 1)
    assert owner["released"] is False
    [(token, former)] = site.rows("SELECT token, former FROM bucket_owner")
    assert (owner["token"], former) == (token, None)
    before = len(site.proxy.owner_requests)
    site.drain()
    again = [request.operation for request in site.proxy.owner_requests[before:]]
    assert again == ["GET"], "a start looks, and writes nothing within the minute"


@pytest.mark.skipif(ON_CEPH, reason="it has a test of its own")
def test_what_each_store_heeds(site: Site) -> None:
    disown(site)
    site.drain()
    expected = {"RcloneServer": "none", "MotoServer": "replace", "WeedServer": "replace"}
    rows = site.rows("SELECT conditions FROM bucket_owner")
    assert rows == [(expected[type(site.server).__name__],)]


@pytest.mark.skipif(not ON_CEPH, reason="make ceph")
def test_ceph_heeds_only_that_nothing_is_there(rclone_site: Site) -> None:
    disown(rclone_site)
    rclone_site.drain()
    assert rclone_site.rows("SELECT conditions FROM bucket_owner") == [("create",)]


def test_a_second_gateway_on_the_prefix_changes_nothing(
    site: Site, make_site: MakeSite, tmp_path: Path
) -> None:
    other = beside(site, make_site(site.server))
    site.write("f", b"of one")
    site.drain()
    other.write("f", b"of the other")
    other.write("g", b"of the other")
    other.drain()
    assert changed(other) == []
    assert site.objects() == {"f": b"of one"}
    assert owner_of(site)["namespace"] == namespace(site)
    document = shown(other)
    assert document["state"] == "refused"
    for part in (namespace(site)[:8], namespace(other)[:8], "spillway adopt bucket", "prefix"):
        assert part in document["error"]
    assert other.rows("SELECT 1 FROM retry") == [], "the files wait, and are not at fault"
    with other.draining():
        until(lambda: alarms_in(status_of(other.settings))[alarms.BUCKET_TAKEN] == 1, "the alarm")
        assert not status_of(other.settings)["healthy"]
    assert alarms_in(status_of(site.settings))[alarms.BUCKET_TAKEN] == 0
    site.write("g", b"of one")
    site.drain()
    assert site.objects() == {"f": b"of one", "g": b"of one"}


def test_a_running_gateway_stops_when_another_one_takes_the_bucket(
    site: Site, make_site: MakeSite, always: None
) -> None:
    other = beside(site, make_site(site.server))
    site.write("f", b"of one")
    drain = Drain(site.settings)
    try:
        while drain.cycle():
            pass
        ownership(other).take()
        site.proxy.forget()
        site.write("g", b"of one")
        site.unlink("f")
        drain.cycle()
        assert changed(site) == []
        assert drain.health.shown()["taken"] is True
        with pytest.raises(OtherOwner, match=namespace(other)[:8]):
            drain._context.store.put(f"{PREFIX}/x", b"late", {})
    finally:
        drain.close()
    assert site.objects() == {"f": b"of one"}
    # A person gives the bucket back.
    site.own()
    site.drain()
    assert site.objects() == {"g": b"of one"}
    assert owner_of(site)["epoch"] == 3


@pytest.mark.parametrize("change", ["put", "begin", "delete_many", "copy"])
def test_no_change_is_sent_without_a_claim(
    moto_site: Site, make_site: MakeSite, change: str
) -> None:
    site, other = moto_site, beside(moto_site, make_site(moto_site.server))
    site.write("f", b"data")
    site.drain()
    store = S3Store(other.settings)
    head = store.head(f"{PREFIX}/f")
    assert head is not None
    calls: dict[str, Callable[[S3Store], object]] = {
        "put": lambda store: store.put(f"{PREFIX}/f", b"other", {}),
        "begin": lambda store: store.begin(f"{PREFIX}/f", {}),
        "delete_many": lambda store: store.delete_many([f"{PREFIX}/f"]),
        "copy": lambda store: store.copy(f"{PREFIX}/f", f"{PREFIX}/g", head, {}),
    }
    database = Database(other.settings.database_url)
    with pytest.raises(OtherOwner):
        calls[change](guarded(store, other.settings, database))
    assert changed(other) == []


def copied(site: Site, directory: Path) -> Settings:
    """Copy a gateway as a snapshot of its disk does: ids, rows, and data files."""
    shutil.copytree(site.settings.data_dir, directory)
    settings = replace(site.settings, gateway=replace(site.settings.gateway, data_dir=directory))
    root = settings.files_dir
    stamp = data_files.read(root)
    assert stamp is not None
    data_files.write(root, stamp._replace(directory=data_files.directory_of(root)))
    return settings


def seconds_of(owner: dict[str, Any]) -> float:
    return datetime.fromisoformat(owner["time"]).timestamp()


def test_a_copy_waits_and_the_original_goes_on(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("f", b"of the original")
    site.drain()
    copy = ownership(site, copied(site, tmp_path / "copy"))
    site.proxy.forget()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="may still run"):
            copy.look()
    assert [request.operation for request in site.proxy.owner_requests] == ["GET", "GET"]
    # The original gives its sign of each minute. The object has seconds: in the same one it would
    # be as it was.
    before = owner_of(site)
    until(lambda: clock.now_ns() // clock.NS > seconds_of(before), "the next second")
    old = {**before, "time": "2026-01-01T00:00:00Z"}
    site.client.put_object(Bucket=site.bucket, Key=KEY, Body=json.dumps(old).encode())
    site.drain()
    assert owner_of(site)["token"] == before["token"]
    with pytest.raises(OtherOwner, match="another copy of this gateway"):
        copy.look()
    site.write("g", b"of the original")
    site.drain()
    assert site.objects() == {"f": b"of the original", "g": b"of the original"}


def test_the_wait_for_a_sign_is_shown(moto_site: Site) -> None:
    """A power cut looks like a copy: the same ids, another boot."""
    site = moto_site
    site.drain()
    before = {**owner_of(site), "holder": "another boot 1 2"}
    site.client.put_object(Bucket=site.bucket, Key=KEY, Body=json.dumps(before).encode())
    site.write("f", b"data")
    with site.process():
        until(lambda: bool(site.report().get("bucket", {}).get("awaited")), "the wait")
        facts = status_of(site.settings)
        printed = spillway("status", "--config", site.settings.source).stdout
        [said] = [line for line in printed.splitlines() if line.startswith("draining")]
        assert "NOTHING IS SENT yet" in said
        assert re.search(r"nothing is sent for another \d.*copy of this gateway.*by itself", said)
        assert alarms_in(facts)[alarms.BUCKET_UNREACHABLE] == 1
        assert alarms_in(facts)[alarms.BUCKET_TAKEN] == 0
    assert site.objects() == {}
    logged = [line for line in site.output.read_text().splitlines() if "for another" in line]
    assert len(logged) == 1
    assert "is unreachable" not in logged[0]


def test_a_copy_takes_over_when_the_original_is_gone_for_good(
    each_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original that comes back knows the token of its time only."""
    site = each_site
    site.write("f", b"data")
    site.drain()
    settings = copied(site, tmp_path / "copy")
    copy = ownership(site, settings)
    with pytest.raises(StoreUnavailable, match="may still run"):
        copy.look()
    now, late_seconds = clock.monotonic_seconds, settings.bucket.late_seconds
    monkeypatch.setattr(
        clock, "monotonic_seconds", lambda: now() + ownership_module.LOOK_SECONDS + late_seconds
    )
    with pytest.raises(StoreUnavailable, match="may still run"):
        copy.look()
    monkeypatch.setattr(
        clock, "monotonic_seconds", lambda: now() + 2 * ownership_module.LOOK_SECONDS + late_seconds
    )
    copy.look()
    assert owner_of(site)["epoch"] == 2
    # On PostgreSQL the two have one database, so that the original is only another machine.
    shares = not settings.database_url.startswith("sqlite")
    error, why = (StoreUnavailable, "may still run") if shares else (OtherOwner, "another copy")
    with pytest.raises(error, match=why):
        ownership(site).look()


def test_a_gateway_that_was_stopped_is_followed_at_once_on_another_machine(
    moto_site: Site, tmp_path: Path
) -> None:
    site = moto_site
    with site.draining() as drain:
        until_owned(site)
        drain.wake()
    assert owner_of(site)["released"] is True
    moved = ownership(site, copied(site, tmp_path / "moved"))
    assert moved.look() is Conditions.REPLACE
    assert owner_of(site)["released"] is False
    with pytest.raises(OtherOwner, match="another copy of this gateway"):
        ownership(site).look()


def until_owned(site: Site) -> None:
    until(lambda: site.report().get("bucket", {}).get("state") == "reachable", "a look")


def test_an_earlier_database_on_the_same_machine_goes_on(moto_site: Site) -> None:
    """Nothing else can have moved the object: the locks in the data directory keep it away."""
    site = moto_site
    site.drain()
    site.rows("UPDATE bucket_owner SET token = 'of an earlier time' RETURNING 1")
    site.write("f", b"data")
    site.drain()
    assert site.objects() == {"f": b"data"}
    assert owner_of(site)["epoch"] == 2


def test_another_store_under_the_same_name_gets_nothing(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("f", b"data")
    site.drain()
    with MotoServer(tmp_path / "other") as other:
        other.client().create_bucket(Bucket=site.bucket)
        site.proxy.upstream_port = other.port
        site.proxy.forget()
        site.write("g", b"data")
        site.drain()
        assert changed(site) == []
        assert "none of the objects that are recorded" in shown(site)["error"]
        assert other.client().list_objects_v2(Bucket=site.bucket)["KeyCount"] == 0


def test_a_prefix_with_objects_of_others_is_not_claimed(site: Site) -> None:
    disown(site)
    site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/theirs", Body=b"theirs")
    site.write("f", b"data")
    site.drain()
    assert changed(site) == []
    assert "has objects (team/run/theirs) and no owner" in shown(site)["error"]
    assert site.objects() == {"theirs": b"theirs"}


def test_an_upgraded_gateway_claims_what_is_known_to_be_its_own(site: Site) -> None:
    site.write("f", b"data")
    site.drain()
    disown(site)
    site.write("g", b"more")
    site.drain()
    assert site.objects() == {"f": b"data", "g": b"more"}
    assert owner_of(site)["namespace"] == namespace(site)


def test_an_object_without_metadata_is_known_by_its_etag(moto_site: Site) -> None:
    site = moto_site
    site.write("f", b"data")
    site.drain()
    disown(site)
    site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/f", Body=b"data")
    site.drain()
    assert owner_of(site)["namespace"] == namespace(site)
    disown(site)
    site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/f", Body=b"other bytes")
    site.drain()
    assert "none of the objects that are recorded" in shown(site)["error"]


def test_two_gateways_that_shared_a_prefix_are_both_stopped_by_the_upgrade(
    moto_site: Site, make_site: MakeSite
) -> None:
    site, other = moto_site, beside(moto_site, make_site(moto_site.server))
    for one in (site, other):
        one.own()
        one.write(f"of {namespace(one)}", b"data")
        one.drain()
    disown(site)
    other.rows("DELETE FROM bucket_owner RETURNING 1")
    for one in (site, other):
        one.proxy.forget()
        one.write("more", b"data")
        one.drain()
        assert changed(one) == []
        assert "has objects of another gateway" in shown(one)["error"]


def test_a_move_that_was_cut_off_is_ended(each_site: Site) -> None:
    site = each_site
    before = owner_of(site)["token"]
    site.rows(f"UPDATE bucket_owner SET token = 'next', former = '{before}' RETURNING 1")
    site.write("f", b"data")
    site.drain()
    assert site.objects() == {"f": b"data"}
    owner = owner_of(site)
    assert (owner["epoch"], owner["token"] != before) == (2, True)
    assert site.rows("SELECT token, former FROM bucket_owner") == [(owner["token"], None)]


def test_a_claim_that_another_one_overtakes_is_given_up(
    rclone_site: Site, make_site: MakeSite
) -> None:
    """The store heeds no conditions, so both have written: it is read back."""
    site, other = rclone_site, beside(rclone_site, make_site(rclone_site.server))
    if ON_CEPH:
        pytest.skip("it heeds the condition")
    disown(site)
    late = ownership(other)

    class Overtaking(Ownership):
        def _write(self, *args: Any) -> None:
            super()._write(*args)
            late.take()

    claiming = Overtaking(site.settings, Database(site.settings.database_url))
    with pytest.raises(StoreUnavailable, match="has changed"):
        claiming.look()
    with pytest.raises(OtherOwner):
        claiming.look()
    assert owner_of(site)["namespace"] == namespace(other)


def test_an_owner_object_that_cannot_be_understood_stops_everything(moto_site: Site) -> None:
    site = moto_site
    site.client.put_object(Bucket=site.bucket, Key=KEY, Body=b"{")
    site.write("f", b"data")
    site.drain()
    assert changed(site) == []
    assert "cannot be understood" in shown(site)["error"]
    ownership(site).take()
    site.drain()
    assert site.objects() == {"f": b"data"}
