"""The order in which files are drained, seen in the requests of the drain and with many files."""

from __future__ import annotations

import threading
import time

import pytest

from gateway.catalogue.tracker import Follower
from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.drain.plan.survey import JOBS_PAGE, SCAN_PAGE, DirtySurvey
from gateway.drain.plan.uploads import Complete
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import Site
from tests.support.s3proxy import Act
from tests.support.waiting import until


def sent(site: Site) -> list[str]:
    return [request.key.removeprefix("team/run/") for request in site.proxy.operations("PUT")]


def test_the_newest_directory_goes_first(rclone_site: Site) -> None:
    site = rclone_site
    for step in (100, 200, 300):
        for rank in range(12):
            site.write(f"run/step-{step}/{rank}", b"x")
    site.configure(workers=1)
    site.drain()
    order = sent(site)
    newest = [path for path in order if "step-300" in path]
    # Each fourth turn is for the oldest, so the newest directory is done after 16 of 36 turns.
    assert order.index(newest[-1]) < 17
    # The oldest directory did not wait for all others.
    assert [path for path in order[:8] if "step-100" in path]


def test_the_newest_complete_checkpoint_goes_first(rclone_site: Site) -> None:
    """The members that a save has written so far do not keep the last whole one waiting."""
    site = rclone_site
    for step in (100, 200, 300):
        for rank in range(6):
            site.write(f"run/step-{step}/data/__{rank}_0.distcp", b"x")
        if step != 300:
            site.write(f"run/step-{step}/.metadata", b"x")
    database = Database(site.settings.database_url)
    follower = Follower(site.settings, database, threading.Event())
    while not follower.step():
        pass
    assert site.rows("SELECT state FROM checkpoint WHERE dirty_files > 0 ORDER BY state") == [
        ("complete",),
        ("complete",),
        ("writing",),
    ]
    site.configure(workers=1)
    site.drain()
    order = sent(site)
    first, second = ([path for path in order if f"step-{n}/data" in path] for n in (200, 300))
    assert order.index(first[-1]) < order.index(second[0])


def test_a_checkpoint_that_was_begun_is_uploaded_to_its_end(rclone_site: Site) -> None:
    """Otherwise nothing becomes durable while saves come faster than the bucket takes them."""
    site = rclone_site
    database = Database(site.settings.database_url)
    follower = Follower(site.settings, database, threading.Event())

    def save(step: int) -> int:
        for rank in range(3):
            site.write(f"run/step-{step}/__{rank}_0.distcp", b"x")
        site.write(f"run/step-{step}/.metadata", b"x")
        while not follower.step():
            pass
        return site.attr(f"run/step-{step}").ino

    complete = Complete()

    def first() -> int:
        context = Context(site.settings, database, S3Store(site.settings))
        with context.reading() as view:
            return complete.places(view)[-1][1]

    begun, newer = save(100), save(200)
    assert first() == newer
    newest = save(300)
    assert first() == newer
    for step in (100, 200):
        for name in ("__0_0.distcp", "__1_0.distcp", "__2_0.distcp", ".metadata"):
            site.unlink(f"run/step-{step}/{name}")
    follower.step()
    assert first() == newest
    assert begun < newer


def test_what_comes_later_goes_before_what_waits(rclone_site: Site) -> None:
    site = rclone_site
    for number in range(300):
        site.write(f"old/{number}", b"x")
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD)
    site.configure(workers=1)
    with site.process():
        held.wait()
        site.write("new/0", b"x")
        # The drain knows the new file only after it has read its row.
        until(lambda: site.report().get("waiting_files", 0), "the others are read")
        time.sleep(1.0)
        held.release()
        until(lambda: "new/0" in sent(site), "the new file is sent")
        before = sent(site).index("new/0")
        until(lambda: not site.left(), "everything is drained", 60)
    # Files that were chosen before, at most this many, are sent first.
    assert before <= 2 * JOBS_PAGE + 4


@pytest.mark.parametrize("pattern", ["scratch/*", "/scratch/run-*", "*/cache"])
def test_a_pattern_with_a_slash_is_of_the_path(rclone_site: Site, pattern: str) -> None:
    site = rclone_site
    site.configure(incomplete_patterns=[pattern])
    for path in ("scratch/run-1/cache/f", "kept/scratch/run-1", "run-1/f", "x.tmp"):
        site.write(path, b"x")
    site.drain()
    assert set(site.objects()) == {"kept/scratch/run-1", "run-1/f", "x.tmp"}


def test_many_files_are_read_page_by_page(rclone_site: Site) -> None:
    site = rclone_site
    count = 20_000
    directories = [site.directory(f"top-{n % 4}/d{n}") for n in range(20)]
    connection = site.namespace._database.connect()
    connection.execute("BEGIN")
    for number in range(count):
        ino = 100_000 + number
        connection.execute(
            "INSERT INTO inode VALUES (?, 1, 1, 420, 0, 0, 1, 5, 0, 1, 1, 1, 1, 1, 0,"
            " NULL, NULL, NULL, 1, 0, 0, ?, 2, 0, 0, NULL)",
            (ino, 1_000_000 + number),
        )
        connection.execute(
            "INSERT INTO dirent VALUES (?, ?, ?, ?)",
            (directories[number % 20], b"%d" % number, ino, 1_000_000 + number),
        )
    connection.execute("COMMIT")
    connection.close()
    context = Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))
    survey = DirtySurvey(lambda _ino: False, poll_seconds=1000.0)
    inos: list[int] = []
    longest = pages = 0.0
    after: int | str | None = 0
    while after is not None:
        started = time.thread_time()
        page = survey.plan(context, None)
        longest = max(longest, time.thread_time() - started)
        pages += 1
        assert len(page.jobs) <= JOBS_PAGE + 8
        inos += [job.id.ino for job in page.jobs]
        after = page.after
    context.database.close()
    assert sorted(inos) == list(range(100_000, 100_000 + count))
    assert pages <= count / SCAN_PAGE + count / JOBS_PAGE + 2
    # No page reads all files, so new files are seen between pages.
    assert longest < 1.0
    # The four training jobs get turns, and their newest files go first.
    tops = [(ino - 100_000) % 20 % 4 for ino in inos[:40]]
    assert {tops.count(top) >= 5 for top in range(4)} == {True}
