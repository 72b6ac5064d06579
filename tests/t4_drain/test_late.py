"""Requests that were not answered in time, and that reach the store after later requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gateway.catalogue.statements import STORED
from gateway.cli import status as cli
from gateway.common import clock
from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.drain.tidy.indeterminate import IndeterminateWaits
from gateway.objectstore.s3 import S3Store
from gateway.service import durability, status
from gateway.service.queue import opened
from tests.support.drain import Drain
from tests.support.drainsite import MIB, PART_BYTES, PREFIX, Site
from tests.support.s3proxy import Act, Fault
from tests.support.volumes import status_of
from tests.support.waiting import until

READ_TIMEOUT_SECONDS = 2.0
PUTS = ("PUT", "CREATE", "PART", "COMPLETE")


def lose_uploads(site: Site, times: int, **drain: int) -> Fault:
    """Hold PUTs back until the drain has given them up. Returns the fault that holds them."""
    site.values["bucket"]["read_timeout_seconds"] = READ_TIMEOUT_SECONDS
    site.configure(**drain)
    return site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD, times)


def assert_unsettled(site: Site) -> None:
    """Assert that the file "f" was sent, and that people are told why it is not durable yet."""
    facts = status_of(site.settings)
    assert (facts["dirty"]["files"], facts["unsettled"]["objects"]) == (0, 1)
    assert 0 < facts["unsettled"]["last_seconds"] <= site.settings.bucket.late_seconds
    with opened(site.settings) as context:
        reason = durability.why(context, site.attr("f").ino)
    assert "a request got no answer and may still be carried out" in reason
    lines = dict(cli.lines(status.gather(site.settings)))
    assert lines["unsettled"].startswith("1 object: a request got no answer; looked at again")


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("times", [1, 2])
def test_a_version_that_arrives_after_the_next_one_is_replaced_again(
    rclone_site: Site, times: int, processes: int
) -> None:
    """The lost try was repeated at once (times=1), or failed and left its intent (times=2)."""
    site = rclone_site
    lost = lose_uploads(site, times, processes=processes)
    site.write("f", b"old version")
    with site.draining():
        lost.wait()
        until(lambda: len(site.proxy.operations("PUT")) > 1, "it is tried again")
        if times == 1:
            until(lambda: not site.left(), "the first version is drained")
            assert_unsettled(site)
        site.write("f", b"new")
        until(lambda: site.objects() == {"f": b"new"}, "the new version is drained")
        lost.arrive()
        until(lambda: site.objects() == {"f": b"new"}, "the file is sent again")
        until(
            lambda: not site.rows("SELECT 1 FROM indeterminate_write"),
            "nothing is indeterminate any more",
        )
    assert site.left() == []


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("bytes_", [10, 2 * MIB, 2 * PART_BYTES + 1])
def test_a_request_that_the_store_did_not_take_up_is_not_indeterminate(
    rclone_site: Site, bytes_: int, processes: int
) -> None:
    """Otherwise a file would be durable minutes after its upload, whenever a store is busy."""
    site = rclone_site
    site.configure(processes=processes)
    data = os.urandom(bytes_)
    site.proxy.inject(lambda r: r.operation in PUTS, Act.FAIL, 3, 503, "SlowDown")
    site.write("f", data)
    with site.draining():
        until(lambda: site.objects() == {"f": data}, "the file is drained")
        until(lambda: not site.left(), "it is recorded")
    assert site.rows("SELECT 1 FROM indeterminate_write") == []
    with opened(site.settings) as context, context.reading() as view:
        row = view.session.one(STORED, ino=site.attr("f").ino)
    assert row is not None and row[1]


@pytest.mark.parametrize("processes", [0, 1])
def test_a_lost_request_stays_indeterminate_when_its_repetition_was_not_taken_up(
    rclone_site: Site, processes: int
) -> None:
    site = rclone_site
    lost = lose_uploads(site, 1, processes=processes)
    site.proxy.inject(lambda r: r.operation == "PUT", Act.FAIL, 1, 503, "SlowDown")
    site.write("f", b"data")
    with site.draining():
        lost.wait()
        until(lambda: site.objects() == {"f": b"data"}, "the file is drained")
        until(lambda: not site.left(), "it is recorded")
        assert_unsettled(site)
        lost.arrive()
        until(
            lambda: not site.rows("SELECT 1 FROM indeterminate_write"),
            "nothing is indeterminate any more",
        )


def test_a_version_that_arrives_after_its_file_was_deleted_goes_again(rclone_site: Site) -> None:
    site = rclone_site
    lost = lose_uploads(site, 2)
    site.write("f", b"data")
    with site.draining():
        lost.wait()
        until(lambda: len(site.proxy.operations("PUT")) > 1, "it is tried again")
        site.unlink("f")
        until(lambda: not site.left(), "everything is settled")
        lost.arrive()
        until(lambda: site.objects() == {}, "it is deleted")
    assert site.left() == []


class Clocks:
    """The clocks of the machine, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set_ns = 0
        """How far the wall clock was set ahead."""
        self.passed_ns = 0
        now_ns, monotonic_ns = clock.now_ns, clock.monotonic_ns
        monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + self.set_ns + self.passed_ns)
        monkeypatch.setattr(clock, "monotonic_ns", lambda: monotonic_ns() + self.passed_ns)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.fixture
