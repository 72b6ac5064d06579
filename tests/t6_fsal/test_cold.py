"""Tests evicted files on a real NFS server. The test plays the hydrator over the control socket."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.common.types import Attr, Residency
from gateway.rpc.control import Remote
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4
from tests.support.t6 import cold as shared
from tests.support.t6.cold import (
    GRANULE_BYTES,
    PIECE_BYTES,
    SESSION,
    File,
    Site,
    drained,
    hydrate,
    path_of,
    start,
    tried,
    wanted,
)
from tests.support.volumes import query
from tests.support.waiting import until

site = shared.site

READS = 40
PARKED_MAX = 24
"""The READs of one client address that are parked at the same time."""


def evicted(site: Site, name: str, size: int) -> tuple[File, Attr]:
    file = drained(site, name, size)
    attr = site.done(Op.EVICT, file.ino, change=file.version).attr
    assert attr is not None
    assert attr.residency == Residency.ABSENT
    assert not path_of(site, file.ino, attr.epoch - 1).exists()
    return file, attr


class Readers:
    """READs at the same time, each once, on connections of their own."""

    def __init__(self, site: Site, file: File, count: int) -> None:
        self.results: dict[int, bytes | int | OSError] = {}
        self.offsets = [
            number * PIECE_BYTES % len(file.data) // PIECE_BYTES * PIECE_BYTES
            for number in range(count)
        ]
        self._threads = [
            threading.Thread(target=self._read, args=(site, file, number))
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, site: Site, file: File, number: int) -> None:
        try:
            with nfs4.Client(site.server.port) as client:
                self.results[number] = tried(client, file, self.offsets[number])
        except OSError as exc:
            self.results[number] = exc

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.alone
def test_cold_reads_wait_for_their_bytes_without_threads(site: Site) -> None:
    file, attr = evicted(site, "cold", 2 * GRANULE_BYTES + 100)
    drained(site, "other", 10)
    began = time.monotonic()
    readers = Readers(site, file, READS)
    until(lambda: len(readers.results) == READS - PARKED_MAX, "the delayed READs")
    assert set(readers.results.values()) == {nfs4.DELAY}
    ranges = wanted(site, file.ino, len(file.data))
    assert sum(length for _, length in ranges) == len(file.data)
    # Others are answered meanwhile.
    asked = time.monotonic()
    for _ in range(100):
        assert site.client.getattr(file.handle).size == len(file.data)
        site.client.lookup(site.client.handle("export"), "other")
    assert time.monotonic() - asked < 2
    assert time.monotonic() - began < 3, "too slow for the next assertion"
    assert len(readers.results) == READS - PARKED_MAX
    assert site.ask(Op.EVICT, file.ino, change=file.version).errno == errno.EBUSY
    hydrate(site, file, attr.epoch)
    stale = {"ino2": attr.epoch - 1, "offset": ranges[0][0], "length": ranges[0][1]}
    assert site.ask(Op.PRESENT, file.ino, **stale).errno == errno.ESTALE
    for offset, length in ranges:
        site.done(Op.PRESENT, file.ino, ino2=attr.epoch, offset=offset, length=length)
    readers.join()
    good = [number for number, delay in readers.results.items() if delay != nfs4.DELAY]
    assert len(good) == PARKED_MAX
    for number in good:
        at = readers.offsets[number]
        assert readers.results[number] == file.data[at : at + PIECE_BYTES]
    for at in range(0, len(file.data), PIECE_BYTES):
        assert tried(site.client, file, at) == file.data[at : at + PIECE_BYTES]
    arrived = {"ino2": attr.epoch, "change": file.version}
    assert site.ask(Op.ARRIVED, file.ino, **arrived, offset=SESSION + 1).errno == errno.ESTALE
    site.done(Op.ARRIVED, file.ino, **arrived, offset=SESSION)
    assert tried(site.client, file, 0) == file.data[:PIECE_BYTES]


@pytest.mark.alone
def test_a_read_that_waited_too_long_is_delayed(site: Site) -> None:
    file, _ = evicted(site, "late", 10)
    began = time.monotonic()
    assert tried(site.client, file, 0) == nfs4.DELAY
    assert 3 < time.monotonic() - began < 6
    assert tried(site.client, file, 10) == b""  # the end of the file is known


def test_an_open_file_is_not_evicted(site: Site) -> None:
    file = drained(site, "busy", 10)
    with site.client.opened(site.client.handle("export"), "busy"):
        query(
            site.settings,
            "UPDATE inode SET drained_version = content_version, write_open = 0 WHERE ino = :ino",
            ino=file.ino,
        )
        [[version]] = query(
            site.settings, "SELECT content_version FROM inode WHERE ino = :ino", ino=file.ino
        )
        query(
            site.settings,
            "UPDATE object SET content_version = :version WHERE ino = :ino",
            version=version,
            ino=file.ino,
        )
        assert site.ask(Op.EVICT, file.ino, change=version).errno == errno.EBUSY
    assert tried(site.client, file, 0) == file.data


def test_a_file_that_a_client_has_open_for_reading_is_not_evicted(site: Site) -> None:
    """The rows know nothing of readers: only the server can refuse."""
    file = drained(site, "open to read", 10)
    with site.client.opened(site.client.handle("export"), "open to read", reads=True) as opened:
        assert site.ask(Op.EVICT, file.ino, change=file.version).errno == errno.EBUSY
        assert opened.read() == file.data
    site.done(Op.EVICT, file.ino, change=file.version)


def test_a_writer_waits_for_the_whole_file(site: Site) -> None:
    file, attr = evicted(site, "written", GRANULE_BYTES + 7)
    top = site.client.handle("export")
    with pytest.raises(nfs4.Status) as status, site.client.opened(top, "written"):
        pass
    assert status.value.number == nfs4.DELAY
    wanted(site, file.ino, len(file.data))
    hydrate(site, file, attr.epoch)
    site.done(Op.ARRIVED, file.ino, ino2=attr.epoch, change=file.version, offset=SESSION)
    with site.client.opened(top, "written") as opened:
        opened.write(b"new")
    assert tried(site.client, file, 0) == b"new" + file.data[3:PIECE_BYTES]
    assert site.client.getattr(file.handle).size == len(file.data)


def test_a_truncation_needs_no_bytes(site: Site) -> None:
    file, attr = evicted(site, "emptied", GRANULE_BYTES + 7)
    hydrate(site, file, attr.epoch)
    with site.client.opened(site.client.handle("export"), "emptied", empties=True) as opened:
        assert site.client.getattr(file.handle).size == 0
        assert not path_of(site, file.ino, attr.epoch).exists()
        opened.write(b"new")
        assert opened.read() == b"new"
    assert tried(site.client, file, 0) == b"new"
    assert path_of(site, file.ino, attr.epoch + 1).read_bytes() == b"new"
    present = {"ino2": attr.epoch, "length": len(file.data)}
    assert site.ask(Op.PRESENT, file.ino, **present).errno == errno.ESTALE


def test_bytes_that_cannot_be_had_are_an_error(site: Site) -> None:
    file, attr = evicted(site, "lost", 10)
    readers = Readers(site, file, 3)
    wanted(site, file.ino, 10)
    site.done(Op.FAILED, file.ino, ino2=attr.epoch, change=errno.EIO)
    readers.join()
    assert set(readers.results.values()) == {nfs4.IO}
    assert tried(site.client, file, 0) == nfs4.IO


def test_reads_are_noted(site: Site) -> None:
    file = drained(site, "read", 10)
    assert tried(site.client, file, 0) == file.data
    noted = "SELECT read_ns FROM last_read WHERE ino = :ino"
    until(lambda: query(site.settings, noted, ino=file.ino), "the note", 20)
    [[read_ns]] = query(site.settings, noted, ino=file.ino)
    assert abs(read_ns - time.time_ns()) < 120 * 10**9


def test_one_hydrator_waits_at_a_time(site: Site) -> None:
    second = Remote(site.settings)
    try:
        numbers: list[int] = []

        def wait() -> None:
            # The question below may be the one that waits.
            while numbers[-1:] != [0]:
                [answer] = second.run([RpcRequest(Op.WANTED, SESSION, ino2=3000)])
                numbers.append(answer.errno)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: site.ask(Op.WANTED, SESSION).errno == errno.EBUSY, "the first that waits")
        thread.join()
        assert set(numbers) <= {0, errno.EBUSY}
    finally:
        second.close()


@pytest.mark.alone
def test_the_server_stops_with_parked_reads(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = start(stack, tmp_path)
        file, _ = evicted(site, "cold", GRANULE_BYTES)
        readers = Readers(site, file, 20)
        wanted(site, file.ino, len(file.data))
        began = time.monotonic()
        os.kill(site.server.pid, signal.SIGTERM)
        assert site.server.wait() == 0
        assert time.monotonic() - began < 8
        readers.join()
        assert "cleanup" not in site.server.log.read_text()
        for delay in readers.results.values():
            assert delay == nfs4.DELAY or isinstance(delay, OSError)


EVICT_AND_DIE = """
import sys
from pathlib import Path
from gateway.common import failpoints
from gateway.config import loader
from tests.support.direct import Direct
from gateway.rpc.frames import Op, RpcRequest
direct = Direct(loader.load(Path(sys.argv[1]), {}))
failpoints.arm(failpoints.AFTER_COMMIT)
direct.run([RpcRequest(Op.EVICT, int(sys.argv[2]), change=int(sys.argv[3]))])
"""


def test_a_kill_between_the_commit_and_the_deletion_leaves_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = start(stack, tmp_path)
        file = drained(site, "killed", 1000)
        old = path_of(site, file.ino, 0)
        assert old.exists()
        site.server.kill()
        run = subprocess.run(
            [
                *(sys.executable, "-c", EVICT_AND_DIE),
                *(site.settings.source, str(file.ino), str(file.version)),
            ],
            check=False,
        )
        assert run.returncode == -signal.SIGKILL
        evictions = "SELECT ino, epoch FROM eviction"
        assert old.exists()
        assert query(site.settings, evictions) == [(file.ino, 0)]
        site.server.start()
        assert not old.exists()
        assert query(site.settings, evictions) == []
        with nfs4.Client(site.server.port) as client:
            until(lambda: tried(client, file, 0) == nfs4.DELAY, "the end of grace")
            assert client.getattr(file.handle).size == 1000
