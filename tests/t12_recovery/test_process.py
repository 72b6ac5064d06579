"""The process that copies the names: kills, outages, other owners, and what it costs when idle."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.clisite import spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.gateway import running
from tests.support.owner import OWNER
from tests.support.s3proxy import Act
from tests.support.t12.names import load, rows_of, sqlite_url
from tests.support.t12.process import (
    NAMES,
    SECONDS,
    is_document,
    is_log,
    names_store,
    report_of,
    series_of,
    until_based,
    until_copied,
)
from tests.support.volumes import query, status_of
from tests.support.waiting import until


@pytest.fixture
def site(rclone_site: Site) -> Site:
    """A gateway whose names are copied soon."""
    rclone_site.configure("recovery", names_seconds=0.1)
    return rclone_site


def assert_whole(site: Site, tmp_path: Path) -> None:
    """Require that the bucket has the names as the database has them."""
    url = sqlite_url(tmp_path / "loaded")
    assert load(names_store(site.settings), url).broken == {}
    assert rows_of(url) == rows_of(site.settings.database_url)


def test_a_gateway_has_its_names_in_the_bucket(tmp_path: Path) -> None:
    with running(tmp_path / "gateway", {"recovery": {"names_seconds": 0.2}}) as gateway:
        settings = gateway.settings

        def save(name: str) -> None:
            with nfs4.Client(settings.nfs.port) as client:
                root = client.handle(settings.nfs.export.strip("/"))
                with client.opened(root, name) as file:
                    file.write(b"x" * 1000)

        def is_in_the_bucket(name: str) -> bool:
            names = names_store(settings)
            logs = [segment.listed for series in names.series() for segment in series.log]
            lines = [line for listed in logs for line in names.opened(listed).lines()]
            return any(name in json.dumps(line) for line in lines if line[:2] == ["rows", "dirent"])

        until(lambda: gateway.status()["names"]["base_age_seconds"], "a base", SECONDS)
        save("one.pt")
        until(lambda: is_in_the_bucket("one.pt"), "the name in the bucket", SECONDS)
        found = gateway.status()
        assert found["processes"]["recovery"]["phase"] == "ready"
        assert (found["names"]["error"], found["names"]["is_late"]) == ("", False)
        said = spillway("status", "--config", gateway.config).stdout
        assert "in the bucket as of " in said
        [before] = series_of(settings)
        pid = gateway.pid("recovery")
        gateway.kill("recovery")
        save("two.pt")
        until(lambda: is_in_the_bucket("two.pt"), "the name from the next process", SECONDS)
        assert gateway.pid("recovery") != pid
        # It continues the series, and makes no other base.
        [after] = series_of(settings)
        assert (after.name, after.documents) == (before.name, before.documents)
        # No test of the rest, which compare what clients wrote, sees what the gateway keeps.
        gateway.until_drained()
        assert gateway.objects().keys() == {"one.pt", "two.pt"}


def test_a_kill_between_two_segments_continues_the_series(site: Site, tmp_path: Path) -> None:
    with site.process("recovery") as first:
        until_based(site.settings)
        site.write("a", b"1")
        until_copied(site)
        site.kill(first)
    [before] = series_of(site.settings)
    site.write("b", b"2")
    site.unlink("a")
    with site.process("recovery"):
        until_copied(site)
        [after] = series_of(site.settings)
        assert (after.name, after.documents) == (before.name, before.documents)
        assert len(after.log) > len(before.log)
    assert_whole(site, tmp_path)


def test_a_segment_whose_answer_was_lost_costs_no_base(site: Site, tmp_path: Path) -> None:
    with site.process("recovery") as first:
        until_based(site.settings)
        until_copied(site)
        lose_answer(site, first, "a")
    [before] = series_of(site.settings)
    with site.process("recovery"):
        until_copied(site)
    [after] = series_of(site.settings)
    assert (after.name, after.documents) == (before.name, before.documents)
    assert_whole(site, tmp_path)


def lose_answer(site: Site, process: subprocess.Popen[bytes], name: str) -> None:
    """Write a file, and kill the process while it waits for the answer to the segment."""
    fault = site.proxy.inject(is_log, Act.HOLD_ANSWER)
    site.write(name, b"1")
    fault.wait()
    site.kill(process)
    fault.release()


def test_a_base_that_was_cut_off_is_made_again(site: Site, tmp_path: Path) -> None:
    site.write("a", b"1")
    fault = site.proxy.inject(is_document, Act.HOLD)
    with site.process("recovery") as first:
        fault.wait()
        site.kill(first)
    fault.discard()
    [cut] = series_of(site.settings)
    assert cut.parts and not cut.documents
    with site.process("recovery"):
        until_based(site.settings)
        until_copied(site)
    [series] = series_of(site.settings)
    assert (series.name, len(series.documents)) == (cut.name, 1)
    assert_whole(site, tmp_path)


def test_an_outage_of_the_bucket_is_told_and_loses_nothing(site: Site, tmp_path: Path) -> None:
    with site.process("recovery"):
        until_based(site.settings)
        fault = site.proxy.inject(
            lambda request: request.key.startswith(NAMES), Act.FAIL, float("inf")
        )
        site.write("a", b"1")
        told = until(lambda: status_of(site.settings)["names"]["error"], "the error", SECONDS)
        assert "SlowDown" in told
        before = len(series_of_log(site))
        site.write("b", b"1")
        fault.release()
        until_copied(site)
        until(lambda: not status_of(site.settings)["names"]["error"], "its end", SECONDS)
        assert len(series_of_log(site)) > before
    assert_whole(site, tmp_path)


def series_of_log(site: Site) -> list[str]:
    """Return the keys of the log."""
    return [one.listed.key for series in series_of(site.settings) for one in series.log]


def test_nothing_is_written_if_a_person_wants_no_names_in_the_bucket(site: Site) -> None:
    site.configure("recovery", names_in_bucket=False)
    with site.process("recovery") as process:
        until(lambda: report_of(site.settings), "the report", SECONDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert site.objects() == {}
    assert site.proxy.operations() == []
    assert site.rows("SELECT name FROM reader WHERE name = 'names'") == []
    assert status_of(site.settings)["names"]["enabled"] is False


def test_another_owner_of_the_bucket_stops_it(site: Site) -> None:
    with site.process("recovery"):
        until_based(site.settings)
        until_copied(site)
        key = f"{PREFIX}/{OWNER}"
        owner = json.loads(site.client.get_object(Bucket=site.bucket, Key=key)["Body"].read())
        owner |= {"namespace": "0" * 32, "token": "of another gateway", "epoch": 99}
        site.client.put_object(Bucket=site.bucket, Key=key, Body=json.dumps(owner).encode())
        # A look permits to write for two seconds on this store.
        numbers = iter(range(10_000))

        def is_told() -> bool:
            site.write(f"f{next(numbers)}", b"1")
            return bool(report_of(site.settings)["error"])

        until(is_told, "the refusal", SECONDS)
        before = series_of_log(site)
        site.proxy.forget()
        site.write("last", b"1")
        until(lambda: site.proxy.owner_requests, "the next look", SECONDS)
        assert [request for request in site.proxy.operations() if is_log(request)] == []
        assert series_of_log(site) == before
        assert "belongs to another gateway" in report_of(site.settings)["error"]


def test_an_idle_process_writes_nothing(site: Site) -> None:
    with site.process("recovery"):
        until_based(site.settings)
        site.write("a", b"1")
        until_copied(site)
        site.proxy.forget()
        database = site.settings.data_dir / "namespace.db"
        files = [database, database.with_name("namespace.db-wal")]

        def state() -> list[tuple[int, int]]:
            return [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]

        before = state()
        seen: set[int] = set()

        def has_looked() -> bool:
            seen.add(report_of(site.settings)["copied_ns"])
            return len(seen) > 3

        # The report is written once a second; the process looks ten times in it.
        until(has_looked, "looks at the journal", SECONDS)
        assert state() == before
        assert site.proxy.operations("PUT") == []


def test_a_second_process_ends(site: Site) -> None:
    lock = site.settings.run_dir / "recovery.lock"
    with site.process("recovery") as first:
        until(lambda: lock.exists() and lock.read_text() == f"{first.pid}\n", "the lock", SECONDS)
        with site.process("recovery") as second:
            assert second.wait(SECONDS) == 1
        assert str(first.pid) in site.output.read_text()
        first.send_signal(signal.SIGTERM)
        assert first.wait(SECONDS) == 0


def test_a_start_removes_the_reader_of_a_killed_drill(site: Site) -> None:
    query(site.settings, "INSERT INTO reader (name, position) VALUES ('drill', 0)")
    with site.process("recovery"):
        until_based(site.settings)
        until(
            lambda: not site.rows("SELECT name FROM reader WHERE name = 'drill'"),
            "the end of the reader",
            SECONDS,
        )
