"""The drain counts its work, for the status and for metrics."""

from __future__ import annotations

import os

from gateway.common import clock
from tests.support.drainsite import MIB, Site
from tests.support.s3proxy import Act
from tests.support.waiting import until


def counted(site: Site) -> dict[str, int]:
    counters: dict[str, int] = site.report().get("counters", {})
    return counters


def test_what_is_done_is_counted(rclone_site: Site) -> None:
    site = rclone_site
    with site.process():
        site.write("moved", b"12345")
        site.write("deleted", b"123")
        until(site.is_clean, "both are drained")
        site.rename("moved", "target")
        site.unlink("deleted")
        until(site.is_clean, "the bucket has followed")
        held = site.proxy.inject(lambda r: r.operation == "PART", Act.HOLD)
        site.write("large", os.urandom(6 * MIB))
        held.wait()
        site.unlink("large")
        held.release()
        until(lambda: counted(site).get("aborts") == 1, "the abort is counted")
        counters = counted(site)
        assert (counters["uploads"], counters["copies"], counters["deletes"]) == (2, 1, 2)
        assert counters["retries"] == counters["throttles"] == 0
        # The part of the aborted upload counts, and XML bodies count too.
        assert counters["bytes"] >= 8 + 5 * MIB
        assert 10 < counters["requests"] <= len(site.proxy.operations())
        answers = site.report()["answers"]
        assert answers["200"] > 5 and answers.keys() <= {"200", "204", "404", "none"}
        until(lambda: sum(site.report()["answers"].values()) == counted(site)["requests"], "all")


def test_what_waits_is_counted(rclone_site: Site) -> None:
    site = rclone_site
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD, times=2)
    for number in range(20):
        site.write(f"f{number}", b"x")
    site.write("held.tmp", b"x")
    before_ns = clock.now_ns()
    site.configure(workers=1)
    with site.process():
        held.wait()
        until(lambda: (site.report().get("oldest_sealed_ns") or before_ns) < before_ns, "its age")
        held.release()
        until(lambda: len(site.objects()) == 20, "all but one are drained")
        until(lambda: site.report()["waiting_files"] == 0, "nothing waits that could go")
        until(lambda: site.report()["oldest_sealed_ns"] is None, "nothing is old")
