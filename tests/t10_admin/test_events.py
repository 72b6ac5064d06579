"""Server-sent events: what changes is told at once, nothing is missed, and a token can end them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin_api import events as hubs
from admin_api.access import authentication, tokens
from admin_api.access.principal import Role
from admin_api.app import create_app
from gateway.common import clock
from tests.support.adminsite import ADMIN, AdminSite, admin_site
from tests.support.checkpoints.keeping import save
from tests.support.t10.filled import Filled
from tests.support.waiting import until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with admin_site(tmp_path_factory.mktemp("admin"), principal=None) as served:
        yield Filled(served)


class Listener:
    """A client that listens, in a thread."""

    def __init__(self, site: AdminSite, token: str, last_id: str | None = None) -> None:
        self.found: list[dict[str, Any]] = []
        self.last_id = ""
        self.has_ended = threading.Event()
        headers = {"Authorization": f"Bearer {token}"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        self._http = httpx.Client(base_url=site.http.base_url, headers=headers, timeout=30)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        try:
            with self._http.stream("GET", "events") as answer:
                assert answer.status_code == 200, answer.read()
                kind = ""
                for line in answer.iter_lines():
                    name, _, value = line.partition(": ")
                    if name == "id":
                        self.last_id = value
                    elif name == "event":
                        kind = value
                    elif name == "data":
                        self.found.append({**json.loads(value), "event": kind})
        except (httpx.HTTPError, RuntimeError):
            pass  # the test has closed it
        finally:
            self.has_ended.set()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.found if entry["event"] == kind]

    def close(self) -> None:
        self._http.close()
        self._thread.join()


@contextmanager
def listening(site: Filled, token: str, last_id: str | None = None) -> Iterator[Listener]:
    listener = Listener(site.site, token, last_id)
    try:
        yield listener
    finally:
        revoke(site, token)
        listener.close()


def revoke(site: Filled, token: str) -> None:
    with site.site.gateway.store.writing() as session:
        tokens.revoke(session, token.split("_")[1], clock.now_ns())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(hubs, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(hubs, "PAUSE_RATIO", 0)


def test_jobs_checkpoints_and_the_state_are_told_and_nothing_is_missed(site: Filled) -> None:
    made = site.site
    with listening(site, made.token(Role.VIEWER)) as first:
        until(lambda: first.of("status"), "the state at once")
        assert first.of("status")[0]["dirty_bytes"] == 0
        with site.world() as world:
            save(world, "jobs/a/step-1")
        until(lambda: first.of("checkpoint"), "the checkpoint")
        assert first.of("checkpoint")[-1]["path"] == "/checkpoints/jobs/a/step-1"
        runner = made.app.state.runner
        runner.submit("remove", {"paths": ["gone"], "ino": 1}, ADMIN, "r")
        until(
            lambda: any(entry["state"] == "done" for entry in first.of("job")), "the end of the job"
        )
        last_id = first.last_id
    # While there is no listener, a job runs and a checkpoint goes.
    runner.submit("remove", {"paths": ["gone"], "ino": 1}, ADMIN, "r")
    with site.world() as world:
        world.remove("jobs/a/step-1/__0_0.distcp")
        world.remove("jobs/a/step-1/.metadata")
        world.remove("jobs/a/step-1")
    with listening(site, made.token(Role.VIEWER), last_id) as second:
        until(lambda: any(entry["state"] == "done" for entry in second.of("job")), "the missed job")
        until(lambda: second.of("checkpoint"), "the missed checkpoint")
        assert second.of("checkpoint")[-1]["state"] == "gone"
        assert not second.of("reset")
    for unknown in ("other-5", "", last_id.split("-")[0] + "-999999"):
        with listening(site, made.token(Role.VIEWER), unknown) as late:
            until(partial(late.of, "reset"), "that something was missed")


def test_a_stream_ends_with_its_token_and_their_number_is_bounded(
    site: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = site.site.token(Role.VIEWER)
    with listening(site, token) as listener:
        until(lambda: listener.of("status"), "the state")
        monkeypatch.setattr(hubs, "LISTENERS_MAX", 1)
        again = site.http.get("events", headers={"Authorization": f"Bearer {token}"})
        assert (again.status_code, again.headers["Retry-After"]) == (503, "30")
        assert not listener.has_ended.is_set()
        revoke(site, token)
        assert listener.has_ended.wait(10)
    assert site.http.get("events").status_code == 401
    hub: hubs.Hub = site.site.app.state.hub
    until(lambda: not hub.is_crowded, "the place is free again")


def test_nothing_is_looked_at_while_nobody_listens(tmp_path: Path) -> None:
    looks: list[int] = []

    def look() -> list[tuple[str, Any]]:
        looks.append(1)
        return []

    with admin_site(tmp_path) as made:
        app = create_app(made.settings)
        hub: hubs.Hub = app.state.hub
        hub._look = look
        hub.publish("job", {})  # before the server runs: no listener gets it
    assert not looks


def test_a_listener_that_is_too_slow_is_sent_away() -> None:
    async def run() -> None:
        hub = hubs.Hub(list, lambda: ("status", {}))
        hub.open()
        async with hub.listening(None) as queue:
            for number in range(hubs.WAITING_MAX + 1):
                hub._tell("job", number)
            assert queue.get_nowait() is None and queue.empty()
        hub.close()

    asyncio.run(run())
