"""Files that stay open are uploaded as they were at one moment, and finally as they were closed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from gateway.db.engine import Database
from gateway.drain.plan import snapshots
from gateway.drain.send import consistent_copy
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.objects import Head
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t4.snapshots import append, opened
from tests.support.waiting import background, until

AGE_SECONDS = 0.3
BLOCK_BYTES = 64 * 1024
BLOCKS = 256


@pytest.fixture
def logging_site(site: Site) -> Site:
    site.configure(max_open_age_seconds=AGE_SECONDS)
    return site


@pytest.fixture
def rclone_logging(rclone_site: Site) -> Site:
    rclone_site.configure(max_open_age_seconds=AGE_SECONDS)
    return rclone_site


def is_laid_out_well(site: Site) -> bool:
    database = Database(site.settings.database_url)
    try:
        return fsck.check(database, DataFiles(site.settings.files_dir)) == []
    finally:
        database.close()


@pytest.mark.parametrize("size", [10, 11 * MIB])
def test_a_log_gets_an_object_while_it_is_open(logging_site: Site, size: int) -> None:
    site = logging_site
    attr, data = opened(site, "run/train.log")
    first = os.urandom(size)
    append(data, first)
    with site.draining():
        until(lambda: site.objects() == {"run/train.log": first}, "a snapshot")
        metadata = site.metadata("run/train.log")
        assert metadata["content-version"] == "1"
        assert int(metadata["snapshot-ns"]) > data.stat().st_ctime_ns
        assert metadata["mtime-ns"] == str(data.stat().st_mtime_ns)
        assert site.rows("SELECT drained_version, write_open FROM inode WHERE kind = 1") == [(0, 1)]
        append(data, b"more")
        until(lambda: site.objects() == {"run/train.log": first + b"more"}, "another one")
        until(lambda: site.rows("SELECT count(*) FROM upload") == [(0,)], "it is recorded")
        append(data, b"end")
        site.seal(attr.ino, first + b"moreend")
        until(site.is_clean, "the final version is drained")
    assert site.objects() == {"run/train.log": first + b"moreend"}
    assert "snapshot-ns" not in site.metadata("run/train.log")
    assert site.multiparts() == 0
    assert is_laid_out_well(site)
    counters = site.report()["counters"]
    assert counters["snapshots"] >= 2
    assert counters["uploads"] == 1


def test_nothing_is_sent_twice_that_did_not_change(rclone_logging: Site) -> None:
    site = rclone_logging
    _attr, data = opened(site, "f.log")
    _other, later = opened(site, "g.log")
    append(data, b"data")
    with site.draining():
        until(lambda: "f.log" in site.objects(), "a snapshot")
        append(later, b"data")
        # After two more snapshots of g.log, f.log would have been sent again if it were due.
        until(lambda: "g.log" in site.objects(), "a snapshot")
        append(later, b"more")
        until(lambda: site.objects()["g.log"] == b"datamore", "another one")
    assert [r.key for r in site.proxy.operations("PUT")].count(f"{PREFIX}/f.log") == 1


def test_a_held_name_has_no_snapshot_and_nor_has_any_unless_asked_for(rclone_site: Site) -> None:
    site = rclone_site
    _attr, held = opened(site, "f.tmp")
    append(held, b"unfinished")
    _attr, data = opened(site, "f.log")
    append(data, b"data")
    site.write("closed", b"1")
    with site.draining():
        until(lambda: site.objects() == {"closed": b"1"}, "what is closed is drained")
    site.configure(max_open_age_seconds=AGE_SECONDS)
    with site.draining():
        until(lambda: site.objects() == {"closed": b"1", "f.log": b"data"}, "the snapshot")
    assert site.rows("SELECT key FROM object ORDER BY key") == [
        (f"{PREFIX}/closed",),
        (f"{PREFIX}/f.log",),
    ]


@contextmanager
def rewriting(data: Path) -> Iterator[None]:
    """Rewrite a file block by block in rounds, with a pause after every 16th round.

    The order of the blocks in round n comes from the seed n.
    """

    def write(stop: threading.Event) -> None:
        number = 1
        with data.open("r+b", buffering=0) as file:
            while not stop.is_set():
                for block in order(number):
                    os.pwrite(file.fileno(), number.to_bytes(8) * (BLOCK_BYTES // 8), block)
                number += 1
                if number % 16 == 0:
                    # The pauses grow until a copy fits into one, also on a busy machine.
                    stop.wait(0.4 + number / 200)

    with background(write):
        yield


def order(number: int) -> list[int]:
    return random.Random(number).sample(range(0, BLOCKS * BLOCK_BYTES, BLOCK_BYTES), BLOCKS)


def is_one_moment(body: bytes) -> bool:
    """Return whether the body is a state of the file at one moment.

    In such a state the first blocks of a round, in its order, are of this round, and all others of
    the round before.
    """
    numbers = {
        at: int.from_bytes(body[at : at + 8]) for at in range(0, len(body), BLOCK_BYTES)
    }  # fmt: skip
    whole = all(
        body[at : at + BLOCK_BYTES] == number.to_bytes(8) * (BLOCK_BYTES // 8)
        for at, number in numbers.items()
    )
    newest = max(numbers.values())
    done = [numbers[at] == newest for at in order(newest)]
    return whole and set(numbers.values()) <= {newest - 1, newest} and done == sorted(done)[::-1]


def test_a_file_that_is_rewritten_all_the_time_is_never_published_mixed(
    rclone_logging: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies are made so slow that the writer changes the file during about half of them."""
    site = rclone_logging
    honest = os.copy_file_range

    def slow(*arguments: int) -> int:
        time.sleep(0.002)
        return honest(*arguments)

    monkeypatch.setattr(os, "copy_file_range", slow)
    monkeypatch.setattr(consistent_copy, "CHUNK_BYTES", 4 * BLOCK_BYTES)
    _attr, data = opened(site, "f")
    append(data, bytes(BLOCKS * BLOCK_BYTES))
    seen: dict[str, bool] = {}

    def look() -> int:
        try:
            answer = site.client.get_object(Bucket=site.bucket, Key=f"{PREFIX}/f")
        except ClientError:
            return 0
        body = answer["Body"].read()
        seen[answer["ETag"]] = is_one_moment(body)
        return len(seen)

    with rewriting(data), site.draining():
        until(lambda: look() >= 8, "eight snapshots", 60)
    assert all(seen.values())


