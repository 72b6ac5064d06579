"""Data files that lost bytes on a real NFS server: no client gets zeros in their place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from gateway.cli.status import lines
from gateway.common import clock
from gateway.common.models import from_json
from gateway.namespace import server_reports
from gateway.namespace.data_files import DataFiles
from gateway.rpc.frames import Op
from gateway.service import alarms
from gateway.service.status import FAILING_SECONDS, Status
from tests.support import nfs4
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
from tests.support.volumes import alarms_in, query, status_of
from tests.support.waiting import until

SIZE = GRANULE_BYTES + PIECE_BYTES + 7
CUT = GRANULE_BYTES - 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        yield start(stack, tmp_path_factory.mktemp("lost"))


def row(site: Site, ino: int) -> tuple[int, ...]:
    """Return epoch, residency and content version of a file."""
    text = "SELECT epoch, residency, content_version FROM inode WHERE ino = :ino"
    return tuple(query(site.settings, text, ino=ino)[0])


def damages(site: Site, ino: int) -> list[str]:
    rows = query(site.settings, "SELECT reason FROM damage WHERE ino = :ino", ino=ino)
    return [reason for [reason] in rows]


def dirty(site: Site, name: str) -> File:
    """Make a file that only the disk has."""
    file = drained(site, name, SIZE)
    for table in ("block_digest", "object"):
        query(site.settings, f"DELETE FROM {table} WHERE ino = :ino", ino=file.ino)
    query(site.settings, "UPDATE inode SET drained_version = 0 WHERE ino = :ino", ino=file.ino)
    return file


def cut(path: Path, size: int | None) -> None:
    """Take the end of a data file away, or the whole file."""
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)


def whole(site: Site, file: File) -> bytes:
    """Read a file piece by piece, as clients do."""
    pieces = range(0, len(file.data), PIECE_BYTES)
    return b"".join(site.client.read(file.handle, at, PIECE_BYTES) for at in pieces)


@pytest.mark.parametrize("size", [CUT, 0, None])
def test_a_file_that_the_bucket_has_is_fetched_again(site: Site, size: int | None) -> None:
    file = drained(site, f"clean{size}", SIZE)
    before = site.client.getattr(file.handle)
    cut(path_of(site, file.ino, 0), size)
    with site.client.opened(site.client.handle("export"), file.name, reads=True):
        assert tried(site.client, file, GRANULE_BYTES) == nfs4.DELAY
        assert row(site, file.ino) == (1, 0, file.version)
        wanted(site, file.ino, SIZE - GRANULE_BYTES)
        hydrate(site, file, 1)
        length = {"offset": 0, "length": SIZE}
        site.done(Op.PRESENT, file.ino, ino2=1, **length)
        assert whole(site, file) == file.data
        site.done(Op.ARRIVED, file.ino, ino2=1, change=file.version, offset=SESSION)
        assert whole(site, file) == file.data
    assert site.client.getattr(file.handle) == before
    assert damages(site, file.ino) == []
    lost = status_of(site.settings)["disk"]["lost_copies"]
    assert lost["last"]["path"] == f"/export/{file.name}"
    assert f"{SIZE}" in lost["last"]["reason"]
    aside = DataFiles(site.settings.files_dir).aside / f"{file.ino}.0"
    assert aside.exists() == (size is not None)


@pytest.mark.parametrize("size", [CUT, 0, None])
def test_a_file_that_only_the_disk_has_is_an_error(site: Site, size: int | None) -> None:
    file = dirty(site, f"dirty{size}")
    path = path_of(site, file.ino, 0)
    cut(path, size)
    top = site.client.handle("export")
    for at in (GRANULE_BYTES, CUT - 10, 0):
        assert tried(site.client, file, at) == nfs4.IO
    [reason] = damages(site, file.ino)
    assert f"{SIZE}" in reason and ("missing" in reason) == (size is None)
    with (
        pytest.raises(nfs4.Status) as status,
        site.client.opened(top, file.name) as opened,
    ):
        opened.write(b"x", SIZE)
    assert status.value.number == nfs4.IO
    assert path.exists() == (size is not None)
    assert row(site, file.ino)[:2] == (0, 2)
    with site.client.opened(top, file.name, empties=True) as opened:
        opened.write(b"new")
    assert tried(site.client, file, 0) == b"new"
    assert damages(site, file.ino) == []


def is_wanted(client: nfs4.Client, file: File) -> bool:
    return tried(client, file, 0) == nfs4.DELAY


def test_lost_copies_are_shown_for_a_day(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = start(stack, tmp_path)
        assert status_of(site.settings)["disk"]["lost_copies"]["files"] == 0
        files = [drained(site, name, 10) for name in ("a", "b")]
        for number, file in enumerate(files, 1):
            cut(path_of(site, file.ino, 0), 3)
            with nfs4.Client(site.server.port) as client:
                until(partial(is_wanted, client, file), "the end of grace")
            facts = status_of(site.settings)
            assert facts["disk"]["lost_copies"]["files"] == number
            # A restart does not begin the count at 0.
            site.server.kill()
            site.server.start()
    assert facts["disk"]["lost_copies"]["is_recent"]
    assert not facts["healthy"]
    assert alarms_in(facts)[alarms.DISK_FAILING] == 2
    told = list(lines(from_json(Status, facts)))
    line = next(text for label, text in told if "LOSES BYTES" in text)
    assert "2 local copies" in line
    assert "/export/b: data file" in line
    report = site.settings.run_dir / server_reports.DISK_REPORT
    told = json.loads(report.read_text())
    told["last_lost"]["at_ns"] -= (FAILING_SECONDS + 60) * clock.NS
    report.write_text(json.dumps(told))
    facts = status_of(site.settings)
    assert alarms_in(facts)[alarms.DISK_FAILING] == 0
    assert facts["disk"]["lost_copies"]["files"] == 2


def test_damage_is_known_after_a_restart(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = start(stack, tmp_path)
        file = dirty(site, "f")
        cut(path_of(site, file.ino, 0), CUT)
        assert tried(site.client, file, 0) == nfs4.IO
        site.server.crash()
        # Whatever the disk has by now.
        path_of(site, file.ino, 0).write_bytes(bytes(SIZE))
        with nfs4.Client(site.server.port) as client, pytest.raises(nfs4.Status) as status:
            client.read(file.handle, 0, PIECE_BYTES)
        assert status.value.number == nfs4.IO
