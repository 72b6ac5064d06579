"""What symbolic links lead to and trackers name is kept, on both engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from gateway.catalogue.store import catalogue_of
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.engine import Database
from gateway.lifecycle.retention import references
from gateway.lifecycle.retention import store as own
from gateway.lifecycle.retention.planning import checkpoint_of
from gateway.lifecycle.retention.references import References
from tests.support.checkpoints.world import World, follow
from tests.support.volumes import query


class Looking:
    """Looks at the links and trackers of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.references = References()
        self._database = Database(world.settings.database_url)
        self._catalogue = catalogue_of(world.settings, self._database)

    def found(self) -> Mapping[str, str]:
        """Return why checkpoints stay, by path."""
        follow(self._world.follower())
        with self._catalogue.viewing() as view:
            rows = [checkpoint_of(row) for row in view.session.all(own.CHECKPOINTS)]
            why = self.references.of(view, rows)
        return {row.path.decode(): why[row.ino] for row in rows if row.ino in why}

    def end(self) -> None:
        self._database.close()


@pytest.fixture
def looking(world: World) -> Iterator[Looking]:
    """Two runs with three checkpoints each, and one whose steps are deeper."""
    for run in ("jobs/a", "jobs/b"):
        for step in (1, 2, 3):
            save(world, f"{run}/step-{step}")
    made = Looking(world)
    yield made
    made.end()


def save(world: World, path: str) -> None:
    for name in ("__0_0.distcp", ".metadata"):
        world.write(f"{path}/{name}", b"12345")


def link(world: World, path: str, target: bytes) -> None:
    world.namespace.symlink(ROOT_CRED, *world.split(path), target, SetAttr())


@pytest.mark.parametrize(
    ("at", "target", "kept"),
    [
        ("jobs/a/best", b"step-2", {"jobs/a/step-2"}),
        ("jobs/a/best", b"./step-2/", {"jobs/a/step-2"}),
        ("jobs/a/best.pt", b"step-2/__0_0.distcp", {"jobs/a/step-2"}),
        ("jobs/a/init", b"../b/step-3", {"jobs/b/step-3"}),
        ("jobs/a/init", b"../../../../jobs/b/step-3", {"jobs/b/step-3"}),
        ("jobs/a/init", b"/mnt/ckpt/jobs/b/step-3", {"jobs/b/step-3"}),
        ("jobs/a/init", b"/jobs/b/step-3/.metadata", {"jobs/b/step-3"}),
        ("jobs/a/init", b"/mnt/jobs/b/step-30", set[str]()),
        ("jobs/a/all", b"..", set[str]()),
        ("jobs/a/none", b"step-9", set[str]()),
        # It is beside the run, and not in its directory.
        ("jobs/newest", b"a/step-2", set[str]()),
    ],
)
def test_what_a_link_leads_to(
    at: str, target: bytes, kept: set[str], world: World, looking: Looking
) -> None:
    assert looking.found() == {}
    link(world, at, target)
    name = at.rpartition("/")[2]
    assert looking.found() == dict.fromkeys(kept, f"the link {name} leads to it")


def test_links_of_a_run_are_seen_above_its_steps_and_in_many_pages(
    world: World, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "PAGE", 2)
    for number in range(5):
        link(world, f"jobs/a/l{number}", b"nowhere")
    link(world, "jobs/a/z", b"step-1")
    assert looking.found().keys() == {"jobs/a/step-1"}
    # The steps of a run may be deeper than its directory.
    query(world.settings, "UPDATE checkpoint SET run = :run", run=b"jobs")
    with looking._catalogue.viewing() as view:
        rows = [checkpoint_of(row) for row in view.session.all(own.CHECKPOINTS)]
        link(world, "jobs/top", b"a/step-2")
    with looking._catalogue.viewing() as view:
        assert len(looking.references.of(view, rows)) == 2


def test_a_link_that_is_gone_keeps_nothing(world: World, looking: Looking) -> None:
    link(world, "jobs/a/best", b"step-2")
    assert looking.found().keys() == {"jobs/a/step-2"}
    world.remove("jobs/a/best")
    link(world, "jobs/a/best", b"step-3")
    assert looking.found().keys() == {"jobs/a/step-3"}


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("latest", b"step-2", {"jobs/a/step-2"}),
        ("latest", b"jobs/a/step-2\n", set[str]()),
        ("latest", b"/mnt/jobs/a/step-2\n", {"jobs/a/step-2"}),
        ("latest_checkpointed_iteration.txt", b"3", {"jobs/a/step-3"}),
        ("latest_checkpointed_iteration.txt", b"release", set[str]()),
        (
            "checkpoint",
            b'model_checkpoint_path: "step-1"\nall_model_checkpoint_paths: "step-3"\n',
            {"jobs/a/step-1", "jobs/a/step-3"},
        ),
        ("last_checkpoint", b"step-1/.metadata", {"jobs/a/step-1"}),
        ("notes", b"step-1", set[str]()),
        ("checkpoint", b"step-1 " * 20_000, set[str]()),
        ("latest", b"\xff\0", set[str]()),
    ],
)
def test_what_a_tracker_names(
    name: str, text: bytes, kept: set[str], world: World, looking: Looking
) -> None:
    world.write(f"jobs/a/{name}", text)
    assert looking.found() == dict.fromkeys(kept, f"the tracker {name} names it")


def test_a_name_without_its_end_names_a_file(world: World, looking: Looking) -> None:
    for step in (7, 8, 77):
        world.write(f"jobs/t/step-{step}.pt", b"12345")
    world.write("jobs/t/checkpoint", b'model_checkpoint_path: "step-7"')
    assert looking.found().keys() == {"jobs/t/step-7.pt"}


def test_a_tracker_that_cannot_be_read_may_name_any(world: World, looking: Looking) -> None:
    beside = {f"jobs/a/step-{step}" for step in (1, 2, 3)}
    world.open("jobs/a/latest")
    found = looking.found()
    assert found.keys() == beside
    assert "is open for writing, so it cannot be read now" in found["jobs/a/step-1"]
    assert looking.references.wanted == set()
    world.close("jobs/a/latest", b"step-3")
    assert looking.found().keys() == {"jobs/a/step-3"}
    # What was read of a version is remembered. Another process has not read it.
    world.drain("jobs/a/latest")
    world.evict("jobs/a/latest")
    assert looking.found().keys() == {"jobs/a/step-3"}
    other = Looking(world)
    assert other.found().keys() == beside
    assert other.references.wanted == {world.attr("jobs/a/latest").ino}
    world.arrive("jobs/a/latest", b"step-3")
    assert other.found().keys() == {"jobs/a/step-3"}
    other.end()
