"""Tests that the drain looks at what is new, and at everything only when it must.

The drain forgets nothing. It reads everything again only after ten minutes, so whatever these tests
see was found otherwise.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from gateway.common import clock
from gateway.db import journal
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.journal import STORED, Reader, TouchedInode
from gateway.drain import queue, statements
from gateway.drain.context import Context
from gateway.drain.job import Lane
from gateway.drain.plan import survey
from gateway.drain.plan.survey import DirtySurvey
from gateway.objectstore.s3 import S3Store
from tests.support.clisite import spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.waiting import until


@pytest.fixture
def idle(rclone_site: Site) -> Iterator[Site]:
    """A gateway whose drain has read everything and waits."""
    site = rclone_site
    site.write("first", b"first")
    with site.draining():
        until(lambda: not site.left(), "the first file is drained")
        until(lambda: site.report().get("oldest_sealed_ns", 0) is None, "it has nothing to do")
        yield site


def is_drained(site: Site, *paths: str) -> bool:
    return set(paths) <= site.objects().keys()


def pass_over(site: Site) -> None:
    """Wait until the drain has read past everything that is there now."""
    marker = f"marker-{len(site.objects())}"
    site.write(marker, b"x")
    until(lambda: is_drained(site, marker), "a file that was sealed later")


def rewrite(site: Site, statement: str) -> None:
    """Change rows beside the gateway's transactions, so that the journal does not name them."""
    site.rows(f"{statement} RETURNING 1")


def test_a_file_that_gets_a_final_name(idle: Site) -> None:
    idle.write("a.tmp", b"a")
    idle.write("b.tmp", b"b")
    pass_over(idle)
    idle.rename("a.tmp", "a")
    until(lambda: is_drained(idle, "a"), "the renamed file")
    idle.link("b.tmp", "b")
    until(lambda: is_drained(idle, "b"), "the file with another name")


def test_a_directory_that_gets_a_final_name(idle: Site) -> None:
    for n in range(3):
        idle.write(f"runs/tmp-1/deep/{n}", b"x")
    pass_over(idle)
    idle.rename("runs/tmp-1", "runs/1")
    until(lambda: is_drained(idle, *(f"runs/1/deep/{n}" for n in range(3))), "what is below it")


def test_what_a_person_releases(idle: Site) -> None:
    config = idle.settings.source
    for path in ("held/f", "held/deep/f"):
        idle.directory(path.rpartition("/")[0])
    assert spillway("queue", "hold", "held", "--config", config).returncode == 0
    for path in ("held/f", "held/deep/f"):
        idle.write(path, b"x")
    pass_over(idle)
    assert spillway("queue", "release", "held", "--config", config).returncode == 0
    until(lambda: is_drained(idle, "held/f", "held/deep/f"), "what is released")


def test_a_file_that_is_whole_again(idle: Site) -> None:
    ino = idle.write("f.tmp", b"data")
    idle.namespace.damaged(ino, "test")
    idle.rename("f.tmp", "f")
    pass_over(idle)
    idle.namespace.whole(ino)
    until(lambda: is_drained(idle, "f"), "the file")


def test_an_object_that_is_gone(idle: Site) -> None:
    """The file is dirty again, with the time of a seal that is long over."""
    idle.client.delete_object(Bucket=idle.bucket, Key=f"{PREFIX}/first")
    idle.rows(
        "INSERT INTO indeterminate_write (key, ino, noted_ns, check_after_ns)"
        f" VALUES ('{PREFIX}/first', {idle.attr('first').ino}, 1, 0) RETURNING 1"
    )
    until(lambda: is_drained(idle, "first"), "its object")


def test_the_journal_tells_of_objects(rclone_site: Site) -> None:
    """That they came, and that they were moved."""
    site = rclone_site
    reader = Reader("test")
    database = Database(site.settings.database_url)
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        with database.transaction(connection):
            reader.begin(session)
        ino = site.write("a", b"a")
        site.drain()
        assert TouchedInode(ino, STORED) in reader.read(session, 100)
        site.rename("a", "b")
        assert TouchedInode(ino, STORED) not in reader.read(session, 100)
        site.drain()
        assert site.objects() == {"b": b"a"}
        assert TouchedInode(ino, STORED) in reader.read(session, 100)
    database.close()


