"""Checkpoints whose files name each other, and looks at what a bucket has of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from gateway.catalogue.tracker import Follower
from gateway.db.engine import Database
from gateway.drain import queue
from gateway.drain.context import DrainView
from gateway.drain.paths import file_of
from gateway.drain.rows import File
from gateway.service.queue import opened
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act, Request
from tests.support.waiting import background, until

RANKS = range(3)


WRITTEN = {
    f"run/step-{step}/{name}"
    for step in (10, 20)
    for name in (
        *(".metadata", "trainer_state.json", "weights/.metadata", "weights/__0_0.distcp"),
        *(f"__{rank}_0.distcp" for rank in RANKS),
    )
}


@contextmanager
def catalogue(site: Site) -> Iterator[None]:
    """Keep the catalogue up to date meanwhile."""

    def follow(stop: threading.Event) -> None:
        with closing(Database(site.settings.database_url)) as database:
            follower = Follower(site.settings, database, stop)
            while not stop.is_set():
                if follower.step():
                    stop.wait(0.05)

    with background(follow):
        yield


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


def waiting(site: Site) -> dict[str, queue.QueueEntry]:
    with opened(site.settings) as context:
        entries = list(queue.entries(context))
    return {b"/".join(entry.path).decode(): entry for entry in entries}


def files(view: DrainView, *inos: int) -> list[File]:
    return [file for ino in inos if (file := file_of(view.session, ino)) is not None]


def require_whole(site: Site) -> None:
    """Require that all that something in the bucket names is there too."""
    objects = site.objects()
    for path in (path for path in objects if path.endswith(".metadata")):
        directory = path.rpartition("/")[0]
        named = {path for path in WRITTEN if path.startswith(f"{directory}/")}
        assert {one for one in named if one.endswith(".distcp")} <= objects.keys(), sorted(objects)
    for path in (path for path in objects if path.endswith("trainer_state.json")):
        assert f"{path.rpartition('/')[0]}/weights/.metadata" in objects, sorted(objects)
    if (tracker := objects.get("run/latest")) is not None:
        named = {path for path in WRITTEN if path.startswith(f"run/{tracker.decode()}/")}
        assert named <= objects.keys(), sorted(objects)


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


def kill_at(site: Site, number: int) -> None:
    """Kill the drain when it was not told yet that its so-manieth upload was done."""
    count = itertools.count(1)

    def is_reached(request: Request) -> bool:
        return request.operation == "PUT" and next(count) >= number

    held = site.proxy.inject(is_reached, Act.HOLD_ANSWER, times=100)
    with site.process() as process:
        until(lambda: held.arrived.is_set() or site.is_clean(), "an upload, or the end")
        site.kill(process)
    held.discard()
