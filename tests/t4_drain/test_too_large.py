"""A file that is too large for the store waits for a person, and is not sent again and again."""

from __future__ import annotations

import os
from typing import Any

import pytest

from gateway.service import alarms
from tests.support.drainsite import MIB, Site
from tests.support.s3proxy import Act
from tests.support.volumes import alarms_in, status_of
from tests.support.waiting import until


def until_tried_again(site: Site) -> str:
    """Wait for some tries. Returns the error of the last one."""

    def failure() -> dict[str, Any]:
        failures: list[dict[str, Any]] = site.report().get("failures", [])
        return failures[0] if failures else {"tries": 0, "error": ""}

    wanted = int(failure()["tries"]) + 3
    until(lambda: int(failure()["tries"]) >= wanted, "three more tries")
    return str(failure()["error"])


@pytest.mark.parametrize(
    ("operation", "status", "code"),
    [("COMPLETE", 400, "EntityTooLarge"), ("PART", 413, "413"), ("PUT", 400, "EntityTooLarge")],
)
def test_what_is_too_large_is_sent_once(
    moto_site: Site, operation: str, status: int, code: str
) -> None:
    site = moto_site
    size = 2 * MIB if operation == "PUT" else 11 * MIB
    site.proxy.inject(
        lambda r: r.operation == operation and r.key.endswith("/f"), Act.FAIL, 1e9, status, code
    )
    site.write("f", os.urandom(size))
    site.write("g", b"data")
    site.configure(retry_max_seconds=1)
    with site.draining():
        until_tried_again(site)
        first = len(site.proxy.operations("PART", "PUT"))
        error = until_tried_again(site)
        assert len(site.proxy.operations("PART", "PUT")) == first
        assert "too large for the store" in error
        assert ("drain.part_bytes" in error) == (operation == "PART")
        until(lambda: alarms_in(status_of(site.settings))[alarms.FILES_STUCK] == 1, "the alarm")
        assert site.objects() == {"g": b"data"}
        assert site.multiparts() == 0
        sent = [r for r in site.proxy.operations(operation) if r.key.endswith("/f")]
        assert len(sent) <= (3 if operation == "PART" else 1), "the parts under way, once"
        # It becomes smaller.
        site.write("f", b"small")
        site.proxy.faults.clear()
        until(lambda: site.objects() == {"f": b"small", "g": b"data"}, "it is sent")
        until(site.is_clean, "nothing is left")


def test_a_drain_that_starts_sends_it_once_more(moto_site: Site) -> None:
    site = moto_site
    data = os.urandom(11 * MIB)
    failing = site.proxy.inject(
        lambda r: r.operation == "COMPLETE", Act.FAIL, 1e9, 400, "EntityTooLarge"
    )
    site.write("f", data)
    site.drain()
    assert site.objects() == {}
    failing.release()
    site.drain()
    assert site.objects() == {"f": data}
