"""What names others reaches the bucket after what it names, at every moment, whatever is killed."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.drain import precedence, queue
from gateway.drain.job import JobOutcome
from gateway.drain.plan.survey import COMPARED, LOOKED_AT, DependentFiles, DirtySurvey
from gateway.drain.queue import QueueState
from gateway.drain.send import upload
from gateway.service.queue import opened
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t4.naming import (
    WRITTEN,
    catalogue,
    drain,
    files,
    kill_at,
    save,
    sent,
    waiting,
    watched,
)
from tests.support.waiting import until


@pytest.mark.parametrize("is_followed", [True, False])
def test_no_moment_shows_a_name_before_what_it_names(each_site: Site, is_followed: bool) -> None:
    """The drain is killed after its first, second, ... upload. The catalogue is kept up to date, or
    is away."""
    site = each_site
    # What was sent without an answer is certain after three times this.
    site.values["bucket"]["read_timeout_seconds"] = 1.0
    site.configure()
    site.write("run/latest", b"step-10")
    save(site, "run/step-10")
    with catalogue(site) if is_followed else nullcontext(), watched(site):
        for number in (1, 2, 4, 5, 6):
            kill_at(site, number)
        drain(site)
    assert set(site.objects()) == {"run/latest", *(path for path in WRITTEN if "step-10" in path)}


def test_what_names_others_goes_in_one_order(rclone_site: Site) -> None:
    """Inner ones go first, and none waits for another that waits for it."""
    site = rclone_site
    save(site, "run/step-10")
    site.configure(workers=1)
    drain(site)
    names = [path for path in sent(site) if not path.endswith(".distcp")]
    assert [path.removeprefix("run/step-10/") for path in names] == [
        *("weights/.metadata", ".metadata", "trainer_state.json"),
    ]


def test_an_upload_that_was_planned_before_looks_again(rclone_site: Site) -> None:
    """A shard is written after the plan of ``.metadata``, which names it."""
    site = rclone_site
    ino = site.write("run/step-10/.metadata", b"{}")
    tracker = site.write("run/latest", b"step-10")
    with opened(site.settings) as context:
        with context.reading() as view:
            planned = [
                (file, view.paths.key_of(file.ino) or "") for file in files(view, ino, tracker)
            ]
            assert view.precedence.wait_of(planned[0][0]) is None
        site.write("run/step-10/__0_0.distcp", b"x")
        for file, key in planned:
            assert upload.upload(context, file, key) is JobOutcome.OUTDATED
        assert upload.upload_many(context, planned) == [JobOutcome.OUTDATED] * 2
    assert site.objects() == {}


@pytest.mark.parametrize("left", [".nfs0000000000ab01", "x.distcp.tmp"])
def test_an_abandoned_file_holds_nothing_up(rclone_site: Site, left: str) -> None:
    site = rclone_site
    site.write("run/step-10/.metadata", b"{}")
    if left.startswith(".nfs"):
        parent, name = site.split(f"run/step-10/{left}")
        site.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644))
    else:
        site.write(f"run/step-10/{left}", b"x")
    with site.draining():
        until(lambda: "run/step-10/.metadata" in site.objects(), "the metadata")


def test_an_open_a_held_and_a_damaged_file_are_waited_for(rclone_site: Site) -> None:
    site = rclone_site
    site.write("run/step-10/.metadata", b"{}")
    parent, name = site.split("run/step-10/__0_0.distcp")
    ino = site.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644)).ino

    def reason() -> str:
        site.drain(40)
        assert site.objects() == {}
        entry = waiting(site)["run/step-10/.metadata"]
        assert (entry.state, entry.is_waited_for) == (QueueState.BEHIND, False)
        return entry.waits_for or ""

    assert "__0_0.distcp (open)" in reason()
    with opened(site.settings) as context:
        queue.say(context, ino, hold=True)
        site.seal(ino, b"")
        assert "__0_0.distcp (held)" in reason()
        queue.say(context, ino, hold=None)
    site.namespace.damaged(ino, "its bytes are lost")
    assert "__0_0.distcp (damaged)" in reason()
    site.unlink("run/step-10/__0_0.distcp")
    site.drain(40)
    assert set(site.objects()) == {"run/step-10/.metadata"}


def test_a_directory_that_is_always_written_to_ends_a_wait(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no checkpoint is known, what was sealed much later is not what a file names."""
    site = rclone_site
    monkeypatch.setattr(precedence, "SOON_NS", 0)
    site.write("data/metadata.json", b"{}")
    site.write("data/later", b"x")
    with opened(site.settings) as context, context.reading() as view:
        [file] = files(view, site.attr("data/metadata.json").ino)
        assert view.precedence.wait_of(file) is None
        monkeypatch.setattr(precedence, "SOON_NS", 10**10)
        assert view.precedence.wait_of(file) is not None


