"""Requests are answered before other work. Jobs and what is got in the background are not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin_api import priority
from admin_api.gateway import open_gateway
from admin_api.jobs.kinds import Kind, Work
from admin_api.jobs.runner import Runner
from admin_api.recent import Recent
from gateway.cli.main import main
from tests.support.s3server import free_port
from tests.support.waiting import until
from tests.t5_cli.site import PROGRAM, Running, Site, environ
from tests.t10_admin.site import ADMIN

NEVER = 0.0


def mine() -> int:
    """Return the nice value of this thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def in_a_request(call: Callable[[], object]) -> None:
    """Call in a thread that answers requests."""
    with ThreadPoolExecutor(1, initializer=priority.requests_first) as pool:
        pool.submit(call).result()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, free_port())
    data = str(tmp_path / "data")
    assert main(["init", "--config", str(made.config), "--data-dir", data, "--bucket", "b"]) == 0
    made.edit("admin", "port", str(free_port()))
    return made


@pytest.mark.parametrize("share", ["0.03", "1"])
def test_only_requests_with_a_limit_come_first(site: Site, share: str) -> None:
    site.edit("admin", "busy_share", share)
    with Running([str(PROGRAM), "admin", "--config", str(site.config)], environ()) as admin:
        admin.expect("listening on ")
        port = site.settings.admin.port
        assert httpx.get(f"http://127.0.0.1:{port}/api/v1/health/live").status_code == 200
        tasks = [int(task.name) for task in Path(f"/proc/{admin.process.pid}/task").iterdir()]
        found = {os.getpriority(os.PRIO_PROCESS, task) for task in tasks}
    assert found == ({mine(), priority.REQUESTS} if share != "1" else {mine()})


def test_jobs_that_a_request_begins_have_the_priority_of_others(site: Site) -> None:
    found: list[int] = []
    ran = threading.Event()

    def run(_work: Work) -> dict[str, Any]:
        found.append(mine())
        ran.set()
        return {}

    gateway = open_gateway(site.settings)
    for kind in (Kind("works", run), Kind("waits", run, waits=True)):
        runner = Runner(gateway.settings, gateway.database, gateway.store, (kind,))
        in_a_request(partial(runner.submit, kind.name, {}, ADMIN, "r"))
        assert ran.wait(30)
        ran.clear()
        runner.stop()
    assert found == [priority.OTHERS] * 2


def test_what_is_got_in_the_background_has_the_priority_of_others() -> None:
    found: list[int] = []
    recent = Recent(lambda: found.append(mine()), NEVER)
    in_a_request(recent.ready)
    until(lambda: found, "the facts")
    assert found == [priority.OTHERS]
    in_a_request(recent.value)
    assert found[1:] == [priority.REQUESTS]
