"""The threads that answer have a higher priority than the NFS server; jobs have not."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from admin_api import priority
from admin_api.priority import ANSWERS
from gateway.cli.main import main
from tests.support.s3server import free_port
from tests.t5_cli.site import PROGRAM, Running, Site, environ

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
        threads = Path(f"/proc/{admin.process.pid}/task").iterdir()
        return {os.getpriority(os.PRIO_PROCESS, int(thread.name)) for thread in threads}


def test_threads_that_answer_have_a_higher_priority(tmp_path: Path) -> None:
    assert started(tmp_path) == {OWN, RAISED}


def test_no_thread_has_it_where_answers_have_no_limit(tmp_path: Path) -> None:
    assert started(tmp_path, ("busy_share", "1")) == {OWN}


def test_a_job_has_the_priority_of_the_process_although_an_answer_began_it() -> None:
    found: list[int] = []

    def answer() -> None:
        priority.first()
        found.append(of_this_thread())
        with ThreadPoolExecutor(1, "job", priority.as_the_process) as jobs:
            found.append(jobs.submit(of_this_thread).result())
        with ThreadPoolExecutor(1, "other") as others:
            found.append(others.submit(of_this_thread).result())

    thread = threading.Thread(target=answer)
    thread.start()
    thread.join()
    assert found == [RAISED, OWN, RAISED]
