"""The evictor: it keeps room on the disk, in its order, and evicts nothing on missing evidence."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cache.evictor import LOOK_SECONDS, RETRY_SECONDS, Evictor, WriteBurst
from gateway.common import clock
from gateway.db.engine import Database
from gateway.namespace import data_files, fsck
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.s3 import S3Store
from gateway.rpc.frames import Op, RpcRequest
from gateway.service import status
from tests.support.s3proxy import Act
from tests.support.t8.evicting import DISK_BYTES, FILE_BYTES, HOUR_NS, Cold


def evicted(site: Cold) -> list[int]:
    """Return the files whose eviction was requested, in order."""
    return [request.ino for request in site.asked if request.op is Op.EVICT]


def heads(site: Cold) -> list[str]:
    return [request.key for request in site.proxy.requests if request.operation == "HEAD"]


class Untouched(Database):
    """A database that must not be used."""

    def reader(self) -> Any:
        raise AssertionError("the database was used below the watermark")


def test_above_the_watermark_whole_old_directories_go_first(cold: Cold) -> None:
    newest = cold.save("run3", 8, hours_ago=1)
    oldest = cold.save("run1", 8, hours_ago=9)
    middle = cold.save("run2", 8, hours_ago=8)
    idle = Evictor(
        cold.settings, Untouched(cold.settings.database_url), S3Store(cold.settings), cold.control
    )
    assert cold.used_bytes() == pytest.approx(0.75 * DISK_BYTES, rel=0.02)
    assert idle.step() == LOOK_SECONDS
    more = cold.save("run4", 6, hours_ago=0.5)
    # A single file of the oldest directory was read an hour ago, and makes it the second oldest.
    cold.read(oldest[3], hours_ago=1.5)
    used = cold.used_bytes()
    assert used > 0.8 * DISK_BYTES
    working = cold.evictor()
    assert working.step() == LOOK_SECONDS
    # The oldest directory is gone; of the next one as many as are needed, the longest unused first.
    files = -(-(used - DISK_BYTES // 2) // FILE_BYTES)
    rest = [ino for ino in oldest if ino != oldest[3]]
    assert evicted(cold) == [*middle, *rest[: files - 8]]
    assert cold.absent() == set(evicted(cold))
    assert cold.used_bytes() <= DISK_BYTES // 2
    assert cold.run("SELECT * FROM eviction") == []
    assert working.counts["evicted"] == files
    assert working.counts["evicted_bytes"] == files * FILE_BYTES
    # Below the mark again, the next look is at the disk only.
    assert working.step() == LOOK_SECONDS
    assert len(evicted(cold)) == files
    assert not cold.absent() & {*newest, *more}
    database = Database(cold.settings.database_url)
    assert fsck.check(database, DataFiles(cold.settings.files_dir)) == []


def test_an_object_that_is_not_what_was_recorded_keeps_its_file(
    cold: Cold, caplog: pytest.LogCaptureFixture
) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    deleted, replaced, other = cold.save("run", 3, hours_ago=1)
    cold.save("more", 1, hours_ago=0.1)
    cold.client.delete_object(Bucket=cold.bucket, Key="team/run/run/f00")
    cold.client.put_object(Bucket=cold.bucket, Key="team/run/run/f01", Body=b"x" * FILE_BYTES)
    working = cold.evictor()
    working.step()
    assert deleted not in cold.absent()
    assert replaced not in cold.absent()
    assert other in cold.absent()
    assert {deleted, replaced}.isdisjoint(evicted(cold))
    assert working.counts["differs"] == 2
    assert "team/run/run/f00 is missing" in caplog.text
    assert "team/run/run/f01 is not what was recorded" in caplog.text
    # They are not asked for again at once.
    cold.proxy.forget()
    working._look_at = 0.0
    working.step()
    assert heads(cold) == []
    assert working.counts["differs"] == 2


def test_a_bucket_that_does_not_answer_evicts_nothing(cold: Cold) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    cold.save("run", 4, hours_ago=1)
    cold.proxy.inject(lambda request: request.operation == "HEAD", Act.FAIL, math.inf)
    assert cold.evictor().step() == RETRY_SECONDS
    assert cold.absent() == set()


def test_what_is_kept_or_not_at_home_stays(cold: Cold) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0, keep=["production/*"], keep_seconds=600.0)
    kept = cold.save("production/a", 1, hours_ago=5)
    fresh = cold.save("fresh", 1, hours_ago=0.1)
    renamed = cold.save("old/a/b", 1, hours_ago=5) + cold.save("there/a", 1, hours_ago=5)
    moved = cold.save("here", 1, hours_ago=5)
    linked = cold.save("linked", 1, hours_ago=5)
    gone = cold.save("gone", 2, hours_ago=5)
    cold.rename("old", "new")
    cold.rename("there", "elsewhere")
    cold.rename("elsewhere", "there")
    cold.rename("here/f00", "here/other")
    # Nothing says that the object has a wrong key, as after a restored backup.
    cold.run("DELETE FROM rekey WHERE ino = :ino", ino=moved[0])
    cold.link("linked/f00", "production/second")
    cold.link("gone/f00", "a second name")
    dirty = cold.write("dirty", b"x" * FILE_BYTES)
    cold.evictor().step()
    assert cold.absent() == set(gone)
    assert {*kept, *fresh, *renamed, *moved, *linked, dirty}.isdisjoint(evicted(cold))
    # When the bucket has followed the rename, and nothing is fresh any more, they go.
    cold.drain()
    cold.configure("cache", keep_seconds=0.0)
    cold.evictor().step()
    assert cold.absent() == {*gone, *renamed, *fresh, dirty}


def test_what_is_pinned_stays(cold: Cold) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    tree = cold.save("runs/a/deep", 2, hours_ago=5)
    file, other = cold.save("runs/b", 2, hours_ago=5)
    linked, late = cold.save("runs/c", 2, hours_ago=5)
    cold.link("runs/c/f00", "runs/a/second name")
    cold.run("INSERT INTO pin VALUES (:ino, '', 'me', 1)", ino=cold.attr("runs/a").ino)
    cold.run("INSERT INTO pin VALUES (:ino, '', 'me', 1)", ino=file)
    # A pin follows its directory.
    cold.rename("runs/a", "kept")
    cold.drain()
    working = cold.evictor()

    def pinned(requests: list[RpcRequest]) -> None:
        # A person is faster than the request that follows the look.
        if [request for request in requests if request.ino == late]:
            cold.run("INSERT INTO pin VALUES (:ino, '', 'me', 1)", ino=late)

    cold.before_asked = pinned
    working.step()
    assert set(evicted(cold)) == {other, late}
    assert cold.absent() == {other}
    assert working.counts["pinned"] == 1
    cold.run("DELETE FROM pin WHERE ino <> :ino", ino=file)
    cold.before_asked = lambda _requests: None
    cold.evictor().step()
    assert cold.absent() == {*tree, other, linked, late}


def test_top_directories_have_limits_of_their_own(cold: Cold) -> None:
    cold.configure("cache", limits=["scratch=3MiB", "missing=1MiB"])
    scratch = cold.save("scratch/a/b", 5, hours_ago=2) + cold.save("scratch/c", 3, hours_ago=1)
    cold.save("other", 8, hours_ago=9)
    working = cold.evictor()
    assert working.step() == LOOK_SECONDS
    # 4 MiB are there, 0.9 of 3 MiB may stay.
    assert cold.absent() == set(scratch[:3])
    asked = len(cold.asked)
    cold.save("scratch/d", 4, hours_ago=0)
    working.step()
    assert len(cold.asked) == asked, "the next count is due in a minute"


def test_a_directory_that_cannot_shrink_to_its_limit_keeps_nothing_else(cold: Cold) -> None:
    cold.configure("cache", evict_from=0.6, evict_to=0.5, limits=["production=1MiB"])
    cold.configure("cache", keep=["production/*"])
    cold.save("production", 14, hours_ago=9)
    others = cold.save("other", 6, hours_ago=1)
    files = -(-(cold.used_bytes() - DISK_BYTES // 2) // FILE_BYTES)
    cold.evictor().step()
    # 10 MiB are used, 8 may be. The 6 MiB above the limit stay.
    assert cold.absent() == set(others[:files])


def test_blocks_of_absent_files_that_nobody_uses_go_first(cold: Cold) -> None:
    old, used, wanted = cold.save("run", 3, hours_ago=9)
    fresh = cold.save("fresh", 1, hours_ago=9)[0]
    with cold.control() as control:
        control.run([RpcRequest(Op.EVICT, ino, change=1) for ino in (old, used, wanted, fresh)])
    absent = cold.absent()
    cold.run("DELETE FROM eviction")
    before = cold.write("young", os.urandom(FILE_BYTES))
    cold.drain()
    for ino in absent:
        [(epoch,)] = cold.run("SELECT epoch FROM inode WHERE ino = :ino", ino=ino)
        path = cold.namespace.files.path(ino, epoch)
        path.write_bytes(os.urandom(FILE_BYTES))
        if ino != fresh:
            os.utime(path, ns=(0, clock.now_ns() - 3600 * clock.NS))
        insert = "INSERT INTO present_blocks VALUES (:ino, :epoch, 4194304, :blocks)"
        cold.run(insert, ino=ino, epoch=epoch, blocks=b"\1")
    cold.read(used, hours_ago=0)
    cold.run("INSERT INTO warm_request VALUES (:ino, 1)", ino=wanted)
    cold.asked.clear()
    cold.configure("cache", evict_from=0.05, evict_to=0.0)
    cold.evictor().step()
    assert evicted(cold) == [old, before]
    assert not any(cold.settings.files_dir.glob(f"*/{old}.*"))


def test_blocks_that_a_killed_hydrator_did_not_record_are_evicted(cold: Cold) -> None:
    left, fresh, empty = inos = cold.save("run", 3, hours_ago=9)
    with cold.control() as control:
        control.run([RpcRequest(Op.EVICT, ino, change=1) for ino in inos])
    epochs = dict(cold.run("SELECT ino, epoch FROM inode WHERE kind = 1"))
    cold.run("DELETE FROM eviction")
    before = cold.write("young", os.urandom(FILE_BYTES))
    cold.write("kept", os.urandom(FILE_BYTES))
    cold.drain()
    for ino in (left, fresh):
        path = cold.namespace.files.path(ino, epochs[ino])
        path.write_bytes(os.urandom(FILE_BYTES))
        if ino == left:
            os.utime(path, ns=(0, clock.now_ns() - 3600 * clock.NS))
    cold.namespace.files.path(empty, epochs[empty] - 1).write_bytes(b"of an earlier epoch")
    used_bytes = cold.used_bytes()
    cold.asked.clear()
    cold.configure("cache", evict_from=0.05, evict_to=0.0, keep=["kept"])
    evictor = cold.evictor()
    evictor.step()
    evictor.step()
    assert evicted(cold) == [before, left]
    assert cold.used_bytes() <= used_bytes - 2 * FILE_BYTES
    # What may still be written to stays, and so does a map that is there.
    assert cold.namespace.files.path(fresh, epochs[fresh]).exists()
    query = "SELECT ino, epoch, block_bytes, blocks FROM present_blocks"
    assert cold.run(query) == [(fresh, epochs[fresh], 4194304, b"\0")]
    cold.run("UPDATE present_blocks SET blocks = :blocks", blocks=b"\1")
    cold.write("full", os.urandom(2 * FILE_BYTES))
    cold.evictor().step()
    assert cold.run(query) == [(fresh, epochs[fresh], 4194304, b"\1")]
    assert cold.run("SELECT epoch FROM inode WHERE ino = :ino", ino=empty) == [(epochs[empty],)]


def unmounted(site: Cold) -> None:
    (site.settings.files_dir / data_files.NAME).unlink()


def foreign(site: Cold) -> None:
    path = site.settings.files_dir / data_files.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "gateway": "00" * 16}))


@pytest.mark.parametrize("break_", [unmounted, foreign])
def test_the_disk_of_somebody_else_is_left_alone(cold: Cold, break_: Any) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    cold.save("run", 4, hours_ago=1)
    before = (cold.settings.files_dir / data_files.NAME).read_text()
    working = cold.evictor()

    @contextmanager
    def trusting() -> Iterator[Any]:
        """Open the control socket of a server that has not noticed."""
        (cold.settings.files_dir / data_files.NAME).write_text(before)
        with cold.control() as control:
            yield control

    working._open_control = trusting
    break_(cold)
    assert working.step() == RETRY_SECONDS
    assert cold.asked == []
    (cold.settings.files_dir / data_files.NAME).write_text(before)
    assert cold.absent() == set()


def test_room_for_the_next_save_is_made_before_it(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.configure("cache", evict_from=0.8, evict_to=0.7)
    working = cold.evictor()
    working.step()
    cold.save("save1", 12, hours_ago=5)  # 6 MiB
    assert working.step() == LOOK_SECONDS
    assert working._burst.largest_bytes == pytest.approx(12 * FILE_BYTES, rel=0.05)
    assert cold.absent() == set()
    # After a restart the last save is still known: the next one needs as much below 14.4 MiB.
    now = clock.monotonic_seconds()
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now + 700)
    again = cold.evictor()
    told = status.evicting(cold.settings)
    assert told is not None and told.is_early
    assert told.above == pytest.approx(0.9 - 12 * FILE_BYTES / DISK_BYTES, abs=0.05)
    assert told.down_to < told.above < 0.8
    saved = cold.save("save2", 8, hours_ago=1)  # 4 MiB more, which fit
    again.step()
    assert cold.used_bytes() < 0.7 * DISK_BYTES
    assert cold.absent() != set()
    assert cold.absent().isdisjoint(saved)
    assert cold.used_bytes() <= 0.9 * DISK_BYTES - 12 * FILE_BYTES


def test_a_save_as_large_as_the_disk_does_not_empty_it(cold: Cold) -> None:
    cold.configure("cache", evict_from=0.8, evict_to=0.7)
    # Below half of the watermark, 6.4 MiB, everything stays.
    small = cold.save("small", 8, hours_ago=9)
    working = cold.evictor()
    working._burst._peaks = {clock.now_ns() // HOUR_NS: 2 * DISK_BYTES}
    assert working.step() == LOOK_SECONDS
    assert cold.absent() == set()
    large = cold.save("large", 8, hours_ago=1)
    working.step()
    margin = DISK_BYTES // 50
    assert 0.4 * DISK_BYTES - margin - FILE_BYTES <= cold.used_bytes() <= 0.4 * DISK_BYTES
    assert cold.absent() >= set(small[:4])
    assert cold.absent().isdisjoint(large)


def test_peaks_are_forgotten_after_a_day_and_a_lost_file_means_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "growth.json"
    times = [0.0, 1_700_000_000 * clock.NS]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: times[0])
    monkeypatch.setattr(clock, "now_ns", lambda: times[1])
    burst = WriteBurst(path)
    assert burst.largest_bytes == 0
    for seconds, written in ((0, 100), (300, 150), (700, 160), (1400, 160)):
        times[0] = float(seconds)
        burst.saw(written)
    assert burst.largest_bytes == 50
    assert WriteBurst(path).largest_bytes == 50
    times[1] += 23 * 3600 * clock.NS
    burst.saw(160)
    assert burst.largest_bytes == 50
    times[1] += 2 * 3600 * clock.NS
    burst.saw(160)
    assert burst.largest_bytes == 0
    path.write_text("{")
    assert WriteBurst(path).largest_bytes == 0