def test_a_file_that_is_never_still_is_shown_and_not_uploaded(
    rclone_logging: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_logging
    monkeypatch.setattr(snapshots, "TRIES", 3)
    # A busy machine may hold the writer up for longer than the usual time.
    monkeypatch.setattr(consistent_copy, "QUIET_NS", 20 * consistent_copy.QUIET_NS)
    _attr, data = opened(site, "f.log")

    def write(stop: threading.Event) -> None:
        while not stop.wait(0.01):
            append(data, b"line\n")

    with background(write) as stop, site.draining():
        until(lambda: site.report().get("restless_files") == 1, "it is shown")
        assert site.report()["counters"]["snapshots_missed"] >= 1
        assert site.proxy.operations("PUT") == []
        stop.set()
        until(lambda: site.objects() == {"f.log": data.read_bytes()}, "it is still now")
        until(lambda: site.report()["restless_files"] == 0, "and not shown any more")


@pytest.mark.parametrize("after", ["nothing", "append", "seal", "rename", "unlink"])
@pytest.mark.parametrize(("size", "operation"), [(9, "PUT"), (11 * MIB, "PART"),
                                                 (11 * MIB, "COMPLETE")])  # fmt: skip
def test_killed_during_a_snapshot(
    rclone_logging: Site, size: int, operation: str, after: str
) -> None:
    site = rclone_logging
    attr, data = opened(site, "f")
    expected = os.urandom(size)
    append(data, expected)
    when = Act.HOLD if operation == "PART" else Act.HOLD_ANSWER
    held = site.proxy.inject(lambda r: r.operation == operation, when)
    with site.process() as process:
        held.wait()
        site.kill(process)
    held.discard()
    name = "f"
    if after == "append":
        append(data, b"more")
        expected += b"more"
    elif after == "rename":
        site.rename("f", "g")
        name = "g"
    elif after == "unlink":
        site.unlink("f")
    elif after == "seal":
        site.seal(attr.ino, expected)
    if after in ("seal", "unlink"):
        site.drain()
        assert site.objects() == ({name: expected} if after == "seal" else {})
    with site.draining():
        if after not in ("seal", "unlink"):
            until(lambda: site.objects() == {name: expected}, "a snapshot")
            until(lambda: site.rows("SELECT count(*) FROM upload") == [(0,)], "it is recorded")
            site.seal(attr.ino, expected)
        until(site.is_clean, "everything is drained")
    assert site.objects() == ({} if after == "unlink" else {name: expected})
    if after != "unlink":
        assert "snapshot-ns" not in site.metadata(name)
    assert site.multiparts() == 0
    assert is_laid_out_well(site)
    names = {path.name for path in site.settings.files_dir.glob("*/*") if path.is_file()}
    assert names <= {f"{attr.ino}.{attr.epoch}"}, "no copy is left"


def test_the_upload_of_a_snapshot_is_not_gone_on_with(moto_site: Site) -> None:
    """Its metadata marks a snapshot, and would mark the closed version as one."""
    site = moto_site
    site.configure(max_open_age_seconds=AGE_SECONDS, part_concurrency=1)
    attr, data = opened(site, "f")
    body = os.urandom(11 * MIB)
    append(data, body)
    held = site.proxy.inject(lambda r: r.query.get("partNumber") == "3", Act.HOLD)
    with site.process() as process:
        held.wait()
        site.kill(process)
    held.discard()
    assert site.multiparts() == 1
    site.seal(attr.ino, body)
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"f": body}
    assert [len(site.proxy.operations(name)) for name in ("ABORT", "CREATE", "COMPLETE")] == [1] * 3
    assert "snapshot-ns" not in site.metadata("f")


