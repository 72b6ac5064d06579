"""The drill says whether the bucket brings everything back, beside a gateway that works."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.cli.main import main
from gateway.common import clock, failpoints
from gateway.common.errors import UserError
from gateway.config import settings as configuration
from gateway.db.engine import Database
from gateway.objectstore.s3 import S3Store
from gateway.recovery import drill, drill_comparison, drill_record, tables
from gateway.recovery.drill import DrillTimer
from tests.support.clisite import spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.t8.evicting import tmpfs
from tests.support.t12.drill import Drilled, Line, drilled

context = multiprocessing.get_context("fork")


def fill(site: Site, count: int = 12) -> None:
    """Save some files, which the bucket has."""
    for number in range(count):
        site.write(f"run/step-{number % 3}/f{number}", b"%d" % number)
    site.link("run/step-0/f0", "linked")
    site.drain()


def texts(drills: Drilled) -> list[str]:
    """Make a drill. Returns what it found, for people."""
    report = drills.run()
    assert drills.left() == []
    return [f"{one.path}: {one.what}" for one in report.first] + report.problems


def test_each_table_is_compared_or_there_is_a_reason() -> None:
    assert drill_comparison.NOT_COMPARED.keys() <= {table.name for table in tables.BY_INODE}


def test_a_drill_beside_changes_passes(each_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are made, renamed, replaced and removed before the copy has them, while it is loaded
    and between any two pages."""
    monkeypatch.setattr(drill_comparison, "PAGE_INOS", 2)
    monkeypatch.setattr(drill_comparison, "SAVE_ROWS", 1)
    site = each_site
    fill(site)
    numbers = iter(range(1000))
    with drilled(site) as drills:
        positions = set()

        def change(_line: str = "") -> None:
            number = next(numbers)
            positions.update(site.rows("SELECT position FROM reader WHERE name = 'drill'"))
            site.write(f"new/n{number}", b"%d" % number)
            site.rename(f"new/n{number}", f"new/m{number}")
            if number % 3 == 0:
                site.rename(f"new/m{number}", f"run/step-0/f{number % 12}")
            elif number % 5 == 1:
                site.unlink(f"new/m{number}")
            if number % 7 == 3:
                site.write(f"run/step-{number % 3}/f{number % 12}", b"again")

        change()
        report = drills.run(say=change)
        assert report.is_ok, report
        assert report.changed > 5
        assert report.files > 8
        assert report.objects >= 12
        assert report.as_of_ns and report.restore_seconds
        # The journal is not kept for it.
        assert len(positions) > 3
        assert drills.left() == []
        # Nothing is left out when nothing changes.
        drills.copy.step()
        site.proxy.forget()
        quiet = drills.run()
        assert (quiet.is_ok, quiet.changed) == (True, 0)
        assert quiet.files == len(site.rows("SELECT ino FROM inode"))
        # The bucket is only read, and its owner is not asked for.
        assert {one.method for one in site.proxy.requests} == {"GET", "HEAD"}
        assert site.proxy.owner_requests == []


def test_a_file_that_the_copy_lacks_is_found(rclone_site: Site) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills:
        ino = site.write("run/lost", b"1")
        site.write("run/other", b"1")
        drills.copy.step()

        def without(line: Line) -> Line:
            if line[0] != "rows" or (column := tables.COPIED[line[1]].form.ino) is None:
                return line
            at = tables.COPIED[line[1]].form.columns.index(column)
            return [*line[:2], [row for row in line[2] if row[at] != ino]]

        drills.edit_log(without)
        assert texts(drills) == ["run/lost: the copy lacks it"]
        report = drills.run()
        assert (report.is_ok, report.differing) == (False, 1)
        # What was found is kept.
        record = drill_record.read(site.settings)
        assert record is not None and record.last == report


def test_a_row_that_differs_is_found(rclone_site: Site) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills:
        site.write("run/odd", b"1")
        drills.copy.step()
        columns = tables.INODE.form.columns

        def larger(line: Line) -> Line:
            if line[:2] != ["rows", "inode"]:
                return line
            at = columns.index("size")
            changed = [[*row[:at], row[at] + (row[at] == 1), *row[at + 1 :]] for row in line[2]]
            return [*line[:2], changed]

        drills.edit_log(larger)
        assert texts(drills) == ["run/odd: inode: size"]