def test_the_safety_net_finds_what_the_journal_did_not_tell(
    idle: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "EVERYTHING_SECONDS", 0.2)
    # The next planned reading is ten minutes away. The lost reader causes one now, and the short
    # interval is in force from then on.
    rewrite(idle, "DELETE FROM reader")
    until(lambda: idle.rows("SELECT 1 FROM reader"), "the reader")
    idle.write("a.tmp", b"a")
    pass_over(idle)
    rewrite(idle, "UPDATE dirent SET name = X'61' WHERE name = X'612e746d70'")
    until(lambda: is_drained(idle, "a"), "the file")


def test_a_journal_that_was_not_kept(idle: Site) -> None:
    """This happens with a database that was restored, and with a reader that was dropped."""
    idle.write("a.tmp", b"a")
    pass_over(idle)
    rewrite(idle, "UPDATE dirent SET name = X'61' WHERE name = X'612e746d70'")
    rewrite(idle, "DELETE FROM reader")
    until(lambda: is_drained(idle, "a"), "the file")
    idle.write("b.tmp", b"b")
    pass_over(idle)
    idle.rename("b.tmp", "b")
    until(lambda: is_drained(idle, "b"), "the next file")


def test_an_end_before_the_reader(idle: Site) -> None:
    idle.write("a.tmp", b"a")
    pass_over(idle)
    rewrite(idle, "UPDATE dirent SET name = X'61' WHERE name = X'612e746d70'")
    rewrite(idle, "DELETE FROM journal")
    until(lambda: is_drained(idle, "a"), "the file")


