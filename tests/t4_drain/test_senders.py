"""Processes of their own send small files; any of these processes may be killed."""

from __future__ import annotations

import math
import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support.drainsite import Site
from tests.support.s3proxy import Act
from tests.support.waiting import until

FILES = 300


def senders_of(pid: int) -> list[int]:
    """Return the pids of the senders of a drain."""
    children = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            children += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in children if is_sender(child)]


def is_sender(pid: int) -> bool:
    try:
        return b"gateway.drain.send.sender" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def fill(site: Site) -> dict[str, bytes]:
    contents = {f"d{number % 3}/{number}": b"%d" % number for number in range(FILES)}
    for path, data in contents.items():
        site.write(path, data)
    return contents


def test_many_small_files_arrive(site: Site) -> None:
    site.configure(processes=2)
    contents = fill(site)
    site.drain()
    assert site.objects() == contents
    assert site.uploads().total() == FILES
    assert site.left() == []


def test_an_object_that_is_refused_holds_up_no_other(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(processes=1, workers=1)
    contents = fill(site)
    refused = next(path for path in contents if path.endswith("/150"))
    site.proxy.inject(
        lambda r: r.operation == "PUT" and r.key.endswith(refused),
        Act.FAIL,
        times=math.inf,
        status=400,
        code="InvalidRequest",
    )
    site.drain()
    del contents[refused]
    assert site.objects() == contents
    others = [r for r in site.proxy.operations("PUT") if not r.key.endswith(refused)]
    assert len(others) == FILES - 1


def test_a_connection_that_is_lost_among_many_is_only_tried_again(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(processes=1, workers=1)
    contents = fill(site)
    site.proxy.inject(lambda r: r.operation == "PUT" and "/15" in r.key, Act.DROP, times=2)
    site.drain()
    assert site.objects() == contents
    assert site.left() == []
    assert len(site.proxy.operations("PUT")) == FILES + 2
    assert site.report()["counters"]["retries"] == 0


def test_a_bucket_that_is_busy_is_not_asked_for_all_that_was_handed_out(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(processes=1, workers=1)
    fill(site)
    site.proxy.inject(lambda r: r.operation == "PUT", Act.FAIL, times=math.inf)
    site.drain()
    asked = len(site.proxy.operations("PUT"))
    # A batch ends after three failures in a row; some batches begin before the first one ends.
    assert 1 <= asked <= 6


def test_a_killed_sender_is_replaced(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(processes=2)
    contents = fill(site)
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD, times=2)
    with site.process() as process:
        held.wait()
        for pid in senders_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        held.release()
        until(site.is_clean, "everything is drained")
    assert site.objects() == contents
    assert "a sender process ended" in site.output.read_text()


def test_senders_end_with_their_drain(rclone_site: Site) -> None:
    """They end also in the middle of a batch: their requests could overtake the next drain."""
    site = rclone_site
    site.configure(processes=2)
    contents = fill(site)
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD, times=2)
    with site.process() as process:
        held.wait()
        pids = senders_of(process.pid)
        assert pids
        site.kill(process)
        until(lambda: not any(map(is_sender, pids)), "the senders are gone", 5)
    held.discard()
    site.drain()
    assert site.objects() == contents
    assert site.left() == []


def test_files_of_a_batch_that_were_not_sent_leave_no_intent(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(processes=1, workers=1)
    fill(site)
    fault = site.proxy.inject(
        lambda r: r.operation == "PUT", Act.FAIL, math.inf, 403, "AccessDenied"
    )
    site.drain()
    sent = {request.key for request in site.proxy.operations("PUT")}
    assert 0 < len(sent) < FILES
    assert {key for (key,) in site.rows('SELECT "key" FROM upload')} <= sent
    fault.release()