def test_half_a_checkpoint_has_no_index_in_the_bucket(rclone_site: Site) -> None:
    site = rclone_site
    site.write("out/checkpoint-5/model.safetensors.index.json", b"{}")
    site.write("out/checkpoint-5/model-00001-of-00002.safetensors", b"x")
    with catalogue(site):
        until(lambda: site.rows("SELECT 1 FROM checkpoint"), "the catalogue has it")
        site.drain(40)
    assert set(site.objects()) == {"out/checkpoint-5/model-00001-of-00002.safetensors"}
    entry = waiting(site)["out/checkpoint-5/model.safetensors.index.json"]
    assert (entry.waits_for or "").startswith("its checkpoint is writing: ")
    assert not entry.is_waited_for
    # A client whose CLOSE waits for the index may be the one that writes the rest.
    site.values["acknowledge"] = {"rule": [{"path": "out"}]}
    site.configure()
    site.drain(40)
    assert "out/checkpoint-5/model.safetensors.index.json" in site.objects()


def test_no_snapshot_shows_what_names_others(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(max_open_age_seconds=0.1)
    site.write("run/step-10/__0_0.distcp", b"x")
    held = site.proxy.inject(
        lambda r: r.operation == "PUT" and r.key.endswith(".distcp"), Act.FAIL, times=1000
    )
    for path, text in {"run/step-10/.metadata": b"{}", "run/latest": b"step-10"}.items():
        parent, name = site.split(path)
        site.put_data(site.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644)), text)
    parent, name = site.split("run/train.log")
    site.put_data(site.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644)), b"log")
    with site.draining():
        until(lambda: "run/train.log" in site.objects(), "a snapshot of the log")
        until(lambda: len(site.proxy.operations("PUT")) > 8, "more rounds")
        assert set(site.objects()) == {"run/train.log"}
        held.release()
        whole = {"run/train.log", "run/step-10/__0_0.distcp", "run/step-10/.metadata"}
        until(lambda: set(site.objects()) == whole, "the snapshot of the metadata")
        # The tracker names a checkpoint with an open file.
        site.seal(site.attr("run/step-10/.metadata").ino, b"{}")
        until(lambda: set(site.objects()) == {*whole, "run/latest"}, "the snapshot of the tracker")


def test_a_directory_that_is_renamed_moves_what_names_others_last(each_site: Site) -> None:
    site = each_site
    save(site, "run/step-10")
    site.write("run/latest", b"step-10")
    drain(site)
    site.proxy.forget()
    site.rename("run", "moved")
    with site.draining():
        until(lambda: site.is_clean() and len(site.objects()) == 8, "everything is moved")
    moved = [request.key.removeprefix(f"{PREFIX}/") for request in site.proxy.operations("COPY")]
    names = [path for path in moved if not path.endswith(".distcp")]
    assert names == [
        *("moved/step-10/weights/.metadata", "moved/step-10/.metadata"),
        *("moved/step-10/trainer_state.json", "moved/latest"),
    ]
    assert all(path.endswith(".distcp") for path in moved[:4])


def test_a_hundred_thousand_files_that_wait_cost_little(rclone_site: Site) -> None:
    """Nothing looks at a file that waits before what it waits for has changed, but for a few."""
    site = rclone_site
    shard = site.write("run/step-10/__0_0.distcp", b"x")
    with opened(site.settings) as context:
        behind = DependentFiles()
        with context.reading() as view:
            behind.add(view.session, 1, shard)
            for ino in range(10**6, 10**6 + 100_000):
                behind.add(view.session, ino, ino + 10**6)
            began = time.monotonic()
            rounds = 2 * 100_000 // COMPARED
            due = [behind.due(view.session) for _ in range(rounds)]
            assert time.monotonic() - began < 10.0
        assert max(map(len, due)) <= LOOKED_AT
        assert behind.of((shard, 5)) == {1}
        site.write("run/step-10/__0_0.distcp", b"y")
        with context.reading() as view:
            assert any(1 in behind.due(view.session) for _ in range(100_000 // COMPARED + 2))
        behind.discard(range(10**6, 10**6 + 100_000))
        assert (len(behind), behind.of((10**6 + 10**6,))) == (1, set())


def test_no_upload_is_planned_of_a_file_that_waits(rclone_site: Site) -> None:
    """It would be read, be found to wait, and be planned again at once."""
    site = rclone_site
    waits = site.write("run/step-10/.metadata", b"{}")
    shard = site.write("run/step-10/__0_0.distcp", b"x")
    with opened(site.settings) as context:
        survey = DirtySurvey(lambda _ino: False, 60.0)
        assert [job.id.ino for job in survey.plan(context, None).jobs] == [shard]
        assert (len(survey), survey.plan(context, None).jobs) == (0, [])
    site.drain()
    with opened(site.settings) as context:
        assert len(survey.plan(context, None).jobs) == 0
    assert waits not in dict(site.rows("SELECT ino, 1 FROM inode WHERE drained_version = 0"))
