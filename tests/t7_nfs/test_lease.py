"""Tests what becomes of a client that is gone."""

from __future__ import annotations

from pathlib import Path

from tests.support import nfs4
from tests.support.gateway import running
from tests.support.waiting import until

LEASE_SECONDS = 5


def test_a_file_that_was_open_when_its_client_died_reaches_the_bucket(tmp_path: Path) -> None:
    values = {"nfs": {"lease_seconds": LEASE_SECONDS, "grace_seconds": LEASE_SECONDS}}
    with running(tmp_path, values) as gateway:
        with nfs4.Client(gateway.port) as client:
            client.open(client.handle("checkpoints"), "shard").write(b"bytes")
            assert gateway.status()["dirty"]["files"] == 1
        until(
            lambda: gateway.objects() == {"shard": b"bytes"},
            "the file is sealed at the end of the lease, and drained",
            12 * LEASE_SECONDS,
        )
