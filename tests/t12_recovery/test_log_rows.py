"""The log of the names has every row that any process changed, so no base is needed to find one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.db.models import ROOT_INO
from gateway.recovery import tables
from tests.support.drainsite import Site
from tests.support.s3proxy import Act, S3Proxy
from tests.support.s3server import MotoServer
from tests.support.t9.promoting import Promoting, save
from tests.support.t9.rotating import NEXT, PATH, Job
from tests.support.t12.forked import Nursery
from tests.support.t12.names import copied, load, rows_of, sqlite_url
from tests.support.t12.process import names_store, series_of
from tests.support.t12.rounds import LosingGateway, Plan, configure
from tests.support.trash import discard, take_back


def assert_logged(site: Site, tmp_path: Path, change: Callable[[], None]) -> None:
    """Require that the log has what a change changes."""
    with copied(site) as copy:
        copy.all()
        change()
        copy.step()
    assert_whole(site, tmp_path)


def assert_whole(site: Site, tmp_path: Path) -> None:
    """Require that the copy has all rows."""
    url = sqlite_url(tmp_path / "loaded")
    loaded = load(names_store(site.settings), url)
    assert differences(rows_of(url), rows_of(site.settings.database_url)) == []
    assert loaded.broken == {}


def differences(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> list[str]:
    """Return how rows differ, with the columns that do."""
    lines = []
    for name, table in tables.COPIED.items():
        rows = {table.key(row): row for row in found.get(name, [])}
        for row in expected.get(name, []):
            other = rows.pop(key := table.key(row), None)
            if other is None:
                lines.append(f"{name} {key} is missing")
                continue
            named = zip(table.form.columns, other, row, strict=True)
            lines += [f"{name} {key}: {column} is {a}, not {b}" for column, a, b in named if a != b]
        lines += [f"{name} {key} is gone" for key in rows]
    return lines


def test_what_clients_remove_of_a_checkpoint(rclone_site: Site, tmp_path: Path) -> None:
    job = Job(rclone_site)
    job.save(PATH, 1)
    job.save(NEXT)
    assert_logged(rclone_site, tmp_path, job.remove)
    assert job.held() == [PATH]
    job.end()


def test_the_way_into_the_trash_and_back(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("run/a", b"1")
    site.write("run/deep/b", b"1")
    site.drain()
    settings, namespace = site.settings, site.namespace

    def back() -> None:
        take_back(settings, namespace, b"t1", ROOT_INO, b"run")

    discarded = tmp_path / "discarded"
    assert_logged(site, discarded, lambda: discard(settings, namespace, ROOT_INO, b"run", b"t1"))
    assert_logged(site, tmp_path / "back", back)


def ask(site: Promoting) -> None:
    site.ask("job/step-5", "best")


def test_a_promotion_and_its_end(moto: MotoServer, tmp_path: Path) -> None:
    with S3Proxy(moto.port) as proxy:
        site = Promoting(tmp_path, moto, "promoted-rows", proxy)
        save(site)

        assert_logged(site, tmp_path / "asked", lambda: ask(site))
        assert_logged(site, tmp_path / "made", site.settle)
        site.demote("best")
        assert_logged(site, tmp_path / "removed", site.settle)
        site.close()


def test_a_move_that_is_under_way(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("run/a", b"1")
    site.drain()
    fault = site.proxy.inject(lambda request: request.operation == "COPY", Act.DROP, float("inf"))

    def move() -> None:
        with suppress(AssertionError):
            site.drain()

    site.rename("run/a", "run/b")
    assert_logged(site, tmp_path, move)
    assert site.rows("SELECT key FROM tombstone")
    fault.release()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(tmp_path / "nursery.log") as made:
        yield made


def test_whatever_processes_that_are_killed_change(
    each_site: Site, nursery: Nursery, tmp_path: Path
) -> None:
    site = each_site
    configure(site)
    plan = Plan(1, "sqlite", "sqlite", False, False, False)
    LosingGateway(site, nursery, plan, tmp_path / "job.log").run()
    before = series_of(site.settings)
    with copied(site) as copy:
        copy.all()
    after = series_of(site.settings)
    # All that changed since the first base is in the log.
    bases = [series.documents for series in after]
    assert bases == [series.documents for series in before] and len(bases) == 1
    assert_whole(site, tmp_path)
