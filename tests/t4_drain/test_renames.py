"""Moves below a renamed directory are planned in pages, and the tree is not read repeatedly."""

from __future__ import annotations

import tracemalloc

import pytest

from gateway.common import clock
from gateway.common.errors import TryAgain
from gateway.common.types import ROOT_CRED
from gateway.db.models import ROOT_INO
from gateway.drain.paths import Paths
from gateway.drain.plan.renames import LEFT_MAX, Renames
from gateway.drain.plan.survey import PAUSE_RATIO, STEP_MAX_SECONDS
from gateway.drain.subtree import NAMES_PAGE
from tests.support.drainsite import Site
from tests.support.t4.renames import FIRST_INO, context_of, fill, read_round, rekeys

MIB = 1 << 20


def test_a_huge_directory_is_planned_in_pages_of_bounded_memory(rclone_site: Site) -> None:
    site = rclone_site
    count = 8_000
    for number in range(2):
        fill(site, f"big/{number}", FIRST_INO + number * count, count, f"old/{number}")
    site.rename("big", "new")
    renames = Renames(0.0, 30.0)
    context = context_of(site)
    planned: set[str] = set()
    pages = 0
    tracemalloc.start()
    while True:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        page = renames.plan(context, None)
        grown = tracemalloc.get_traced_memory()[1] - before
        assert len(page.jobs) <= NAMES_PAGE
        assert grown < 8 * MIB
        pages += 1
        planned |= {str(job.id) for job in page.jobs}
        if page.after is None:
            break
    tracemalloc.stop()
    assert len(planned) == 2 * count
    assert pages >= 2 * count // NAMES_PAGE
    context.database.close()


def test_a_tree_is_not_read_again_for_one_object_that_stays_behind(rclone_site: Site) -> None:
    site = rclone_site
    fill(site, "big", FIRST_INO, 20_000, "new")
    fill(site, "big/deep", FIRST_INO + 50_000, 1, "old")
    site.rename("big", "new")
    renames = Renames(0.0, 30.0)
    context = context_of(site)
    for _ in range(2):
        # The object's move is planned each time, and never made here.
        pages = read_round(renames, context)
        assert len(pages) > 20_000 // NAMES_PAGE
        assert 1 <= sum(map(len, pages)) <= 2
        renames.restart()
    assert rekeys(site) == [FIRST_INO + 50_000]
    pages = read_round(renames, context)
    assert len(pages) == 1
    assert len(pages[0]) == 1
    context.database.close()


def test_a_tree_with_much_that_cannot_move_is_read_more_and_more_rarely(
    rclone_site: Site,
) -> None:
    site = rclone_site
    fill(site, "big", FIRST_INO, LEFT_MAX + 1, "old")
    site.rename("big", "new")
    renames = Renames(0.0, 10_000.0)
    context = context_of(site)
    readings = 0
    for _ in range(50):
        readings += sum(map(len, read_round(renames, context))) > 0
    assert 1 <= readings <= 4
    assert rekeys(site) == [site.attr("new").ino]
    context.database.close()


def test_a_directory_that_is_renamed_while_it_is_read_is_read_again(rclone_site: Site) -> None:
    site = rclone_site
    count = 3 * NAMES_PAGE
    fill(site, "big", FIRST_INO, count, "new")
    site.rename("big", "new")
    renames = Renames(0.0, 30.0)
    context = context_of(site)
    for _ in range(3):
        assert renames.plan(context, None).jobs == []
    # The path is the same as before. In between it was another, to which objects may have moved.
    site.rename("new", "other")
    site.namespace.rename(ROOT_CRED, ROOT_INO, b"other", ROOT_INO, b"new")
    ino = site.attr("new").ino
    assert renames.plan(context, None).jobs == []
    assert rekeys(site) == [ino]
    for _ in range(2):
        # Without this, the next round may not be due yet.
        renames.restart()
        read_round(renames, context)
    assert rekeys(site) == []
    context.database.close()


def test_names_of_a_page_that_the_database_did_not_answer_are_read_again(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    count = NAMES_PAGE // 2
    fill(site, "big", FIRST_INO, count, "old")
    site.rename("big", "new")
    renames = Renames(0.0, 30.0)
    context = context_of(site)
    key_of = Paths.key_of

    def fail(paths: Paths, ino: int) -> str | None:
        if ino == FIRST_INO + 5:
            monkeypatch.undo()
            raise TryAgain("the database did not answer")
        return key_of(paths, ino)

    monkeypatch.setattr(Paths, "key_of", fail)
    with pytest.raises(TryAgain):
        read_round(renames, context)
    jobs = {job.id for page in read_round(renames, context) for job in page}
    assert len(jobs) == count
    context.database.close()


def test_a_paused_machine_does_not_make_the_drain_pause(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    fill(site, "few", FIRST_INO, 3, "old")
    site.rename("few", "new")
    renames = Renames(0.0, 30.0)
    context = context_of(site)
    now, is_paused = [clock.monotonic_seconds()], [True]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    key_of = Paths.key_of

    def pause(paths: Paths, ino: int) -> str | None:
        now[0] += 60.0 * is_paused.pop() if is_paused else 0.0
        return key_of(paths, ino)

    monkeypatch.setattr(Paths, "key_of", pause)
    assert sum(map(len, read_round(renames, context))) == 3
    assert read_round(renames, context) == [[]]
    now[0] += PAUSE_RATIO * STEP_MAX_SECONDS
    assert len({job.id for page in read_round(renames, context) for job in page}) == 3
    context.database.close()
