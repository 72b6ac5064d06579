"""The scrub: each kind of damage on either side is found, and healed or named."""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.common import clock, failpoints
from gateway.common.errors import IdentityError, OtherOwner
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.recovery import scrub as scrub_module
from gateway.recovery import scrub_reading
from gateway.recovery.scrub_rows import ScrubFile, ScrubObject, ScrubRows
from gateway.rpc.frames import RpcReply, RpcRequest
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t12.scrub import Scrubbed, clean, everything, finish

context = multiprocessing.get_context("fork")
NOTHING = {"found": 0, "healed": 0, "damaged": 0}
HEALED = {"found": 1, "healed": 1, "damaged": 0}
DAMAGED = {"found": 1, "healed": 0, "damaged": 1}
Damage = Callable[[Scrubbed, int], None]


@pytest.fixture
def each(each_site: Site) -> Scrubbed:
    return Scrubbed(each_site)


@pytest.fixture
def one(rclone_site: Site) -> Scrubbed:
    return Scrubbed(rclone_site)


@pytest.fixture
def moto_one(moto_site: Site) -> Scrubbed:
    return Scrubbed(moto_site)


def counted(found: dict[str, int]) -> dict[str, int]:
    return {name: found[name] for name in NOTHING}


LOCAL: dict[str, Damage] = {
    "flipped": Scrubbed.flip,
    "truncated": Scrubbed.truncate,
    "missing": Scrubbed.remove,
}


@pytest.mark.parametrize("damage", LOCAL)
def test_a_bad_data_file_is_fetched_again(each: Scrubbed, damage: str) -> None:
    ino, _data = clean(each)
    other, _ = clean(each, "run/b")
    LOCAL[damage](each, ino)
    bad = None if damage == "missing" else each.path(ino).read_bytes()
    assert counted(each.run("local")) == HEALED
    assert each.is_absent(ino) and each.is_wanted(ino) and each.damage(ino) is None
    assert each.aside() == ([] if bad is None else [f"{ino}.0"])
    if bad is not None:
        assert (each.site.namespace.files.aside / f"{ino}.0").read_bytes() == bad
    assert not each.is_absent(other)
    assert each.run("local")["files"] == 1