def test_a_snapshot_is_not_taken_for_the_final_version(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that is gone may have been completed.

    Where ETags prove nothing (SSE-KMS, which no server here has), size and metadata decide. A
    snapshot can have the same size and metadata.
    """
    site = rclone_site
    body = os.urandom(11 * MIB)
    site.write("f", body)

    def gone(
        store: S3Store,
        key: str,
        upload_id: str,
        _parts: object,
        size: int,
        sent: dict[str, str],
        _there: str | None,
    ) -> Head:
        monkeypatch.undo()
        store.abort(key, upload_id)
        return Head(size, "opaque", {**sent, "snapshot-ns": "1"}, True)

    monkeypatch.setattr(S3Store, "complete", gone)
    site.drain()
    assert site.rows("SELECT count(*) FROM object") == [(0,)]
    site.drain()
    assert site.objects() == {"f": body}


@pytest.mark.parametrize("change", ["seal", "unlink", "rename", "hold"])
def test_what_happens_to_a_file_during_its_snapshot(rclone_logging: Site, change: str) -> None:
    site = rclone_logging
    attr, data = opened(site, "f")
    body = os.urandom(11 * MIB)
    append(data, body)
    held = site.proxy.inject(lambda r: r.operation == "PART", Act.HOLD)
    with site.draining():
        held.wait()
        if change == "seal":
            site.seal(attr.ino, body)
        elif change == "unlink":
            site.unlink("f")
        else:
            site.rename("f", "g" if change == "rename" else "f.tmp")
        held.release()
        if change == "rename":
            until(lambda: site.objects() == {"g": body}, "a snapshot under the new name")
        until(lambda: site.rows("SELECT count(*) FROM upload") == [(0,)], "no intent is left")
        until(lambda: site.multiparts() == 0, "no upload is left")
        if change == "seal":
            until(site.is_clean, "the final version is drained")
        elif change == "rename":
            site.seal(attr.ino, body)
            until(site.is_clean, "the final version is drained")
    wanted = {"seal": {"f": body}, "rename": {"g": body}}
    assert site.objects() == wanted.get(change, {})
    # A snapshot that is not wanted any more is not completed.
    assert len(site.proxy.operations("COMPLETE")) == {"seal": 1, "rename": 2}.get(change, 0)
    if change in wanted:
        assert "snapshot-ns" not in site.metadata("f" if change == "seal" else "g")


def test_a_snapshot_of_a_file_that_was_renamed_moves_with_the_next(logging_site: Site) -> None:
    site = logging_site
    attr, data = opened(site, "old.log")
    append(data, b"one")
    with site.draining():
        until(lambda: site.objects() == {"old.log": b"one"}, "a snapshot")
        until(lambda: site.rows("SELECT count(*) FROM upload") == [(0,)], "it is recorded")
        site.rename("old.log", "new.log")
        other, fresh = opened(site, "old.log")
        append(fresh, b"fresh")
        append(data, b"two")
        wanted = {"new.log": b"onetwo", "old.log": b"fresh"}
        until(lambda: site.objects() == wanted, "each has its key")
        site.seal(attr.ino, b"onetwo")
        site.unlink("old.log")
        until(site.is_clean, "everything is drained")
    assert site.objects() == {"new.log": b"onetwo"}
    assert other.ino != attr.ino
