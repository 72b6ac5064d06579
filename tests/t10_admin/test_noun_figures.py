"""What is only read of a gateway, and its bucket: on its machine, and by its admin API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admin_api import dashboard
from admin_api.dashboard import Sample
from gateway.common import clock
from gateway.common.errors import NotPossible, StoreError, UserError
from gateway.common.models import to_json
from gateway.service.gateway import Gateway
from tests.support.t10.afar import Afar, afar
from tests.support.t10.either import WAYS, either

ODD = "odd\x1b%41"
ENCODED = "/checkpoints/odd%1B%2541"
PASSES = ("age_seconds", "free_bytes", "other_bytes", "used", "used_bytes")
"""What changes from moment to moment."""
LAST = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("figures")) as made:
        with made.world() as world:
            world.write(ODD, b"1")
        with made.world() as world:
            world.write("d/w", b"12345678")
        last_ns = int(LAST.timestamp()) * clock.NS
        with made.site.gateway.store.writing() as session:
            for minutes in range(1, 30):
                at_ns = last_ns - minutes * 60 * clock.NS
                dashboard.put(session, Sample(at_ns, minutes << 20, 3.5, None, rpo_seconds=90.0))
        for note in ("first", "second"):
            made.ask("POST", "pins", 201, json={"path": "d", "note": note})
        yield made


@pytest.fixture(params=WAYS)
def gateway(site: Afar, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    with either(site, request.param) as gateway:
        yield gateway


def test_the_state_is_whole(gateway: Gateway) -> None:
    status = gateway.status()
    assert not status.healthy and status.bucket.reachable is False
    assert status.bucket.error is not None and "no credentials" in status.bucket.error
    assert (status.bucket.checksum.kind, status.bucket.checksum.source) == (None, None)
    assert status.cache.resident is not None and status.cache.resident.files == 2
    assert status.disk.other_bytes is not None
    assert status.dirty.oldest is not None and status.dirty.oldest.path == ENCODED
    assert status.processes["up"].phase == "stopped" and status.processes["up"].restarts == 0


def test_the_state_is_the_same(site: Afar) -> None:
    def of(way: str) -> Any:
        with either(site, way) as gateway:
            return _lasting(to_json(gateway.status()))

    assert of("here") == of("afar")


def _lasting(found: Any) -> Any:
    if isinstance(found, list):
        return [_lasting(one) for one in found]
    if not isinstance(found, dict):
        return found
    return {name: _lasting(one) for name, one in found.items() if name not in PASSES}


def test_the_nfs_server_does_not_run(gateway: Gateway) -> None:
    for read in (gateway.statistics, gateway.clients, lambda: gateway.opens("d")):
        with pytest.raises(UserError, match="no NFS server answers"):
            read()


def test_usage_is_shown(gateway: Gateway) -> None:
    facts = gateway.usage(".")
    use = facts.directory
    assert (use.path, use.directories, use.files) == ("/checkpoints", 1, 2)
    assert (use.size_bytes, use.only_here_bytes, use.bucket_bytes) == (9, 9, 0)
    assert [(one.path, one.size_bytes) for one in facts.below] == [("/checkpoints/d", 8)]
    assert sum(one.files for one in facts.owners) == 2
    assert gateway.usage("d").directory.files == 1
    with pytest.raises(NotPossible, match="is not a directory"):
        gateway.usage("d/w")
    with pytest.raises(NotPossible, match="no such file"):
        gateway.usage("none")


def test_keys_are_read(gateway: Gateway) -> None:
    key = gateway.configuration().sections["nfs"]["export"]
    assert (key.value, key.variable) == ("/checkpoints", "SPILLWAY_NFS_EXPORT")


def test_the_history_has_a_row_for_a_step(gateway: Gateway) -> None:
    table = gateway.history(LAST - timedelta(hours=1), LAST, 600)
    assert table.step_seconds == 600 and table.columns[:3] == [
        *("time", "dirty_bytes", "written_bytes_per_second")
    ]
    assert [row[1:4] for row in table.rows] == [
        [minutes << 20, 3.5, None] for minutes in (29, 20, 10)
    ]
    assert [row[0] for row in table.rows] == [
        f"{LAST - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%S}.000000000Z"
        for minutes in (30, 20, 10)
    ]
    assert isinstance(table.rows[0][1], int)


def test_calls_are_listed(gateway: Gateway) -> None:
    second, first = gateway.audit(10, "admin", "/api/v1/pins")
    assert (first.method, first.status, first.who) == ("POST", 201, "admin")
    assert first.asked["note"] == "first" and second.after["note"] == "second"
    assert first.at_ns <= second.at_ns <= clock.now_ns()
    assert gateway.audit(1, "admin", "/api/v1/pins") == [second]
    assert gateway.audit(10, "nobody") == []
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert gateway.audit(10, since=soon) == []
    assert gateway.audit(10, path="/api/v1/pins", until=soon) == [second, first]


def test_only_the_machine_has_the_log_of_names(site: Afar) -> None:
    with either(site, "here") as gateway:
        assert gateway.names_log(10) == []
    with either(site, "afar") as gateway, pytest.raises(UserError, match="run it there"):
        gateway.names_log(10)


def test_only_the_admin_api_tells_events(site: Afar) -> None:
    with either(site, "here") as gateway, pytest.raises(UserError, match="by the admin API"):
        gateway.events()
    with either(site, "afar") as gateway, closing(gateway.events()) as events:
        first = next(events)
    assert (first.event, first.id) == ("status", None) and first.data["dirty_files"] == 2


def test_the_bucket_is_asked(gateway: Gateway) -> None:
    reachability = gateway.bucket.test(False)
    assert (
        not reachability.reachable
        and reachability.error is not None
        and "no credentials" in reachability.error
    )
    for adopts in (False, True):
        with pytest.raises((UserError, StoreError), match="no credentials"):
            gateway.bucket.set_up(False, adopts)


def test_the_bucket_is_adopted_on_its_machine(site: Afar) -> None:
    with either(site, "here") as gateway:
        assert not gateway.bucket.test(True).reachable
    with either(site, "afar") as gateway, pytest.raises(UserError, match="run it there"):
        gateway.bucket.test(True)
