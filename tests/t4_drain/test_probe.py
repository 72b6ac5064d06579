"""A probe keeps its connection, and is not misled by one that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.service.bucket import Probe, Reachability
from tests.support.drainsite import Site
from tests.support.s3proxy import Act, S3Proxy
from tests.support.s3server import RcloneServer
from tests.support.waiting import until


def test_a_kept_connection_that_is_gone_is_no_alarm(tmp_path: Path) -> None:
    with RcloneServer(tmp_path / "s3") as server, S3Proxy(server.port) as proxy:
        site = Site(tmp_path, server, "checkpoints", proxy)
        probe = Probe(site.settings)
        well = Reachability(reachable=True, error=None)
        assert probe.ask() == well
        kept = probe._store
        assert probe.ask() == well
        assert probe._store is kept
        proxy.inject(lambda _request: True, Act.DROP, 1)
        assert probe.ask() == well
        assert probe._store is not kept
        refused = proxy.inject(lambda _request: True, Act.FAIL, float("inf"))
        reachability = probe.ask()
        assert not reachability.reachable
        assert reachability.error is not None and "SlowDown" in reachability.error
        refused.release()
        assert probe.ask() == well
        site.close()


def test_a_bucket_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.service.bucket.PROBE_SECONDS", 0.5)
    with RcloneServer(tmp_path / "s3") as server, S3Proxy(server.port) as proxy:
        site = Site(tmp_path, server, "checkpoints", proxy)
        held = proxy.inject(lambda _request: True, Act.HOLD, float("inf"))
        reachability = Probe(site.settings).ask()
        assert not reachability.reachable
        until(lambda: len(held.held) == 1, "the request")
        held.discard()
        site.close()