def started(rclone_site: Site) -> Iterator[Callable[[], Drain]]:
    """Return a function that starts a drain, after the end of the one before."""
    with ExitStack() as stack:

        def start() -> Drain:
            stack.close()
            drain = Drain(rclone_site.settings)
            stack.callback(drain.close)
            return drain

        yield start


def looks(site: Site, drain: Drain) -> int:
    """Return how often a pass of a drain looks at a key."""
    site.proxy.forget()
    drain.cycle()
    return len(site.proxy.operations("HEAD"))


def is_indeterminate(site: Site) -> bool:
    return bool(site.rows("SELECT 1 FROM indeterminate_write"))


def require_an_end_in_time(site: Site, drain: Drain, clocks: Clocks) -> None:
    """Require that the look of a drain ends an indeterminate write when the whole wait has passed,
    not before."""
    assert is_indeterminate(site)
    clocks.passed_ns = int(site.settings.bucket.late_seconds * clock.NS)
    assert looks(site, drain) == 1
    assert not is_indeterminate(site)


Started = Callable[[], Drain]


def test_a_key_is_looked_at_again_when_nothing_can_arrive_any_more(
    rclone_site: Site, clocks: Clocks, started: Started
) -> None:
    """The next look comes after the time for which a request can be under way."""
    site = rclone_site
    site.write("f", b"data")
    site.drain()
    note_indeterminate(site, "f")
    drain = started()
    assert looks(site, drain) == 1
    late_ns = int(site.settings.bucket.late_seconds * clock.NS)
    assert looks(site, drain) == 0
    assert late_ns > 2 * site.settings.bucket.read_timeout_seconds * clock.NS
    clocks.passed_ns = late_ns - 15 * clock.NS
    assert looks(site, drain) == 0
    assert is_indeterminate(site)
    clocks.passed_ns = late_ns
    assert looks(site, drain) == 1
    assert not is_indeterminate(site)


# A clock that is 15 minutes off has every request refused, and nothing can be seen of an
# indeterminate write.
@pytest.mark.parametrize("step_seconds", [800, -800])
def test_a_step_of_the_clock_ends_no_indeterminate_write(
    rclone_site: Site, clocks: Clocks, started: Started, step_seconds: int
) -> None:
    """Otherwise the file would be evicted, and a late request would take the only copy."""
    site = rclone_site
    site.write("f", b"data")
    site.drain()
    note_indeterminate(site, "f")
    drain = started()
    assert [looks(site, drain), looks(site, drain)] == [1, 0]
    clocks.set_ns = step_seconds * clock.NS
    assert looks(site, drain) == 0
    # The next process does not know how long the row has been there.
    again = started()
    assert looks(site, again) == 1
    assert looks(site, again) == 0
    require_an_end_in_time(site, again, clocks)


