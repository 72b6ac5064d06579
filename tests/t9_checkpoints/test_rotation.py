"""What clients remove of a checkpoint stays in the bucket until a newer one is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.common import clock
from gateway.common.errors import NotFound, TrashRefused
from gateway.common.types import ROOT_CRED
from gateway.lifecycle.trash import expiry
from tests.support.drainsite import PREFIX
from tests.support.t9 import restore
from tests.support.t9.rotating import FILES, HOUR_NS, MANIFEST, NEXT, PATH, RUN, Job
from tests.support.volumes import query


def test_a_job_that_rotates_leaves_a_whole_checkpoint_in_the_bucket(job: Job) -> None:
    job.save(PATH, 1)
    assert job.bucket() == {*FILES, MANIFEST}
    # The new one is on the gateway, and the old one goes.
    job.save(NEXT)
    job.remove()
    with pytest.raises(NotFound):
        job.site.namespace.lookup(job.site.directory(RUN), b"step-1")
    for name in (".metadata", "deep/b.distcp"):
        assert f"{NEXT}/{name}" not in job.bucket()
    assert job.held() == [PATH]
    # Passes, and even the new one's first files, change nothing.
    job.hold(f"{NEXT}/.metadata")
    job.run_once()
    assert {*FILES, MANIFEST} <= job.bucket() and f"{NEXT}/a.distcp" in job.bucket()
    [manifest] = restore.manifests(job.site.client, job.site.bucket, PREFIX).values()
    restore.restore(job.site.client, job.site.bucket, manifest, job.site.settings.data_dir / "copy")
    # The new one is in the bucket.
    query(job.site.settings, "DELETE FROM queue_order")
    job.bring(NEXT, 2)
    assert {*FILES, MANIFEST} <= job.bucket()
    job.run_once()
    assert job.held() == []
    assert not {*FILES, MANIFEST} & job.bucket()
    assert MANIFEST.replace("1", "2") in job.bucket()
    [(what, author, reason, result)] = query(
        job.site.settings, "SELECT what, author, reason, result FROM action"
    )
    assert (what, author, reason) == ("remove", "a client (uid 0)", "a newer one is durable")
    assert result == "removed for good"


def test_the_guard_and_the_order_of_completion_both_decide(job: Job) -> None:
    """A newer step that was complete before, one whose grade is weak, and one that the guard of
    retention does not accept let nothing go."""
    job.save(PATH, 5)
    job.remove()
    job.save(NEXT, 4)
    job.run_once()
    assert job.held() == [PATH] and job.asked == []
    job.bring(NEXT, 6, grade="marked")
    job.run_once()
    assert job.held() == [PATH] and job.asked == []
    job.bring(NEXT, 6)
    job.refused = "no newer checkpoint of its run is durable"
    job.run_once()
    assert job.held() == [PATH] and job.bucket() >= FILES
    assert [(row.path, row.run) for row in job.asked] == [(PATH.encode(), RUN.encode())]
    # It is not said that its grace is over.
    assert query(job.site.settings, "SELECT stays FROM trash") == [(None,)]
    job.refused = None
    job.task._ask_again_at.clear()
    job.run_once()
    assert job.held() == []


def test_what_names_it_in_the_bucket_goes_first(job: Job) -> None:
    job.save(PATH, 1)
    job.site.write(f"{RUN}/latest", b"step-1")
    job.site.write(f"{RUN}/log.txt", b"1")
    job.site.drain()
    job.remove()
    job.save(NEXT, 2)
    # The trainer has written the new name, and the bucket still has the old one. A log that is
    # always open holds nothing.
    job.site.namespace.open_write(job.site.attr(f"{RUN}/log.txt").ino)
    ino = job.site.write(f"{RUN}/latest", b"step-2")
    job.look()
    job.task.run_once()
    assert job.held() == [PATH]
    assert job.site.objects()[f"{RUN}/latest"] == b"step-1"
    job.site.drain()
    assert job.site.attr(f"{RUN}/latest").ino == ino
    job.run_once()
    assert job.held() == []
    job.site.seal(job.site.attr(f"{RUN}/log.txt").ino, b"1")


def test_hours_end_it_by_no_clock(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.save(PATH, 1)
    job.remove()
    job.refused = "asked, although nobody need ask"
    honest_clock, honest_uptime = clock.now_ns, clock.uptime_ns
    monkeypatch.setattr(clock, "now_ns", lambda: honest_clock() + 400 * 24 * HOUR_NS)
    job.task.run_once()
    assert job.held() == [PATH]
    monkeypatch.setattr(clock, "now_ns", honest_clock)
    monkeypatch.setattr(clock, "uptime_ns", lambda: honest_uptime() + 71 * HOUR_NS)
    job.task.run_once()
    assert job.held() == [PATH]
    # The settings of today say for how many hours.
    retention = job.site.settings.retention
    assert retention.rotation_hours == 72.0
    monkeypatch.setattr(clock, "uptime_ns", lambda: honest_uptime() + 72 * HOUR_NS)
    job.run_once()
    assert job.held() == [] and not {*FILES, MANIFEST} & job.bucket()
    assert query(job.site.settings, "SELECT reason FROM action") == [("its hours are over",)]


def test_a_person_may_release_it(job: Job) -> None:
    job.save(PATH, 1)
    job.remove()
    [entry] = job.trash.entries()
    job.trash.release(entry, by="me")
    with pytest.raises(TrashRefused, match="is not held"):
        job.trash.release(entry, by="me")
    job.refused = "asked, although nobody need ask"
    job.run_once()
    assert job.held() == [] and not {*FILES, MANIFEST} & job.bucket()
    log = query(job.site.settings, "SELECT what, author, reason FROM action ORDER BY id")
    assert log[0] == ("release", "me", "a person released it")
    assert log[1][2] == "me released it"


def test_it_goes_with_its_run(job: Job) -> None:
    job.save(PATH, 1)
    job.save("other/step-1", 2)
    job.remove()
    # Another name of the run's directory is not its removal.
    job.site.rename(RUN, "renamed")
    job.run_once()
    assert job.held() == [PATH] and job.bucket() >= FILES
    job.remove("other/step-1")
    job.site.namespace.remove(ROOT_CRED, *job.site.split("renamed"))
    job.refused = "asked, although nobody need ask"
    job.run_once()
    assert job.held() == ["other/step-1"] and not FILES & job.bucket()


def test_a_new_save_at_the_same_path_keeps_the_old_objects(job: Job) -> None:
    """They give way to those of the new files, and the manifest, which would lie, goes."""
    job.save(PATH, 1)
    job.remove()
    job.save(PATH, text="new")
    [entry] = job.trash.entries()
    job.hold(f"{PATH}/.metadata")
    job.site.drain()
    job.look()
    assert MANIFEST not in job.bucket()
    objects = job.site.objects()
    moved = f".spillway/trash/{entry.id}/a.distcp"
    assert objects[moved] == f"{PATH}/a.distcp".encode()
    assert objects[f"{PATH}/a.distcp"] == f"{PATH}/a.distcpnew".encode()
    assert objects[f"{PATH}/.metadata"] == f"{PATH}/.metadata".encode()
    query(job.site.settings, "DELETE FROM queue_order")
    job.bring(PATH, 2)
    job.run_once()
    assert job.held() == []
    assert job.bucket() == {*FILES, MANIFEST}
    assert job.site.objects()[f"{PATH}/.metadata"] == f"{PATH}/.metadatanew".encode()


def test_an_early_removal_takes_nothing_that_is_held(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room that is short evicts it, which loses nothing."""
    monkeypatch.setattr(expiry, "SHORT_SECONDS", 0.0)
    space = replace(job.site.settings.space, reserve_bytes=1 << 60)
    monkeypatch.setattr(job.task, "_settings", replace(job.site.settings, space=space))
    job.save(PATH, 1)
    job.remove()
    for _ in range(2):
        job.task.run_once()
    assert job.held() == [PATH]