def test_a_clock_that_goes_back(idle: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the step, the time of a file that settles is further ahead than it can have been
    set."""
    idle.namespace.settle_ns = 60 * clock.NS
    idle.write("a", b"a")
    idle.namespace.settle_ns = 0
    pass_over(idle)
    # The step is less than the store allows in signatures.
    step_ns, now_ns = 600 * clock.NS, clock.now_ns
    assert step_ns > idle.settings.drain_ahead_ns
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() - step_ns)
    until(lambda: is_drained(idle, "a"), "the file of before the step")
    idle.write("b", b"b")
    until(lambda: is_drained(idle, "b"), "a file of after the step")


def test_the_position_is_saved_and_rows_go(idle: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SAVE_SECONDS", 0.1)
    for n in range(20):
        idle.write(f"f{n}", b"x")
    until(lambda: not idle.left(), "everything is drained")
    idle.write("last", b"x")
    until(lambda: idle.rows("SELECT count(*) FROM journal") == [(1,)], "all other rows are gone")


def test_the_reader_of_a_dead_drain_goes_with_its_lease(rclone_site: Site) -> None:
    site = rclone_site
    with site.process() as first:
        until(lambda: site.rows("SELECT 1 FROM reader"), "the reader")
        before = site.rows("SELECT name FROM reader")
        site.kill(first)
    with site.process():
        until(lambda: site.rows("SELECT name FROM reader") not in ([], before), "another one")
        assert len(site.rows("SELECT name FROM reader")) == 1


def surveyed(site: Site) -> tuple[DirtySurvey, Context]:
    """Return a survey that has read everything: it plans only what is new from now on."""
    context = Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))
    drain_survey = DirtySurvey(lambda _ino: False, poll_seconds=0.0)
    while drain_survey.plan(context, None).after is not None:
        pass
    return drain_survey, context


def test_an_error_in_a_plan_costs_no_file(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error leaves rows of the journal that were read, and not looked at."""
    site = rclone_site
    ino = site.write("a.tmp", b"a")
    drain_survey, context = surveyed(site)
    site.rename("a.tmp", "a")
    with monkeypatch.context() as patched, pytest.raises(sqlite3.OperationalError):
        patched.setattr(statements, "DIRTY_OF", Statement(text("SELECT nothing")))
        drain_survey.plan(context, None)
    assert [job.id.ino for job in drain_survey.plan(context, None).jobs] == [ino]
    context.database.close()


def test_what_is_held_is_not_read_again_and_again(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SCAN_PAGE", 10)
    monkeypatch.setattr(survey, "PAUSE_RATIO", 0)
    site = rclone_site
    for n in range(50):
        site.write(f"{n}.tmp", b"x")
    drain_survey, context = surveyed(site)
    # A reading of everything would have several pages.
    assert [drain_survey.plan(context, None).after for _ in range(10)] == [None] * 10
    context.database.close()


def test_what_a_person_bumps_during_a_reading_of_everything_goes_first(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file goes at once. The reading may have passed a directory: another one follows."""
    monkeypatch.setattr(survey, "SCAN_PAGE", 10)
    monkeypatch.setattr(survey, "READ_SECONDS", 0.0)
    monkeypatch.setattr(survey, "PAUSE_RATIO", 0)
    monkeypatch.setattr(survey, "JOBS_PAGE", 1)
    monkeypatch.setattr(survey, "TAKEN_AT_ONCE", 1)
    site = rclone_site
    for n in range(20):
        site.write(f"run/old/{n}", b"x")
    below = {site.write(f"run/bumped/{n}", b"x") for n in range(5)}
    newest = [site.write(f"run/new/{n}", b"x") for n in range(60)][-1]
    context = Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))
    drain_survey = DirtySurvey(lambda _ino: False, poll_seconds=0.0)
    for _ in range(3):
        assert drain_survey.plan(context, None).jobs == []
    queue.say(context, newest, hold=False)
    queue.say(context, site.attr("run/bumped").ino, hold=False)
    # The reading has passed the directory, and has not reached the file.
    assert [job.id.ino for job in drain_survey.plan(context, None).jobs] == [newest]
    pages = [drain_survey.plan(context, None, [Lane.FIRST]) for _ in range(20)]
    assert below <= {job.id.ino for page in pages for job in page.jobs}
    context.database.close()


def test_what_was_handed_out_comes_again_until_it_is_drained(rclone_site: Site) -> None:
    """The job may have been dropped: another drain had the file, or the bucket refused uploads."""
    site = rclone_site
    inos = [site.write(f"f{n}", b"x") for n in range(3)]
    context = Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))
    busy = {inos[1]}
    drain_survey = DirtySurvey(lambda ino: ino in busy, poll_seconds=0.0)
    jobs = {job.id.ino for _ in range(3) for job in drain_survey.plan(context, None).jobs}
    assert jobs == {inos[0], inos[2]}
    busy.clear()
    assert {job.id.ino for job in drain_survey.plan(context, None).jobs} == set(inos)
    site.rows("UPDATE inode SET drained_version = content_version WHERE kind = 1 RETURNING 1")
    assert drain_survey.plan(context, None).jobs == []
    assert drain_survey._out == {}
    context.database.close()


def test_the_journal_is_read_to_its_end_by_one_plan(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans are rare while large files are sent: a rename would wait behind the rows of hours."""
    monkeypatch.setattr(journal, "READ_AT_ONCE", 2)
    monkeypatch.setattr(survey, "READ_SECONDS", 60.0)
    site = rclone_site
    site.write("a.tmp", b"a")
    drain_survey, context = surveyed(site)
    for n in range(20):
        site.write(f"{n}.tmp", b"x")
    site.rename("a.tmp", "a")
    drain_survey.follow(context)
    assert len(drain_survey) == 1
    context.database.close()


def test_the_journal_is_followed_while_the_bucket_is_away(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a.tmp", b"a")
    with site.draining() as drain:
        until(lambda: site.report().get("bucket", {}).get("state") == "reachable", "it works")
        site.proxy.inject(lambda _request: True, Act.DROP, 1e9)
        site.write("b", b"b")
        until(lambda: site.report()["bucket"]["state"] == "unreachable", "the outage is seen")
        site.rename("a.tmp", "a")
        until(lambda: len(drain._survey) > 0, "the renamed file waits")


def test_files_that_need_no_upload_any_more_do_not_wait(rclone_site: Site) -> None:
    """A client deleted one, and another drain sent the other."""
    site = rclone_site
    drain_survey, context = surveyed(site)
    for path in ("deleted", "sent", "kept.tmp"):
        site.write(path, b"x")
    drain_survey.follow(context)
    assert len(drain_survey) == 2
    site.unlink("deleted")
    drain_survey.follow(context)
    assert len(drain_survey) == 1
    site.drain()
    drain_survey.follow(context)
    assert len(drain_survey) == 0
    context.database.close()


def test_a_plan_looks_at_a_bounded_number_of_files(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "PICKED_AT_ONCE", 16)
    site = rclone_site
    drain_survey, context = surveyed(site)
    for n in range(60):
        site.write(f"f{n}", b"x")
    drain_survey.follow(context)
    assert len(drain_survey) == 60
    site.rows("UPDATE inode SET drained_version = content_version WHERE kind = 1 RETURNING 1")
    assert drain_survey.plan(context, None).jobs == []
    assert len(drain_survey) == 60 - 16
    context.database.close()
