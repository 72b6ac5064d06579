"""A burst reaches the bucket as a smooth stream, and the drain obeys an answer SlowDown."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.drainsite import MIB, Site
from tests.support.s3proxy import Act, Request
from tests.support.waiting import until


def busiest(requests: list[Request], seconds: float) -> int:
    """Return the largest number of requests that began within a window of this length."""
    times = sorted(request.time for request in requests)
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.alone
@pytest.mark.parametrize("processes", [0, 2])
def test_a_burst_of_many_ranks_is_a_smooth_stream(rclone_site: Site, processes: int) -> None:
    """A window of w seconds has at most rate * w requests and a burst of a tenth of a second.

    Each thread may add one request, which can be delayed between its permission and the server.
    """
    site = rclone_site
    # A machine that runs other suites beside this one can send so many.
    rate, ranks, workers = 30, 150, 8
    for rank in range(ranks):
        site.write(f"step-100/rank-{rank:03d}", b"%d" % rank)
    site.configure(requests_per_second=rate, workers=workers, processes=processes)
    with site.process():
        until(lambda: not site.left(), "everything is drained", 60)
    requests = site.proxy.operations()
    assert len(site.objects()) == ranks
    assert len(requests) >= ranks
    for window in (0.25, 1.0, 3.0):
        assert busiest(requests, window) <= rate * window + rate / 10 + 1 + workers
    # There is no gap in which permitted requests are not sent.
    took = max(r.time for r in requests) - min(r.time for r in requests)
    assert took <= 1.5 * len(requests) / rate


@pytest.mark.alone
def test_bytes_stay_under_their_ceiling(rclone_site: Site) -> None:
    site = rclone_site
    rate = 8 * MIB
    site.write("large", os.urandom(16 * MIB))
    for number in range(8):
        site.write(f"f{number}", os.urandom(MIB))
    site.configure(bytes_per_second=rate)
    with site.process():
        until(lambda: not site.left(), "everything is drained", 60)
    sent = sorted((r.time, r.body_bytes) for r in site.proxy.operations("PUT", "PART"))
    for start, _ in sent:
        window = sum(size for at, size in sent if start <= at < start + 1.0)
        # A burst is one body, and two threads can each be sending one.
        assert window <= rate + 2 * 5 * MIB
    assert sent[-1][0] - sent[0][0] >= (24 - 2 * 5) / 8


def leases(site: Site) -> dict[int, int]:
    """Return the time at which each lease runs out, by the lease's id."""
    return dict(site.rows("SELECT id, expires_ns FROM lease"))


@pytest.mark.alone
def test_two_drains_share_one_ceiling(rclone_site: Site) -> None:
    """The second drain halves its rate at once, the first one when it next renews its lease."""
    site = rclone_site
    rate, workers = 40, 4
    site.configure(requests_per_second=rate, workers=workers)
    with site.process(), site.process():
        until(lambda: len(leases(site)) == 2, "both have a lease")
        before = leases(site)
        until(lambda: all(leases(site)[k] > before[k] for k in before), "both have renewed it")
        site.proxy.forget()
        for rank in range(160):
            site.write(f"step-100/rank-{rank:03d}", b"%d" % rank)
        until(lambda: not site.left(), "everything is drained", 60)
    requests = site.proxy.operations()
    assert len(requests) >= 160
    for window in (1.0, 3.0):
        assert busiest(requests, window) <= rate * window + rate / 10 + 2 + 2 * workers


def at_once(site: Site) -> int:
    return int(site.report().get("requests_at_once", 0))


def test_slow_down_leaves_one_request_at_a_time_and_recovers(rclone_site: Site) -> None:
    site = rclone_site
    for number in range(150):
        site.write(f"f{number}", b"x")
    site.configure(workers=8)
    fault = site.proxy.inject(lambda r: r.method == "PUT", Act.FAIL, times=1e9)
    with site.process():
        until(lambda: at_once(site) == 1, "one request at a time is left")
        assert site.report()["counters"]["throttles"] >= 4
        assert site.report()["counters"]["retries"] >= 4
        fault.release()
        until(lambda: not site.left(), "everything is drained")
        until(lambda: at_once(site) > 5, "there are more again")
        until(lambda: site.report()["counters"]["uploads"] == 150, "every upload is counted")
    assert len(site.objects()) == 150


@pytest.mark.alone
def test_retry_after_is_obeyed(rclone_site: Site) -> None:
    site = rclone_site
    for number in range(4):
        site.write(f"f{number}", b"x")
    fault = site.proxy.inject(lambda r: r.method == "PUT", Act.FAIL)
    fault.headers = (("Retry-After", "2"),)
    with site.process():
        until(lambda: not site.left(), "everything is drained")
    requests = sorted(site.proxy.operations(), key=lambda r: r.time)
    refused = next(r for r in requests if r.status == 503)
    later = [r.time - refused.time for r in requests if r.time > refused.time]
    # Requests that were under way before may still arrive.
    assert not [seconds for seconds in later if 0.5 < seconds < 1.9]
    assert max(later) >= 1.9


@pytest.mark.alone
def test_what_is_not_wanted_any_more_is_aborted_at_once(rclone_site: Site) -> None:
    """A slow upload is given up after the part that is being sent."""
    site = rclone_site
    site.write("f", os.urandom(60 * MIB))
    site.configure(bytes_per_second=20 * MIB, part_concurrency=1)
    with site.process():
        until(lambda: len(site.proxy.operations("PART")) >= 2, "parts are sent")
        site.unlink("f")
        unlinked = time.monotonic()
        until(lambda: site.proxy.operations("ABORT"), "the upload is aborted")
        until(lambda: not site.left(), "nothing is left")
    (abort,) = site.proxy.operations("ABORT")
    assert abort.time - unlinked < 1.0
    assert len([r for r in site.proxy.operations("PART") if r.time > unlinked]) <= 1
    assert site.multiparts() == 0
    assert site.objects() == {}
