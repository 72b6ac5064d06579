"""The page of the recovery: what would be lost now, and what brings the rest back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from gateway.common import clock
from gateway.common.models import from_json
from gateway.recovery import drill_record
from gateway.recovery.drill_record import DrillDifference, DrillReport
from gateway.service import recovery
from gateway.service.recovery import RecoveryFacts
from tests.support.t10.filled import Filled, filled
from tests.support.volumes import query
from tests.support.waiting import until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Filled]:
    with filled(tmp_path) as made:
        yield made


def text_of(page: str) -> str:
    """Return the text of a page, with single spaces."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page)).split())


def test_it_says_what_would_be_lost_now(site: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = site.site.settings
    query(settings, "UPDATE inode SET drained_version = content_version WHERE kind = 1")
    with site.world() as world:
        for number in range(3):
            world.write(f"jobs/new/step-1/f{number}", b"12345678" * 100)
        world.write("small/one", b"1")
    query(
        settings,
        "INSERT INTO names_copy (id, series, number, base_after, base_ns, base_bytes, log_bytes,"
        " log_segments, copied_ns) VALUES (1, '000001-00000000', 1, 0, 1, 3000000, 5000, 1, 1)",
    )
    facts = from_json(RecoveryFacts, site.ask("GET", "recovery"))
    lost = facts.lost
    assert (lost.files, lost.bytes, lost.is_partial) == (4, 2401, False)
    assert [(one.path, one.files, one.bytes) for one in lost.places] == [
        ("/checkpoints/jobs/new/step-1", 3, 2400),
        ("/checkpoints/small", 1, 1),
    ]
    assert facts.base_bytes == 3_000_000
    text = text_of(site.page("/recovery"))
    assert "4 files, 2.3 KiB, whose last version the bucket lacks" in text
    assert "/checkpoints/jobs/new/step-1 3 2.3 KiB" in text
    assert "spillway restore --bucket b" in text and "spillway up --config" in text
    assert 'href="/recovery"' in site.page("/")
    # Only so many are looked at and shown.
    monkeypatch.setattr(recovery, "PLACES", 1)
    monkeypatch.setattr(recovery, "LOOKED_MAX", 2)
    lost = from_json(RecoveryFacts, site.ask("GET", "recovery")).lost
    assert (len(lost.places), lost.is_partial) == (1, True)
    assert sum(one.files for one in lost.places) <= 2


def test_it_shows_the_last_drill(site: Filled) -> None:
    assert "Last drill none yet" in text_of(site.page("/recovery"))
    now_ns = clock.now_ns()
    report = DrillReport(
        began_ns=now_ns,
        ended_ns=now_ns,
        is_ok=False,
        as_of_ns=now_ns,
        files=1234,
        changed=0,
        differing=1,
        first=[DrillDifference("jobs/<b>", "the copy lacks it")],
        objects=100,
        problems=["a segment is bad"],
        compare_seconds=1.0,
        restore_seconds=90.0,
    )
    drill_record.ended(site.site.settings, report)
    # The state may be a second old.
    until(lambda: "not everything came back" in site.page("/recovery"), "the drill")
    page = site.page("/recovery")
    assert "jobs/<b>" not in page
    text = text_of(page)
    assert "1,234 files compared" in text
    assert "a restore would take about 1.5 min" in text
    assert "a segment is bad jobs/<b>: the copy lacks it" in text
    assert "The last drill says that the bucket does not bring everything back" in text