def test_segments_that_are_gone_or_bad_are_found(rclone_site: Site) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills:
        for name in ("a", "b", "c"):
            site.write(name, b"1")
            drills.copy.step()
        keys = drills.log_keys()
        client = site.client
        body = client.get_object(Bucket=site.bucket, Key=keys[-1])["Body"].read()
        client.put_object(Bucket=site.bucket, Key=keys[-1], Body=body[: len(body) // 2])
        [bad] = texts(drills)
        assert bad.startswith("a restore would fail: ") and keys[-1] in bad
        drills.delete(keys[-1])
        found = texts(drills)
        assert any("segments are gone" in text for text in found)
        assert "c: the copy lacks it" in found
        client.put_object(Bucket=site.bucket, Key=keys[-1], Body=body)
        drills.delete(keys[-2])
        found = texts(drills)
        assert any("the log lacks what comes between" in text for text in found)
        [document] = [one for series in drills.copy.names.series() for one in series.documents]
        drills.delete(document.key)
        assert any("no copy of the names" in text for text in texts(drills))


def test_objects_that_are_gone_or_others_are_found(rclone_site: Site) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills:
        drills.delete(f"{PREFIX}/run/step-1/f1")
        site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/run/step-2/f2", Body=b"other")
        assert sorted(texts(drills)) == [
            "run/step-1/f1: its object is not in the bucket",
            "run/step-2/f2: its object has another size or ETag",
        ]
        # One that changed meanwhile is right.
        site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/run/step-2/f2", Body=b"2")
        site.unlink("run/step-1/f1")
        assert texts(drills) == []


def test_an_object_that_is_replaced_meanwhile_is_no_difference(rclone_site: Site) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills:

        def after_the_pages(line: str) -> None:
            if "compared" in line:
                site.write("run/step-1/f1", b"another")
                site.drain()

        report = drills.run(say=after_the_pages)
        assert report.is_ok, report
        assert report.changed == 1


def test_lists_that_differ_are_found_and_late_ones_are_waited_for(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    fill(site)
    pin = "INSERT INTO pin (ino, note, pinned_by, pinned_ns) VALUES ({}, '', 'me', 1)"
    database = Database(site.settings.database_url)
    inos = [ino for (ino,) in site.rows("SELECT ino FROM inode WHERE kind = 1 ORDER BY ino")]

    def run(text: str) -> None:
        with database.reader() as connection, database.transaction(connection):
            connection.execute(text)

    with drilled(site) as drills:
        run(pin.format(inos[0]))
        assert texts(drills) == []
        monkeypatch.setattr(drill, "SETTLE_SECONDS", -1000.0)
        run(pin.format(inos[1]))
        assert texts(drills) == ["1 rows of pin differ"]
        drills.copy.step()
        changes = iter([pin.format(inos[2]), "DELETE FROM pin"])
        report = drills.run(say=lambda _line: run(next(changes, "SELECT 1")))
        assert (report.is_ok, report.changed) == (True, 2), report
    database.close()


def test_names_that_are_late_are_found(rclone_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills:
        site.write("a", b"1")
        monkeypatch.setattr(configuration, "LATE_SECONDS", 0.0)
        monkeypatch.setattr(configuration, "LATE_INTERVALS", 0.0)
        report = drills.run(waits=lambda: None)
        [late] = report.problems
        assert "late: " in late and "changes that were there" in late
        assert (report.is_ok, report.files) == (False, 0)
        assert drills.left() == []


def test_a_gateway_without_a_base_is_told_to_wait(rclone_site: Site) -> None:
    site = rclone_site
    with pytest.raises(UserError, match="not copied yet"), drilled(site) as drills:
        drills.copy.copy.leave()
        drills.run()
    site.configure("recovery", names_in_bucket=False)
    with drilled(site) as drills, pytest.raises(UserError, match="names_in_bucket"):
        drills.run()


def test_only_one_runs(rclone_site: Site) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills:
        refused = []

        def another(_line: str) -> None:
            with pytest.raises(UserError, match=rf"process {os.getpid()}\): wait") as raised:
                drills.run()
            refused.append(raised)
            # Nor does a start take its reader away.
            database = Database(site.settings.database_url)
            drill.tidy(site.settings, database)
            database.close()

        assert drills.run(say=another).is_ok
        assert refused
        assert drills.left() == []


def test_a_disk_without_room_is_told(rclone_site: Site, tmp_path: Path) -> None:
    site = rclone_site
    fill(site)
    with drilled(site) as drills, tmpfs(tmp_path / "small"):
        with pytest.raises(UserError, match=r"free space.*--dir DIR"):
            drills.run(directory=tmp_path / "small")
        assert list((tmp_path / "small").iterdir()) == []
        assert drills.left() == []


def test_a_disk_that_gets_full_is_told(
    rclone_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    fill(site)
    monkeypatch.setattr(drill.Drill, "_require_room", lambda *_args: None)
    site.write("a", b"1")
    small = tmp_path / "small"
    with drilled(site) as drills, tmpfs(small), (small / "ballast").open("wb") as ballast:
        site.write("b", b"1")

        def waits() -> None:
            drills.copy.step()
            with pytest.raises(OSError, match="No space"):
                while True:
                    os.write(ballast.fileno(), b"x" * 4096)

        for when in ({"waits": waits}, {"say": lambda _line: waits()}):
            with pytest.raises(UserError, match=r"scratch database.*--dir DIR"):
                drills.run(directory=small, **when)
            ballast.truncate(0)
        assert [path.name for path in small.iterdir()] == ["ballast"]
        assert drills.left() == []


@pytest.mark.parametrize("step", ["begun", "loaded", "compared"])
def test_a_killed_drill_leaves_nothing_for_long(rclone_site: Site, step: str) -> None:
    """Neither after the next drill, nor after the next start."""
    site = rclone_site
    fill(site)
    with drilled(site) as drills:
        for _ in range(2):
            process = context.Process(target=killed, args=(drills, f"drill.{step}"))
            process.start()
            process.join(60)
            assert process.exitcode == -signal.SIGKILL
            assert len(drills.left()) == 3
            if drill_record.read(site.settings) is None:
                assert drills.run().is_ok
            else:
                timer_of(site).begin()
            assert drills.left() == []


def killed(drills: Drilled, name: str) -> None:
    """Make a drill in a process that dies at a failpoint."""
    failpoints.arm(name)
    drills.run()


def test_the_command_prints_what_it_found(rclone_site: Site) -> None:
    site = rclone_site
    fill(site)
    words = ("restore", "--drill", "--config", str(site.settings.source))
    with drilled(site) as drills:
        done = spillway(*words)
        assert done.returncode == 0, done.stderr
        assert "the bucket brings everything back" in done.stdout
        drills.delete(f"{PREFIX}/run/step-1/f1")
        found = spillway(*words, "--json")
        facts = json.loads(found.stdout)
        assert (found.returncode, facts["is_ok"], facts["differing"]) == (1, False, 1)
        assert facts["first"][0]["path"] == "run/step-1/f1"


def timer_of(site: Site) -> DrillTimer:
    """Return the timer of a gateway's drills."""
    settings = site.settings
    database = Database(settings.database_url)
    return DrillTimer(settings, database, S3Store(settings), threading.Event())


def test_a_timer_makes_drills_whatever_the_clock_does(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    fill(site)
    ahead = [0]
    # The store would refuse requests of another time.
    ours = SimpleNamespace(**vars(clock) | {"now_ns": lambda: clock.now_ns() + ahead[0]})
    for module in (drill, drill_record):
        monkeypatch.setattr(module, "clock", ours)
    day_ns = drill_record.DAY_NS

    def last() -> drill_record.DrillReport:
        record = drill_record.read(site.settings)
        assert record is not None and record.last is not None
        return record.last

    def is_late() -> bool:
        return drill_record.is_late(7.0, drill_record.read(site.settings))

    with drilled(site):
        timer_of(site).step()
        first = last()
        assert first.is_ok and not is_late()
        # A restart does not begin again, and a missed time is made up.
        ahead[0] = 6 * day_ns
        timer_of(site).step()
        assert last() == first
        ahead[0] = 8 * day_ns
        timer_of(site).step()
        second = last()
        assert second.began_ns > first.began_ns
        ahead[0] += 15 * day_ns
        assert is_late()
        # A clock that is set back makes it neither young nor repeats it.
        ahead[0] = 0
        assert is_late()
        timer = timer_of(site)
        timer.step()
        third = last()
        assert third.began_ns < second.began_ns and not is_late()
        timer.step()
        assert last() == third


def test_a_drill_that_cannot_be_made_gets_late(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    timer = timer_of(site)
    assert timer.step() == drill.RETRY_SECONDS
    record = drill_record.read(site.settings)
    assert record is not None and "not copied yet" in record.error and record.last is None
    assert not drill_record.is_late(7.0, record)
    now_ns = clock.now_ns()
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns + 15 * drill_record.DAY_NS)
    timer.step()
    assert drill_record.is_late(7.0, drill_record.read(site.settings))
    assert not drill_record.is_late(0.0, record)


def test_options_of_a_restore_are_refused_with_a_drill(
    rclone_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(rclone_site.settings.source)
    for words, option in (
        (("--drill", "--at", "90m"), "--at"),
        (("--drill", "--bucket", "b"), "--bucket"),
        (("--dir", "/tmp"), "--dir"),
    ):
        assert main(["restore", *words, "--config", config]) == 2
        assert option in capsys.readouterr().err, words
