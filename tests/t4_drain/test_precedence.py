"""What names others reaches the bucket after what it names, at every moment, whatever is killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from gateway.checkpoints.follower import Follower
from gateway.control.queue import opened
from gateway.db.engine import Database
from gateway.drain import queue
from gateway.drain.queue import State
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import Act, Request
from tests.support.s3server import RcloneServer
from tests.support.waiting import until
from tests.t4_drain.conftest import MakeSite
from tests.t4_drain.site import PREFIX, Site

RANKS = range(3)


@pytest.fixture(params=["sqlite", "postgres"])
def each_site(request: pytest.FixtureRequest, rclone: RcloneServer, make_site: MakeSite) -> Site:
    """A gateway on each engine."""
    if request.param == "sqlite":
        return make_site(rclone)
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return make_site(rclone, database_url=postgres.create_database())


@contextmanager
def catalogue(site: Site) -> Iterator[None]:
    """Keep the catalogue up to date meanwhile."""
    database = Database(site.settings.database_url)
    stop = threading.Event()
    follower = Follower(site.settings, database, stop)

    def follow() -> None:
        while not stop.is_set():
            if follower.step():
                stop.wait(0.05)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        database.close()


def shards(path: str) -> list[str]:
    return [f"{path}/__{rank}_0.distcp" for rank in RANKS]


def save(site: Site, path: str) -> None:
    """Write a checkpoint in the worst order: what names others first."""
    for name in (".metadata", "weights/.metadata", "trainer_state.json"):
        site.write(f"{path}/{name}", b"{}")
    for shard in [*shards(path), f"{path}/weights/__0_0.distcp"]:
        site.write(shard, b"x")


def sent(site: Site) -> list[str]:
    return [request.key.removeprefix(f"{PREFIX}/") for request in site.proxy.operations("PUT")]


def waiting(site: Site) -> dict[str, queue.Entry]:
    with opened(site.settings) as context:
        found = list(queue.entries(context))
    return {b"/".join(one.path).decode(): one for one in found}


def require_whole(site: Site) -> None:
    """Require that all that something in the bucket names is there too."""
    found = site.objects()
    for path in (path for path in found if path.endswith(".metadata")):
        directory = path.rpartition("/")[0]
        named = {path for path in WRITTEN if path.startswith(f"{directory}/")}
        assert {one for one in named if one.endswith(".distcp")} <= found.keys(), sorted(found)
    for path in (path for path in found if path.endswith("trainer_state.json")):
        assert f"{path.rpartition('/')[0]}/weights/.metadata" in found, sorted(found)
    if (tracker := found.get("run/latest")) is not None:
        named = {path for path in WRITTEN if path.startswith(f"run/{tracker.decode()}/")}
        assert named <= found.keys(), sorted(found)


WRITTEN = {
    f"run/step-{step}/{name}"
    for step in (10, 20)
    for name in (
        *(".metadata", "trainer_state.json", "weights/.metadata", "weights/__0_0.distcp"),
        *(f"__{rank}_0.distcp" for rank in RANKS),
    )
}


@contextmanager
def watched(site: Site) -> Iterator[None]:
    """Look at the bucket after each request that changed it."""
    wrong: list[AssertionError] = []

    def look(request: Request) -> None:
        if request.method in ("PUT", "POST", "DELETE"):
            try:
                require_whole(site)
            except AssertionError as exc:
                wrong.append(exc)

    site.proxy.on_applied = look
    yield
    site.proxy.on_applied = None
    assert wrong == []


def drain(site: Site) -> None:
    """Run the drain until the bucket has everything."""
    with site.draining():
        until(lambda: waiting(site) == {} and site.is_clean(), "the bucket has everything")


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
            count = itertools.count(1)
            held = site.proxy.inject(
                lambda r, count=count, number=number: (
                    r.operation == "PUT" and next(count) >= number
                ),
                Act.HOLD_ANSWER,
                times=100,
            )
            with site.process() as process:
                until(lambda: held.arrived.is_set() or site.is_clean(), "an upload, or the end")
                site.kill(process)
            held.discard()
        drain(site)
    assert set(site.objects()) == {"run/latest", *(path for path in WRITTEN if "step-10" in path)}


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
        assert tracker.state == State.BEHIND
        assert tracker.is_waited_for
        assert "step-20" in (tracker.waits_for or "")
        lacking.release()
        drain(site)
        assert site.objects()["run/latest"] == b"step-20"
        assert site.is_clean()