def test_an_indeterminate_write_that_is_noted_again_waits_again(
    rclone_site: Site, clocks: Clocks, started: Started
) -> None:
    site = rclone_site
    site.write("f", b"data")
    site.drain()
    note_indeterminate(site, "f")
    drain = started()
    assert [looks(site, drain), looks(site, drain)] == [1, 0]
    clocks.passed_ns = int(site.settings.bucket.late_seconds * clock.NS)
    held = site.proxy.inject(lambda request: request.operation == "HEAD", Act.HOLD_ANSWER)
    thread = threading.Thread(target=drain.cycle)
    thread.start()
    held.wait()
    site.rows("UPDATE indeterminate_write SET check_after_ns = check_after_ns + 1 RETURNING 1")
    held.release()
    thread.join()
    assert is_indeterminate(site)


def lose_deletion(site: Site) -> Fault:
    """Hold a deletion back until the drain has given it up. Returns the fault that holds it."""
    site.values["bucket"]["read_timeout_seconds"] = READ_TIMEOUT_SECONDS
    site.configure()
    return site.proxy.inject(lambda r: r.operation == "DELETE", Act.HOLD)


def test_a_deletion_that_arrives_after_the_next_file_was_sent_does_not_take_it(
    rclone_site: Site,
) -> None:
    site = rclone_site
    site.write("f", b"old")
    site.drain()
    lost = lose_deletion(site)
    with site.draining():
        site.unlink("f")
        lost.wait()
        until(lambda: site.objects() == {}, "it is tried again")
        site.write("f", b"new")
        until(lambda: site.objects() == {"f": b"new"} and not site.left(), "the new file is sent")
        lost.arrive()
        until(lambda: site.objects() == {"f": b"new"}, "the file is sent again")
    assert site.left() == []


def test_a_deletion_of_a_killed_drain_does_not_take_the_next_file(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"old")
    site.drain()
    lost = lose_deletion(site)
    site.unlink("f")
    with site.process() as process:
        lost.wait()
        site.kill(process)
    site.write("f", b"new")
    with site.draining():
        until(lambda: site.objects() == {"f": b"new"} and not site.left(), "the new file is sent")
        lost.arrive()
        until(lambda: site.objects() == {"f": b"new"}, "the file is sent again")
    assert site.left() == []


def test_a_file_that_replaces_another_one_is_not_indeterminate(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"old")
    site.drain()
    site.write("f.new", b"new")
    site.rename("f.new", "f")
    assert site.rows("SELECT key FROM tombstone") == [(f"{PREFIX}/f",)]
    site.drain()
    assert site.objects() == {"f": b"new"}
    assert site.rows("SELECT key FROM indeterminate_write") == []


def note_indeterminate(site: Site, path: str, check_after_ns: int = 0) -> None:
    site.rows(
        "INSERT INTO indeterminate_write (key, ino, noted_ns, check_after_ns) "
        f"VALUES ('{PREFIX}/{path}', {site.attr(path).ino}, 1, {check_after_ns}) RETURNING 1"
    )


def test_a_lost_object_of_a_file_that_is_open_is_sent_after_a_close_without_writes(
    rclone_site: Site,
) -> None:
    site = rclone_site
    ino = site.write("f", b"data")
    site.drain()
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/f")
    site.namespace.open_write(ino)
    note_indeterminate(site, "f")
    site.drain()
    site.namespace.seal(ino, site.sealed_unchanged(b"data"))
    site.drain()
    assert site.objects() == {"f": b"data"}


def test_a_look_that_lies_further_ahead_than_it_can_have_been_set_is_due(
    rclone_site: Site, clocks: Clocks, started: Started
) -> None:
    """This happens after the clock went back. It is not known for how long, so the row stays."""
    site = rclone_site
    site.write("f", b"data")
    site.drain()
    note_indeterminate(site, "f", clock.now_ns() + 86_400 * clock.NS)
    drain = started()
    assert looks(site, drain) == 1
    assert looks(site, drain) == 0
    require_an_end_in_time(site, drain, clocks)


def test_indeterminate_writes_that_are_gone_are_forgotten(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"data")
    note_indeterminate(site, "f", clock.now_ns() + clock.NS)
    context = Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))
    waits = IndeterminateWaits()
    for known in (1, 0):
        with context.reading() as view:
            waits.due(view)
        assert len(waits) == known
        site.rows("DELETE FROM indeterminate_write RETURNING 1")
    context.database.close()
