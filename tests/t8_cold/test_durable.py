"""What the durable map names is on stable storage, and of the epoch that it says."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cache import hydration
from gateway.cache.hydration import Hydration
from gateway.cache.rows import Rows, Saved
from gateway.cache.waiting_clients import WaitingClients
from gateway.common.types import ROOT_CRED
from gateway.db.engine import Database
from gateway.namespace import data_files
from gateway.rpc.frames import ALL_BYTES, Op
from tests.support.drainsite import MIB
from tests.support.s3proxy import Act, Fault
from tests.support.t8.site import BLOCK_BYTES, ColdSite
from tests.support.waiting import until

HELD_AT = 16 * MIB


def hold_rest(site: ColdSite) -> Fault:
    """Let the bucket refuse what follows the first four blocks, until the fault is released."""
    return site.proxy.inject(
        lambda r: r.headers.get("range", "").startswith(f"bytes={HELD_AT}-"), Act.FAIL, 10**6
    )


@contextmanager
def partly(site: ColdSite, size: int = 20 * MIB) -> Iterator[tuple[int, bytes, Fault]]:
    """Yield inode, bytes and the fault, with the first four blocks there and durable."""
    ino, data = site.cold_file(size)
    hold = hold_rest(site)
    with site.hydrating():
        site.control.want(ino, 0)
        until(lambda: site.durable(ino) == [0, 1, 2, 3], "the durable map")
        yield ino, data, hold


def watch_writes(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Return the times at which blocks are written last, which are filled in from now on."""
    written: dict[int, float] = {}
    pwrite = os.pwrite

    def writing(fd: int, view: memoryview, at: int) -> int:
        count = pwrite(fd, view, at)
        written[at // BLOCK_BYTES] = time.monotonic()
        return count

    monkeypatch.setattr(os, "pwrite", writing)
    return written


def test_a_bit_is_written_after_the_sync_of_its_block(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block that a transaction names was written before the last sync began, also if another
    one comes during the sync."""
    monkeypatch.setattr("gateway.cache.hydration.SAVE_SECONDS", 0.05)
    ino, data = site.cold_file(45 * MIB)
    hold = hold_rest(site)
    written = watch_writes(monkeypatch)
    present: list[int] = []
    synced: list[float] = []
    wrong: list[int] = []
    saves = 0
    fdatasync, save, arrived = os.fdatasync, Rows.save, Hydration.arrived

    def arriving(self: Hydration, block: int, now: float) -> None:
        arrived(self, block, now)
        present.append(block)

    def syncing(fd: int) -> None:
        began = time.monotonic()
        fdatasync(fd)
        if not synced:
            known = len(present)
            hold.release()
            until(lambda: len(present) > known, "a block that comes during the sync")
        synced.append(began)

    def saving(self: Rows, files: Sequence[Any]) -> set[int]:
        nonlocal saves
        saves += 1
        for file in files:
            bits = int.from_bytes(file.blocks, "little")
            for block, at in list(written.items()):
                if bits >> block & 1 and (not synced or synced[-1] < at):
                    wrong.append(block)
        return save(self, files)

    monkeypatch.setattr(os, "fdatasync", syncing)
    monkeypatch.setattr(Rows, "save", saving)
    monkeypatch.setattr(Hydration, "arrived", arriving)
    site.hydrate(ino, data)
    assert saves >= 1
    assert wrong == []


def test_an_arrival_waits_for_the_sync_of_the_last_block(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cache.hydration.SAVE_SECONDS", 0.05)
    ino, data = site.cold_file(20 * MIB)
    hold = hold_rest(site)
    written = watch_writes(monkeypatch)
    synced: list[float] = []
    fdatasync = os.fdatasync

    def syncing(fd: int) -> None:
        synced.append(time.monotonic())
        hold.release()
        # The last block comes while this sync runs.
        until(lambda: len(site.control.of(Op.PRESENT, ino)) >= 5, "the last block")
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", syncing)
    site.hydrate(ino, data)
    assert synced[-1] > max(written.values())


def test_the_name_of_a_data_file_is_durable_before_what_is_in_it(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a file that has arrived would have no data file."""
    monkeypatch.setattr("gateway.cache.hydration.SAVE_SECONDS", 0.05)
    ino, data = site.cold_file(20 * MIB)
    hold = hold_rest(site)
    done: list[str] = []
    sync, save, arrived = data_files.sync_directory, Rows.save, WaitingClients.arrived

    def syncing(path: Path) -> None:
        sync(path)
        assert path == site.namespace.files.path(ino, 1).parent
        done.append("named")

    def saving(self: Rows, files: Sequence[Saved]) -> set[int]:
        done.append("saved")
        hold.release()
        return save(self, files)

    def arriving(self: WaitingClients, *about: int) -> None:
        done.append("arrived")
        arrived(self, *about)

    monkeypatch.setattr(hydration, "sync_directory", syncing)
    monkeypatch.setattr(Rows, "save", saving)
    monkeypatch.setattr(WaitingClients, "arrived", arriving)
    site.hydrate(ino, data)
    assert (done[0], done.count("named"), done[-1]) == ("named", 1, "arrived")
    assert "saved" in done


def test_a_map_is_forgotten_before_its_lost_data_file_is_made_again(site: ColdSite) -> None:
    with partly(site) as (ino, _data, _hold):
        pass
    epoch = site.namespace.getattr(ino).epoch
    site.namespace.files.path(ino, epoch).unlink()
    away = site.proxy.inject(lambda _request: True, Act.FAIL, 10**6)
    with site.hydrating():
        site.control.want(ino, 0)
        until(site.namespace.files.path(ino, epoch).exists, "the new data file")
        assert site.durable(ino) == []
    away.release()


def test_a_restart_fetches_what_is_missing_only(site: ColdSite) -> None:
    with partly(site) as (ino, data, hold):
        pass
    hold.release()
    site.proxy.forget()
    site.control.clear()
    site.hydrate(ino, data)
    assert site.fetched_bytes() == len(data) - HELD_AT


def test_kills_at_any_moment(site: ColdSite) -> None:
    """Nothing is fetched twice but what was under way, and the map never names wrong bytes."""
    ino, data = site.cold_file(80 * MIB)
    site.configure("cache", bytes_per_second=50 * MIB)
    kills = 3
    with site.control:
        for _ in range(kills):
            before = site.fetched_bytes()
            with site.process("cache") as process:
                site.control.want(ino)
                until(lambda: site.fetched_bytes() > before, "a request")  # noqa: B023
                time.sleep(random.uniform(0.0, 0.4))
                site.kill(process)
            bytes_now = site.bytes_of(ino) if site.durable(ino) else b""
            for block in site.durable(ino):
                at = slice(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
                assert bytes_now[at] == data[at]
        with site.process("cache"):
            site.control.want(ino)
            site.arrive(ino, 60)
    assert site.bytes_of(ino) == data
    assert site.control.wrong == []
    # Each of four threads had at the most one range of 16 MiB under way.
    assert site.fetched_bytes() <= len(data) + kills * 4 * HELD_AT


def test_verified_blocks_outlive_a_kill_before_their_sync(site: ColdSite) -> None:
    """They are in the data file. They are verified there, and neither fetched nor written again."""
    ino, data = site.cold_file(20 * MIB)
    hold = hold_rest(site)
    with site.control, site.process("cache") as process:
        site.control.want(ino, 0)
        site.control.wait(Op.PRESENT, ino, 4)
        site.kill(process)
    site.rows(f"DELETE FROM present_blocks WHERE ino = {ino} RETURNING 1")
    hold.release()
    site.proxy.forget()
    site.control.clear()
    site.hydrate(ino, data)
    assert site.fetched_bytes() == len(data) - HELD_AT


def test_what_a_killed_hydrator_left_is_believed_by_its_digest_only(site: ColdSite) -> None:
    """The first block is whole, the second one is not, and no map names them."""
    ino, data = site.cold_file(12 * MIB)
    with site.namespace.files.path(ino, site.namespace.getattr(ino).epoch).open("wb") as file:
        file.write(data[: BLOCK_BYTES + MIB])
        file.truncate(len(data))
    site.hydrate(ino, data)
    assert site.fetched_bytes() == len(data) - BLOCK_BYTES


def test_a_map_is_not_written_for_another_epoch(site: ColdSite) -> None:
    with partly(site) as (ino, _, _):
        pass
    old = site.namespace.getattr(ino).epoch
    site.evict(ino)
    rows = Rows(Database(site.settings.database_url))
    assert rows.save([Saved(ino, old, BLOCK_BYTES, b"\x0f")]) == {ino}
    assert site.rows("SELECT 1 FROM present_blocks") == []


def test_a_map_of_another_epoch_is_not_believed(site: ColdSite) -> None:
    with partly(site) as (ino, data, hold):
        pass
    hold.release()
    attr = site.evict(ino)
    # As if the row of the earlier epoch had stayed, and the new data file had been made.
    assert site.rows("SELECT 1 FROM present_blocks") == []
    site.rows(
        "INSERT INTO present_blocks"
        f" VALUES ({ino}, {attr.epoch - 1}, {BLOCK_BYTES}, x'0f') RETURNING 1"
    )
    with site.namespace.files.path(ino, attr.epoch).open("wb") as file:
        file.truncate(len(data))
    site.control.clear()
    site.hydrate(ino, data)


def test_a_map_without_its_data_file_is_not_believed(site: ColdSite) -> None:
    with partly(site) as (ino, data, hold):
        pass
    hold.release()
    path = site.namespace.files.path(ino, site.namespace.getattr(ino).epoch)
    path.unlink()
    site.control.clear()
    site.hydrate(ino, data)


def test_a_failed_sync_makes_nothing_believed(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cache.fetch.SAVE_SECONDS", 0.2)
    with partly(site) as (ino, data, hold):
        honest = os.fdatasync
        failed: list[int] = []

        def failing(fd: int) -> None:
            if not failed:
                failed.append(fd)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            honest(fd)

        forgotten: list[int] = []
        save = Rows.save

        def saving(self: Rows, files: Sequence[Saved]) -> set[int]:
            forgotten.extend(file.ino for file in files if file.is_forgotten)
            return save(self, files)

        monkeypatch.setattr(os, "fdatasync", failing)
        monkeypatch.setattr(Rows, "save", saving)
        hold.release()
        site.control.wait(Op.FAILED, ino)
        site.control.want(ino, 0)
        site.arrive(ino)
    assert site.bytes_of(ino) == data
    assert forgotten == [ino]
    assert [message.length for message in site.control.of(Op.FAILED, ino)] == [ALL_BYTES]


def test_an_eviction_meanwhile_starts_anew(site: ColdSite) -> None:
    """Nothing is written into the data file of the new epoch that was fetched for the old one."""
    with partly(site) as (ino, data, hold):
        attr = site.evict(ino)
        path = site.namespace.files.path(ino, attr.epoch)
        hold.release()
        until(
            lambda: any(message.epoch < attr.epoch for message in site.control.told[4:]),
            "an old PRESENT",
        )
        assert not path.exists() or path.stat().st_size in (0, len(data))
        site.control.want(ino, 0)
        site.arrive(ino)
        assert site.bytes_of(ino) == data
        arrived = site.control.of(Op.ARRIVED, ino)
        # The last block may come before the hydrator has heard of the eviction. It then says that
        # the old data file is whole, and the server refuses this.
        taken = [message.epoch for message in arrived if message not in site.control.refused]
        assert taken == [attr.epoch]


def test_a_data_file_is_not_left_behind_by_an_eviction(
    site: ColdSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eviction commits between the look at the row and the making of the data file."""
    ino, data = site.cold_file(3 * MIB)
    evicted: list[int] = []
    honest = hydration.DataFile.open.__func__  # type: ignore[attr-defined]

    def opening(cls: type[Any], files: Any, source: Any, rows: Rows) -> Any:
        if not evicted:
            # An eviction of an absent file needs a durable map.
            site.rows(
                f"INSERT INTO present_blocks VALUES ({ino}, 1, {BLOCK_BYTES}, x'00') RETURNING 1"
            )
            evicted.append(site.evict(ino).epoch)
        return honest(cls, files, source, rows)

    monkeypatch.setattr(hydration.DataFile, "open", classmethod(opening))
    site.hydrate(ino, data)
    assert list(site.namespace.files.walk()) == [(ino, evicted[0])]


def test_a_rename_meanwhile_is_followed(site: ColdSite) -> None:
    with partly(site) as (ino, data, hold):
        site.rename("f", "renamed")
        site.drain()
        assert "f" not in site.objects()
        hold.release()
        site.arrive(ino)
    assert site.bytes_of(ino) == data
    assert site.control.of(Op.FAILED) == []


def test_a_deletion_meanwhile_ends_it(site: ColdSite) -> None:
    ino, data = site.cold_file(20 * MIB)
    hold = hold_rest(site)
    with site.hydrating() as hydrator:
        site.control.want(ino, 0)
        site.control.wait(Op.PRESENT, ino, 4)
        removed = site.namespace.remove(ROOT_CRED, *site.split("f"))
        site.namespace.reclaim(removed.ino, removed.epoch)
        site.drain()
        hold.release()
        until(lambda: len(hydrator._scheduler) == 0, "the end", 20)
    assert list(site.namespace.files.walk()) == []
    assert len(data) == 20 * MIB
