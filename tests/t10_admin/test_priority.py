"""The threads that answer have a higher priority than the NFS server; jobs have not."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from admin_api import cpu_budget
from admin_api.cpu_budget import ANSWERS
from admin_api.jobs.kinds import JobKind, RunningJob
from admin_api.jobs.runner import JobThreads
from gateway.cli.main import main
from tests.support.adminsite import ADMIN, admin_site
from tests.support.clisite import PROGRAM, Running, Site, environ
from tests.support.ports import free_port
from tests.support.waiting import until

OWN = os.getpriority(os.PRIO_PROCESS, 0)
RAISED = ANSWERS if os.geteuid() == 0 else OWN
"""Users that are not root may not raise a priority, and are served without it."""


def of_this_thread() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def started(directory: Path, *lines: tuple[str, str]) -> set[int]:
    """Return the priorities of the threads of an admin API that has answered."""
    site = Site(directory, free_port())
    data = str(directory / "data")
    assert main(["init", "--config", str(site.config), "--data-dir", data, "--bucket", "b"]) == 0
    port = free_port()
    for key, value in (("port", str(port)), *lines):
        site.edit("admin", key, value)
    with Running([str(PROGRAM), "admin", "--config", str(site.config)], environ()) as admin:
        admin.expect("listening on")
        httpx.get(f"http://127.0.0.1:{port}/api/v1/health/live").raise_for_status()
        found = set()
        for thread in Path(f"/proc/{admin.process.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # the thread has ended
                found.add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
        return found


def test_threads_that_answer_have_a_higher_priority(tmp_path: Path) -> None:
    assert started(tmp_path) == {OWN, RAISED}


def test_no_thread_has_it_where_answers_have_no_limit(tmp_path: Path) -> None:
    assert started(tmp_path, ("busy_share", "1")) == {OWN}


def test_a_job_has_the_priority_of_the_process_although_an_answer_began_it(tmp_path: Path) -> None:
    found: dict[str, int] = {}

    def run(work: RunningJob) -> dict[str, Any]:
        found[work.arguments["name"]] = of_this_thread()
        return {}

    with admin_site(tmp_path) as site:
        kinds = JobKind("works", run), JobKind("waits", run, waits=True)
        runner = JobThreads(site.settings, site.gateway.database, site.gateway.store, kinds)

        def answer() -> None:
            cpu_budget.first()
            found["answer"] = of_this_thread()
            for kind in kinds:
                runner.submit(kind.name, {"name": kind.name}, ADMIN, "r")

        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()
        until(lambda: len(found) == 3, "the jobs")
        runner.stop()
    assert found == {"answer": RAISED, "works": OWN, "waits": OWN}