def test_a_data_file_that_cannot_be_read_is_fetched_again(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino, _data = clean(one, size=3 * MIB)
    honest = os.preadv

    def failing(fd: int, buffers: list[Any], offset: int) -> int:
        if offset >= MIB:
            raise OSError(errno.EIO, "Input/output error")
        return honest(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    assert counted(one.run("local")) == HEALED
    assert one.is_absent(ino) and one.is_wanted(ino)


def test_other_errors_say_nothing_of_the_bytes(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino, _data = clean(one)

    def failing(_fd: int, _buffers: list[Any], _offset: int) -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", failing)
        scrub = one.scrub("local")
        assert scrub.step() == scrub_module.RETRY_SECONDS
    assert not one.is_absent(ino) and one.control.asked == []
    finish(scrub)
    assert scrub.counts()["found"] == 0


def test_each_kind_of_checksum_is_compared(one: Scrubbed) -> None:
    """Files without block digests are compared with the checksum of the whole."""
    forms = {}
    one.site.configure("drain", part_bytes=5 * MIB)
    for name, size in (("small", 70_000), ("parts", 12 * MIB + 77)):
        ino, data = clean(one, name, size)
        [(checksum,)] = one.rows("SELECT checksum FROM object WHERE ino = :ino", ino=ino)
        forms[checksum.partition(":")[0]] = (ino, data)
    assert set(forms) == {"md5", "md5-parts"}
    one.rows("DELETE FROM block_digest")
    assert counted(one.run("local")) == NOTHING
    for kind, (ino, data) in forms.items():
        one.flip(ino, len(data) - 1)
        assert counted(one.run("local")) == DAMAGED, kind
        assert "has other bytes than were sealed" in (one.damage(ino) or "")
        assert not one.is_absent(ino), "no digests to verify the object by"


@pytest.mark.parametrize("damage", LOCAL)
def test_what_only_the_disk_has_is_damaged_and_stays(each: Scrubbed, damage: str) -> None:
    data = os.urandom(50_000)
    ino = each.site.write("run/dirty", data)
    each.seal_digest(ino, data)
    assert counted(each.run("local")) == NOTHING
    LOCAL[damage](each, ino)
    left = None if damage == "missing" else each.path(ino).read_bytes()
    assert counted(each.run("local")) == DAMAGED
    assert "the bucket does not have this version" in (each.damage(ino) or "")
    assert not each.is_absent(ino) and each.aside() == []
    assert left is None or each.path(ino).read_bytes() == left
    each.site.drain()
    assert each.site.objects() == {}


def test_a_file_without_a_checksum_is_left_alone(one: Scrubbed) -> None:
    ino = one.site.write("run/dirty", b"abc")
    one.flip(ino, 1)
    assert one.run("local")["files"] == 0
    assert one.control.asked == []


def test_a_difference_that_one_reading_finds_is_none(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino, data = clean(one)
    honest, readings = os.preadv, []

    def once_wrong(fd: int, buffers: list[Any], offset: int) -> int:
        count = honest(fd, buffers, offset)
        readings.append(offset)
        if len(readings) == 1:
            buffers[0][7] ^= 1
        return count

    monkeypatch.setattr(os, "preadv", once_wrong)
    assert counted(one.run("local")) == NOTHING
    assert len(readings) == 2 and not one.is_absent(ino)
    assert one.path(ino).read_bytes() == data


def rewrite(scrubbed: Scrubbed, ino: int) -> None:
    scrubbed.site.write("run/a", b"newer")


def open_for_writing(scrubbed: Scrubbed, ino: int) -> None:
    scrubbed.site.namespace.open_write(ino)


def rename(scrubbed: Scrubbed, ino: int) -> None:
    scrubbed.site.rename("run/a", "run/c")


def evict(scrubbed: Scrubbed, ino: int) -> None:
    scrubbed.evict(ino)


def delete(scrubbed: Scrubbed, ino: int) -> None:
    scrubbed.site.unlink("run/a")


CHANGES: list[Damage] = [rewrite, open_for_writing, rename, evict, delete]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_nothing_is_done_to_a_file_that_changes_before_the_second_look(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch, change: Damage
) -> None:
    ino, _data = clean(one)
    one.flip(ino)
    looks: list[int] = []
    look = ScrubRows.file

    def changed(rows: ScrubRows, ino: int) -> ScrubFile | None:
        looks.append(ino)
        if len(looks) == 2:
            change(one, ino)
        return look(rows, ino)

    monkeypatch.setattr(ScrubRows, "file", changed)
    assert counted(one.run("local")) == NOTHING
    assert len(looks) == 2 and one.control.asked == [] and one.aside() == []


@pytest.mark.parametrize(
    "change", [rewrite, open_for_writing, evict, delete], ids=lambda change: change.__name__
)
def test_the_server_refuses_what_changes_after_the_second_look(
    each: Scrubbed, monkeypatch: pytest.MonkeyPatch, change: Damage
) -> None:
    ino, _data = clean(each)
    each.flip(ino)
    run = each.control.run

    def changed(asked: Sequence[RpcRequest]) -> list[RpcReply]:
        change(each, ino)
        return run(asked)

    monkeypatch.setattr(each.control, "run", changed)
    assert counted(each.run("local")) == NOTHING
    assert len(each.control.asked) == 1 and each.aside() == [] and each.damage(ino) is None


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_local_copy_is_not_given_up_for_an_object_that_is_not_there(
    one: Scrubbed, is_gone: bool
) -> None:
    ino, _data = clean(one)
    one.flip(ino)
    bad = one.path(ino).read_bytes()
    if is_gone:
        one.delete("run/a")
    else:
        one.put("run/a", b"another's")
    assert counted(one.run("local")) == DAMAGED
    assert not one.is_absent(ino) and one.path(ino).read_bytes() == bad
    assert f"its object {PREFIX}/run/a is" in (one.damage(ino) or "")
    # The bad bytes are not sent either.
    one.rows("UPDATE inode SET drained_version = 0 WHERE ino = :ino", ino=ino)
    one.site.drain()
    assert one.site.objects() == ({} if is_gone else {"run/a": b"another's"})


def test_a_data_file_that_is_newer_than_its_row_is_not_given_up(one: Scrubbed) -> None:
    """The database may be a backup: these bytes are then the newest."""
    ino, _data = clean(one)
    one.flip(ino)
    os.utime(one.path(ino))
    assert counted(one.run("local")) == DAMAGED
    assert one.control.asked == [] and not one.is_absent(ino) and one.damage(ino) is None


def test_while_the_bucket_is_away_nothing_is_given_up(one: Scrubbed) -> None:
    ino, _data = clean(one)
    one.flip(ino)
    away = one.site.proxy.inject(lambda _request: True, Act.FAIL, math.inf, status=503)
    scrub = one.scrub("local")
    assert scrub.step() == scrub_module.RETRY_SECONDS
    assert not one.is_absent(ino) and scrub.counts()["found"] == 0
    away.release()
    finish(scrub)
    assert one.is_absent(ino) and scrub.counts()["healed"] == 1


def test_a_request_that_was_given_up_is_waited_for(one: Scrubbed) -> None:
    ino, _data = clean(one)
    one.flip(ino)
    values = {"key": f"{PREFIX}/run/a", "ino": ino}
    one.rows("INSERT INTO indeterminate_write VALUES (:key, :ino, 1, 2)", **values)
    scrub = one.scrub("local")
    assert scrub.step() == scrub_module.RETRY_SECONDS
    assert not one.is_absent(ino) and one.control.asked == []
    one.rows("DELETE FROM indeterminate_write")
    finish(scrub)
    assert one.is_absent(ino)


# Objects, by what the store tells of them.


def test_a_missing_object_is_sent_again(each: Scrubbed) -> None:
    ino, data = clean(each)
    clean(each, "run/b")
    each.delete("run/a")
    assert counted(each.run("objects")) == HEALED
    each.site.drain()
    assert each.site.objects()["run/a"] == data
    assert counted(each.run("objects")) == NOTHING
    assert each.damage(ino) is None


def test_an_object_of_ours_that_is_wrong_is_sent_again(one: Scrubbed) -> None:
    _ino, data = clean(one)
    one.put("run/a", b"wrong", one.site.metadata("run/a"))
    assert counted(one.run("objects")) == HEALED
    one.site.drain()
    assert one.site.objects()["run/a"] == data


def test_an_object_of_others_is_not_replaced(one: Scrubbed) -> None:
    ino, _data = clean(one)
    one.put("run/a", b"another's")
    one.site.proxy.forget()
    assert counted(one.run("objects")) == DAMAGED
    one.site.drain()
    assert one.site.objects() == {"run/a": b"another's"}
    assert one.damage(ino) is None and writes(one) == []


@pytest.mark.parametrize(
    ("name", "value"), [("content-version", "9"), ("ino", "4711"), ("volume", "ab" * 8)]
)
def test_an_object_that_is_newer_or_another_files_is_not_replaced(
    one: Scrubbed, name: str, value: str
) -> None:
    """The database may be older than the bucket."""
    clean(one)
    one.put("run/a", b"newer", {**one.site.metadata("run/a"), name: value})
    assert counted(one.run("objects")) == DAMAGED
    one.site.drain()
    assert one.site.objects() == {"run/a": b"newer"}


def test_bad_local_bytes_are_not_sent_for_a_missing_object(one: Scrubbed) -> None:
    ino, _data = clean(one)
    one.delete("run/a")
    one.flip(ino)
    assert counted(one.run("objects")) == DAMAGED
    assert "is missing, and bytes 0 to" in (one.damage(ino) or "")
    one.site.drain()
    assert one.site.objects() == {}


def test_an_absent_file_without_its_object_is_damaged_until_that_is_back(each: Scrubbed) -> None:
    ino, data = clean(each)
    metadata = each.site.metadata("run/a")
    each.evict(ino)
    each.delete("run/a")
    assert counted(each.run("objects")) == DAMAGED
    assert each.damage(ino) == (
        f"object {PREFIX}/run/a is missing, and its bytes are not on the local disk"
    )
    assert counted(each.run("objects")) == DAMAGED, "as long as it is so"
    each.put("run/a", data, metadata)
    assert counted(each.run("objects")) == HEALED
    assert each.damage(ino) is None


def test_an_older_version_of_an_object_is_fetched(moto_one: Scrubbed) -> None:
    site = moto_one.site
    site.client.put_bucket_versioning(
        Bucket=site.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    ino, _data = clean(moto_one)
    moto_one.evict(ino)
    moto_one.delete("run/a")
    assert counted(moto_one.run("objects")) == HEALED
    assert moto_one.damage(ino) is None and moto_one.is_wanted(ino)


def test_a_bucket_that_is_gone_damages_no_file(one: Scrubbed) -> None:
    ino, _data = clean(one)
    one.evict(ino)
    head = one.site.proxy.inject(
        lambda request: request.operation == "HEAD", Act.FAIL, math.inf, status=404
    )
    every = one.site.proxy.inject(
        lambda _one: True, Act.FAIL, math.inf, status=404, code="NoSuchBucket"
    )
    scrub = one.scrub("objects")
    assert scrub.step() == scrub_module.RETRY_SECONDS
    assert one.damage(ino) is None
    head.release()
    every.release()
    finish(scrub)
    assert scrub.counts()["found"] == 0


@pytest.mark.parametrize("at_look", [2, 3])
def test_an_object_whose_file_changes_meanwhile_is_left_to_the_drain(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch, at_look: int
) -> None:
    ino, _data = clean(one)
    one.delete("run/a")
    look = ScrubRows.file
    looks: list[int] = []

    def changed(rows: ScrubRows, at: int) -> ScrubFile | None:
        looks.append(at)
        if len(looks) == at_look:
            rewrite(one, ino)
        return look(rows, at)

    monkeypatch.setattr(ScrubRows, "file", changed)
    assert counted(one.run("objects")) == NOTHING
    assert one.rows("SELECT key FROM indeterminate_write") == []
    one.site.drain()
    assert one.site.objects() == {"run/a": b"newer"}


def test_an_object_that_moves_meanwhile_is_not_missing(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino, _data = clean(one)
    one.evict(ino)
    one.delete("run/a")
    look, looks = ScrubRows.object, []

    def moved(rows: ScrubRows, ino: int) -> ScrubObject | None:
        looks.append(ino)
        if len(looks) == 2:
            one.rows("UPDATE object SET key = 'elsewhere'")
        return look(rows, ino)

    monkeypatch.setattr(ScrubRows, "object", moved)
    assert counted(one.run("objects")) == NOTHING
    assert len(looks) == 2 and one.damage(ino) is None


def test_orders_to_the_drain_are_only_about_what_was_seen(each: Scrubbed) -> None:
    """A row that changed after the last look is not touched."""
    ino, _data = clean(each)
    rows = ScrubRows(Database(each.site.settings.database_url))
    stored = rows.object(ino)
    assert stored is not None
    for other in (
        stored._replace(etag="other"),
        stored._replace(key="other"),
        stored._replace(object_version=9),
    ):
        assert not rows.look_at(other) and not rows.send_again(other, 0)
    assert not rows.send_again(stored, epoch=1)
    each.rows("UPDATE inode SET write_open = 1 WHERE ino = :ino", ino=ino)
    assert not rows.send_again(stored, 0)
    each.rows("UPDATE inode SET write_open = 0 WHERE ino = :ino", ino=ino)
    values = {"key": stored.key, "ino": ino}
    each.rows("INSERT INTO indeterminate_write VALUES (:key, :ino, 1, 2)", **values)
    assert not rows.look_at(stored) and not rows.send_again(stored, 0)
    each.rows("DELETE FROM indeterminate_write")
    before = each.rows("SELECT drained_version FROM inode WHERE ino = :ino", ino=ino)
    assert before[0][0] > 0
    assert rows.send_again(stored, 0) and not rows.send_again(stored, 0)
    assert rows.look_at(stored) and not rows.look_at(stored)


@pytest.mark.parametrize("kind", ["local", "objects", "deep"])
def test_nothing_is_done_in_a_bucket_or_on_a_disk_that_may_be_anothers(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ino, data = clean(one)
    damaged_as(one, kind, ino, data)
    before = everything(one.site.settings)
    scrub = one.scrub(kind)

    def refuse() -> None:
        raise OtherOwner("another gateway's")

    def other_disk(_settings: Settings) -> None:
        raise IdentityError("another disk")

    with monkeypatch.context() as patch:
        patch.setattr(scrub._store, "permit", refuse)
        assert scrub.step() == scrub_module.RETRY_SECONDS
    if kind == "local":
        with monkeypatch.context() as patch:
            patch.setattr("gateway.namespace.identity.require_surroundings", other_disk)
            scrub._retry_at = scrub._rate._not_before = 0.0
            assert scrub.step() == scrub_module.RETRY_SECONDS
    assert everything(one.site.settings) == before and one.control.asked == []
    finish(scrub)
    assert scrub.counts()["healed"] == 1


def damaged_as(scrubbed: Scrubbed, kind: str, ino: int, data: bytes) -> None:
    """Damage a file so that a pass of a kind finds it."""
    if kind == "local":
        scrubbed.flip(ino)
    elif kind == "objects":
        scrubbed.delete("run/a")
    else:
        rot(scrubbed, ino, data)


# Objects, by their bytes.


def rot(scrubbed: Scrubbed, ino: int, data: bytes) -> bytes:
    """Change a byte of an object whose ETag stays what it was. Returns the bytes."""
    bad = bytes((data[0] ^ 1,)) + data[1:]
    etag = scrubbed.put("run/a", bad, scrubbed.site.metadata("run/a"))
    scrubbed.rows("UPDATE object SET etag = :etag WHERE ino = :ino", etag=etag, ino=ino)
    return bad


def test_an_object_with_bad_bytes_is_sent_again(each: Scrubbed) -> None:
    ino, data = clean(each, size=5 * MIB)
    assert counted(each.run("deep")) == NOTHING
    rot(each, ino, data)
    assert counted(each.run("objects")) == NOTHING
    assert counted(each.run("deep")) == HEALED
    each.site.drain()
    assert each.site.objects()["run/a"] == data
    assert counted(each.run("deep")) == NOTHING


@pytest.mark.parametrize("is_absent", [True, False])
def test_an_object_with_bad_bytes_and_no_good_copy_is_left_as_it_is(
    one: Scrubbed, is_absent: bool
) -> None:
    ino, data = clean(one)
    if is_absent:
        one.evict(ino)
    else:
        one.flip(ino, 1)
    bad = rot(one, ino, data)
    assert counted(one.run("deep")) == DAMAGED
    assert f"of object {PREFIX}/run/a are not what was uploaded" in (one.damage(ino) or "")
    one.site.drain()
    assert one.site.objects() == {"run/a": bad}


def test_an_object_that_changes_while_it_is_read_is_left_alone(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino, data = clean(one)
    rot(one, ino, data)
    look, looks = ScrubRows.object, []

    def changed(rows: ScrubRows, ino: int) -> ScrubObject | None:
        looks.append(ino)
        if len(looks) == 2:
            rewrite(one, ino)
        return look(rows, ino)

    monkeypatch.setattr(ScrubRows, "object", changed)
    one.site.proxy.forget()
    assert counted(one.run("deep")) == NOTHING
    # Nothing more is asked after the second look.
    assert len(looks) == 2 and one.site.proxy.operations("HEAD") == []


def test_a_missing_object_is_found_by_reading_too(one: Scrubbed) -> None:
    _ino, data = clean(one)
    one.delete("run/a")
    assert counted(one.run("deep")) == HEALED
    one.site.drain()
    assert one.site.objects()["run/a"] == data


# Passes.


def writes(scrubbed: Scrubbed) -> list[str]:
    """Return the requests that change something in the bucket."""
    requests = scrubbed.site.proxy.requests
    return [str(one) for one in requests if one.method not in ("GET", "HEAD")]


def test_a_healthy_gateway_is_left_as_it_is(each: Scrubbed) -> None:
    for number in range(4):
        clean(each, f"run/{number}", 10_000 * number)
    clean(each, "run/large", 9 * MIB)
    ino, _data = clean(each, "run/absent")
    each.evict(ino)
    each.site.write("run/dirty", b"x")
    before = everything(each.site.settings)
    each.site.proxy.forget()
    for kind, files in (("local", 4), ("objects", 6), ("deep", 6)):
        counts = each.run(kind)
        assert counted(counts) == NOTHING, kind
        assert counts["files"] == files, kind
    assert everything(each.site.settings) == before
    assert writes(each) == [] and each.control.asked == []


def test_passes_are_counted_and_begin_when_they_are_due(one: Scrubbed) -> None:
    clean(one)
    scrub = one.scrub("local")
    finish(scrub, passes=3)
    assert one.rows("SELECT kind, is_whole, number FROM scrub_pass") == [("local", 1, 3)]
    rare = one.scrub(local_days=1.0)
    assert rare.step() == scrub_module.IDLE_SECONDS
    # The clock went back: the last pass began in the future.
    one.rows("UPDATE scrub_pass SET began_ns = :ns", ns=clock.now_ns() + 86_400 * clock.NS)
    finish(rare)
    assert one.rows("SELECT number FROM scrub_pass") == [(4,)]


def test_kinds_take_turns(one: Scrubbed) -> None:
    clean(one)
    scrub = one.scrub("local", "objects", "deep")
    finish(scrub, passes=3)
    rows = one.rows("SELECT kind FROM scrub_pass WHERE is_whole = 1 ORDER BY kind")
    assert rows == [("deep",), ("local",), ("objects",)]


def test_a_pass_continues_inside_of_a_file(one: Scrubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that takes longer to read than the gateway runs is read to its end all the same."""
    clean(one, size=12 * MIB)
    monkeypatch.setattr(scrub_module, "SAVE_SECONDS", 0.0)
    for kind in ("local", "deep"):
        read = 0
        for _start in range(6):
            # Each start ends after 5 MiB.
            scrub = one.scrub(kind, bytes_per_second=5 * MIB)
            scrub.step()
            read += scrub.counts()["bytes"]
            if scrub.counts()["passes"]:
                break
        assert scrub.counts()["passes"] == 1, kind
        assert 12 * MIB <= read <= 16 * MIB, kind
        rows = one.rows("SELECT bytes FROM scrub_pass WHERE kind = :kind", kind=kind)
        assert rows[0][0] >= 12 * MIB


def test_the_rate_is_heeded(one: Scrubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    clean(one, size=10 * MIB)
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    scrub = one.scrub("local", bytes_per_second=2 * MIB)
    started = now[0]
    while not scrub.counts()["passes"]:
        before = scrub.counts()["bytes"]
        wait = scrub.step()
        read = scrub.counts()["bytes"]
        # Whenever it is asked, no more is read than the rate says.
        assert read - before <= 2 * MIB
        assert read <= 2 * MIB * (now[0] - started) + 2 * MIB
        if scrub.counts()["passes"]:
            break
        assert wait > 0 and scrub.step() == pytest.approx(wait)
        assert scrub.counts()["bytes"] == read, "it was asked too early"
        now[0] += wait
    assert now[0] - started >= 4


def test_it_rests_for_as_long_as_it_reads(one: Scrubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    clean(one, size=10 * MIB)
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    honest = os.preadv

    def slow(fd: int, buffers: list[Any], offset: int) -> int:
        now[0] += 0.25
        return honest(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", slow)
    scrub = one.scrub("local")
    started = now[0]
    wait = scrub.step()
    assert now[0] - started == scrub_reading.WORK_SECONDS
    assert wait == pytest.approx(now[0] - started)


@pytest.mark.parametrize("when", ["found.1", "healed.1", "saved.1"])
@pytest.mark.parametrize("kind", ["local", "objects", "deep"])
def test_a_kill_loses_nothing(one: Scrubbed, kind: str, when: str) -> None:
    ino, data = clean(one)
    damaged_as(one, kind, ino, data)
    clean(one, "run/b")
    process = context.Process(target=killed, args=(one, kind, f"scrub.{when}"))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    counts = one.run(kind)
    assert counts["damaged"] == 0 and counts["found"] == counts["healed"]
    if kind == "local":
        assert one.is_absent(ino) and one.is_wanted(ino) and one.aside() == [f"{ino}.0"]
    else:
        one.site.drain()
        assert one.site.objects()["run/a"] == data


def killed(scrubbed: Scrubbed, kind: str, name: str) -> None:
    """Make a pass in a process that dies at a failpoint."""
    scrub_module.SAVE_SECONDS = 0.0
    failpoints.arm(name)
    # A step for each slice.
    finish(scrubbed.scrub(kind, bytes_per_second=1))
