"""Names that hold patterns keep from the bucket: for good reason, by chance, and for too long."""

from __future__ import annotations

import threading

import pytest

from gateway.catalogue.tracker import Follower
from gateway.cli import status as cli
from gateway.db.engine import Database
from gateway.drain import queue
from gateway.drain.plan import survey
from gateway.service import alarms, status
from gateway.service.alarms import alarms_of
from gateway.service.queue import opened
from tests.support.drainsite import Site
from tests.support.waiting import until


def follow(site: Site) -> None:
    database = Database(site.settings.database_url)
    follower = Follower(site.settings, database, threading.Event())
    while not follower.step():
        pass
    database.close()


def files_held(site: Site) -> int | None:
    """Return how many files the drain reports, or None without a report."""
    found: dict[str, int] = site.report().get("held", {})
    return found.get("files")


def test_the_default_directory_of_a_run_is_drained(rclone_site: Site) -> None:
    site = rclone_site
    for run in ("tmp_trainer", "tmp-exp7", "x.tmp.d"):
        site.write(f"{run}/config.json", b"x")
    site.drain()
    assert set(site.objects()) == {
        f"{r}/config.json" for r in ("tmp_trainer", "tmp-exp7", "x.tmp.d")
    }


@pytest.mark.parametrize("run", ["tmp_run", "a/tmp_run/b"])
def test_a_pattern_does_not_hold_a_run_with_checkpoints(rclone_site: Site, run: str) -> None:
    """A drain that runs sees it without a reading of everything for another reason."""
    site = rclone_site
    site.configure(incomplete_patterns=["tmp_*"])
    site.write(f"{run}/log", b"x")
    with site.draining():
        site.write("other", b"x")
        until(lambda: set(site.objects()) == {"other"}, "what is not held")
        site.write(f"{run}/step-10/__0_0.distcp", b"x")
        follow(site)
        whole = {"other", f"{run}/log", f"{run}/step-10/__0_0.distcp"}
        until(lambda: set(site.objects()) == whole, "the run is drained")


@pytest.mark.parametrize("name", ["tmp_checkpoint-5", "tmp_5"])
def test_half_a_save_is_held_whatever_is_in_it(rclone_site: Site, name: str) -> None:
    """DeepSpeed saves global_step<N> into the checkpoint of a Trainer."""
    site = rclone_site
    site.configure(incomplete_patterns=["tmp_*"])
    site.write(f"out/{name}/global_step5/a", b"x")
    follow(site)
    assert site.rows("SELECT 1 FROM checkpoint") == [(1,)]
    site.drain()
    assert site.objects() == {}
    site.rename(f"out/{name}", "out/checkpoint-5")
    site.drain()
    assert set(site.objects()) == {"out/checkpoint-5/global_step5/a"}


def test_a_name_that_is_held_for_long_is_an_alarm(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    site.write("run/model.pt.tmp", b"three")
    site.write("run/empty.tmp", b"")
    ordered = site.write("run/a.pt", b"held by a person")
    with opened(site.settings) as context:
        queue.say(context, ordered, hold=True)

    with site.draining():
        site.write("other", b"x")
        until(lambda: "other" in site.objects(), "everything was read")
        assert status.gather(site.settings).held.files == 0
        monkeypatch.setattr(survey, "HELD_SECONDS", 0.0)
        until(lambda: files_held(site) == 1, "a report of it")
        facts = status.gather(site.settings)
        [first] = facts.held.first
        assert (first.path, first.size_bytes) == ("/checkpoints/run/model.pt.tmp", 5)
        assert alarms.of(facts)[alarms.NAMES_HELD] == 1
        lines = dict(cli.lines(facts))
        assert lines["held"].startswith(
            "1 file, 5 B HELD by drain.incomplete_patterns for over an hour, as"
        )
        assert "model.pt.tmp" in lines["held"]
        assert [alarm.kind for alarm in alarms_of(facts) if "held by a pattern" in alarm.text] == [
            "bad"
        ]
        site.unlink("run/model.pt.tmp")
        until(lambda: files_held(site) == 0, "the alarm ends")
