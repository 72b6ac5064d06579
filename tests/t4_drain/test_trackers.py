"""A tracker in the bucket never names a step that is not durable there."""

from __future__ import annotations

import pytest

from gateway.drain import queue
from gateway.drain.queue import QueueState
from gateway.service.queue import opened
from tests.support.checkpoints.layouts import safetensors
from tests.support.drainsite import Site
from tests.support.s3proxy import Act, Request
from tests.support.t4.naming import catalogue, drain, files, save, sent, waiting, watched
from tests.support.waiting import until


@pytest.mark.parametrize("how", ["rewrite", "rename", "bump"])
def test_the_tracker_in_the_bucket_stays_until_its_step_is_durable(
    each_site: Site, how: str
) -> None:
    site = each_site
    with catalogue(site), watched(site):
        save(site, "run/step-10")
        site.write("run/latest", b"step-10\n")
        drain(site)
        assert site.objects()["run/latest"] == b"step-10\n"
        lacking = site.proxy.inject(
            lambda r: r.operation == "PUT" and r.key.endswith("step-20/__1_0.distcp"),
            Act.FAIL,
            times=1000,
        )
        save(site, "run/step-20")
        if how == "rename":
            site.write("run/latest.tmp", b"step-20")
            site.rename("run/latest.tmp", "run/latest")
        else:
            site.write("run/latest", b"step-20")
        if how == "bump":
            with opened(site.settings) as context:
                queue.say(context, site.attr("run/latest").ino, hold=False)
        with site.draining():
            until(lambda: "run/step-20/__2_0.distcp" in site.objects(), "what can be sent is sent")
            until(lambda: site.report().get("failing"), "a shard fails")
        assert site.objects()["run/latest"] == b"step-10\n"
        tracker = waiting(site)["run/latest"]
        assert tracker.state == QueueState.BEHIND
        assert tracker.is_waited_for
        assert "step-20" in (tracker.waits_for or "")
        lacking.release()
        drain(site)
        assert site.objects()["run/latest"] == b"step-20"
        assert site.is_clean()


def test_the_bytes_that_are_sent_are_those_that_were_judged(rclone_site: Site) -> None:
    """The disk may say another thing by then than when the plan read it."""
    site = rclone_site
    site.write("run/step-10/__0_0.distcp", b"x")
    site.drain()
    site.write("run/step-20/__0_0.distcp", b"x")
    ino = site.write("run/latest", b"step-10")
    with opened(site.settings) as context, context.reading() as view:
        [file] = files(view, ino)
        assert view.precedence.wait_of(file) is None
        assert view.precedence.wait_of(file, b"step-20") is not None


def test_the_index_and_the_tracker_of_tensorflow(rclone_site: Site) -> None:
    site = rclone_site
    site.write("tf/checkpoint", b'model_checkpoint_path: "ckpt-3"\n')
    for name in ("ckpt-3.index", "ckpt-3.data-00000-of-00002", "ckpt-3.data-00001-of-00002"):
        site.write(f"tf/{name}", b"x")
    site.write("faiss/vectors.index", b"not an index of files")
    site.configure(workers=1)
    drain(site)
    paths = [path for path in sent(site) if path.startswith("tf/")]
    assert paths[2:] == ["tf/ckpt-3.index", "tf/checkpoint"]


@pytest.mark.parametrize(
    ("tracker", "text", "directory"),
    [
        ("latest_checkpointed_iteration.txt", b"100", "iter_0000100"),
        ("latest_checkpointed_iteration.txt", b"100\n", "global_step_100"),
        ("latest", b"global_step100", "global_step100"),
        ("latest", b"final-tag", "final-tag"),
    ],
)
def test_a_tracker_of_each_framework(
    rclone_site: Site, tracker: str, text: bytes, directory: str
) -> None:
    site = rclone_site
    site.write(f"run/{tracker}", text)
    site.write(f"run/{directory}/a", b"x")
    site.configure(workers=1)
    with catalogue(site):
        drain(site)
    assert sent(site) == [f"run/{directory}/a", f"run/{tracker}"]


@pytest.mark.parametrize("text", [b"release", b"best", b"two\nlines", b""])
def test_a_tracker_that_names_no_step_is_sent_as_any_file(rclone_site: Site, text: bytes) -> None:
    site = rclone_site
    site.write("run/latest_checkpointed_iteration.txt", text)
    site.drain()
    assert site.objects() == {"run/latest_checkpointed_iteration.txt": text}


def test_a_tracker_of_a_step_that_is_gone_waits_and_nothing_waits_for_it(rclone_site: Site) -> None:
    site = rclone_site
    site.write("run/latest", b"global_step20")
    site.drain()
    entry = waiting(site)["run/latest"]
    assert entry.waits_for == "it names global_step20, which is not there"
    assert (entry.state, entry.is_waited_for, site.objects()) == (QueueState.BEHIND, False, {})
    with site.draining():
        # The drain looks at it again when its directory changes.
        site.write("run/global_step20/a", b"x")
        until(lambda: set(site.objects()) == {"run/global_step20/a", "run/latest"}, "both")


def test_a_tracker_that_is_moved_by_a_rename_waits_too(rclone_site: Site) -> None:
    site = rclone_site
    site.write("run/step-10/a", b"x")
    site.write("run/latest", b"step-10")
    site.write("run/next", b"step-20")
    drain(site)
    site.write("run/step-20/a", b"x")
    held = site.proxy.inject(
        lambda r: r.operation == "PUT" and "step-20" in r.key, Act.FAIL, times=1000
    )
    site.rename("run/next", "run/latest")
    with site.draining():
        until(lambda: site.report().get("failing"), "the new step fails")
        until(lambda: len(held_requests(site)) > 3, "more rounds")
        assert site.objects()["run/latest"] == b"step-10"
        held.release()
        until(lambda: site.objects().get("run/latest") == b"step-20", "the tracker is moved")


def held_requests(site: Site) -> list[Request]:
    return [request for request in site.proxy.operations("PUT") if "step-20" in request.key]


def test_a_tracker_of_half_a_checkpoint_waits_for_the_rest(rclone_site: Site) -> None:
    """The bucket has all that was written, and the catalogue says that something is missing."""
    site = rclone_site
    site.write("out/checkpoint-5/model.safetensors", safetensors())
    site.write("out/latest", b"checkpoint-5")
    with catalogue(site), site.draining():
        until(lambda: len(site.objects()) == 1, "what there is")
        until(lambda: waits_for(site) == "it names checkpoint-5, which is writing", "the reason")
        assert not waiting(site)["out/latest"].is_waited_for
        site.write("out/checkpoint-5/trainer_state.json", b"{}")
        until(lambda: len(site.objects()) == 3, "the rest")
    assert sent(site)[-1] == "out/latest"


def waits_for(site: Site) -> str | None:
    entry = waiting(site).get("out/latest")
    return None if entry is None else entry.waits_for
