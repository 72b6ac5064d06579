"""Kills at each step of a restore, which is then begun again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gateway.common import failpoints
from gateway.common.errors import SpillwayError
from gateway.config import loader
from gateway.namespace import identity
from gateway.recovery.restore import NamespaceRestore
from tests.support.drainsite import Site
from tests.support.forking import context
from tests.support.postgres import PostgresServer
from tests.support.t12.names import copied
from tests.support.t12.restored import RestoredSite
from tests.support.volumes import query


def restore(config: Path, failpoint: str) -> None:
    """Restore in this process, which a failpoint kills."""
    failpoints.arm(failpoint)
    NamespaceRestore(loader.load(config), lambda _line: None).run(is_gone=True)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_kill_at_any_step_changes_nothing_of_the_end(
    moto_site: Site, engine: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    site = moto_site
    with copied(site) as copy:
        site.write("run/a", b"1")
        site.write("run/latest", b"1")
        site.drain()
        copy.all()
        for path, data in (("run/latest", b"2"), ("run/lost", b"333")):
            hold = "INSERT INTO queue_order (ino, hold, set_ns) VALUES (:ino, 1, 1)"
            query(site.settings, hold, ino=site.write(path, data))
        copy.step()
        site.write("run/new", b"4")
        site.drain()
    there = site.objects()
    url = postgres.create_database() if engine == "postgres" else ""
    gateway = RestoredSite(site, tmp_path / "new", url)
    while_loading = [f"restore.{number}" for number in (1, 3, 4, 5, 6)]
    # It begins where the names are loaded.
    afterwards = ["restore.1", "reconcile.4", "restore.2"]
    for place in [*while_loading, *afterwards]:
        process = context.Process(target=restore, args=(gateway.settings.source, place))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, place
        # No process of the gateway starts before the end.
        with pytest.raises(SpillwayError):
            identity.require_surroundings(gateway.settings)
    restored = gateway.restore()
    identity.require_surroundings(gateway.settings)
    assert [lost.path for lost in restored.lost] == ["run/lost"]
    assert restored.older == ["run/latest"]
    assert gateway.contents() == {"run/a": b"1", "run/latest": b"1", "run/new": b"4"}
    assert site.objects() == there
