"""A checkpoint is durable when the real drain has brought all of it to a real store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.tracker import Follower
from gateway.db.engine import Database
from tests.support.checkpoints.world import follow, rows_of
from tests.support.drain import Drain
from tests.support.drainsite import Site
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import MotoServer, RcloneServer
from tests.support.waiting import until


@pytest.fixture(params=[RcloneServer, MotoServer])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with request.param(tmp_path / "s3") as server, S3Proxy(server.port) as proxy:
        made = Site(tmp_path, server, "checkpoints", proxy)
        yield made
        made.close()


def test_a_save_becomes_durable_and_follows_renames(site: Site) -> None:
    database = Database(site.settings.database_url)
    follower = Follower(site.settings, database, threading.Event())
    follow(follower)

    def state(path: str) -> str | None:
        follow(follower)
        return next((r.state for r in rows_of(site.settings) if r.path == path.encode()), None)

    members = {f"job/step-5/__{rank}_0.distcp": b"%d" % rank * 1000 for rank in range(4)}
    for path, data in members.items():
        site.write(path, data)
    assert state("job/step-5") == CheckpointState.WRITING
    site.write("job/step-5/.metadata.tmp", b"all of them")
    assert state("job/step-5") == CheckpointState.WRITING
    site.rename("job/step-5/.metadata.tmp", "job/step-5/.metadata")
    assert state("job/step-5") == CheckpointState.COMPLETE
    members["job/step-5/.metadata"] = b"all of them"
    # What says that it is durable is believed only if the bucket alone has it.
    with site.draining():
        until(
            lambda: state("job/step-5") == CheckpointState.DURABLE, "the checkpoint to be durable"
        )
        assert site.objects() == members
    site.rename("job", "kept")
    assert state("kept/step-5") == CheckpointState.COMPLETE
    # The catalogue looks after each step of the drain, so it must be told of the last one too.
    drain = Drain(site.settings)
    while drain.cycle():
        state("kept/step-5")
    drain.close()
    assert state("kept/step-5") == CheckpointState.DURABLE
    assert set(site.objects()) >= {path.replace("job", "kept") for path in members}
    site.write("kept/step-5/__0_0.distcp", b"again" * 200)
    assert state("kept/step-5") == CheckpointState.DRAINING
    database.close()
