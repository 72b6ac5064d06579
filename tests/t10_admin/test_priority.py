"""Requests are answered before other work. Jobs and what is got in the background are not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from admin_api import priority
from admin_api.jobs.kinds import Kind, Work
from admin_api.jobs.runner import Runner
from admin_api.recent import Recent
from tests.support.waiting import until
from tests.t10_admin.site import ADMIN, admin_site

NEVER = 0.0


def mine() -> int:
    """Return the nice value of this thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def in_a_request(call: Callable[[], object]) -> None:
    """Call in a thread that answers requests."""
    with ThreadPoolExecutor(1, initializer=priority.requests_first) as pool:
        pool.submit(call).result()


def test_jobs_that_a_request_begins_have_the_priority_of_others(tmp_path: Path) -> None:
    found: list[int] = []
    ran = threading.Event()

    def run(_work: Work) -> dict[str, Any]:
        found.append(mine())
        ran.set()
        return {}

    with admin_site(tmp_path) as site:
        gateway = site.gateway
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
