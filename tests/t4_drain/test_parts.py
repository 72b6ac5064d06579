"""Several parts are in flight, uploads resume from the store's list, and holes are not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.common.errors import DataFileError
from gateway.objectstore.bodies import BLOCK_BYTES, FileRange, blocks, digest
from tests.support.drainsite import MIB, Site
from tests.support.s3proxy import Act
from tests.support.t4.interrupted import killed_after_two_parts, parts_sent
from tests.support.waiting import until
from tests.t4_drain.conftest import Counted


def test_an_interrupted_upload_goes_on_where_it_was(site: Site) -> None:
    data = killed_after_two_parts(site)
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"f": data}
    assert parts_sent(site) == ["3", "4"]
    assert site.proxy.operations("CREATE") == []
    assert site.left() == []
    assert site.multiparts() == 0


@pytest.mark.parametrize("code", ["NoSuchUpload", "NoSuchKey"])
def test_an_upload_that_the_store_forgot_is_begun_anew(rclone_site: Site, code: str) -> None:
    """Stores answer this with different codes."""
    site = rclone_site
    data = killed_after_two_parts(site)
    site.proxy.inject(lambda r: r.operation == "LIST PARTS", Act.FAIL, 1, 404, code)
    site.drain()
    assert site.objects() == {"f": data}
    assert site.left() == []


def test_a_listed_part_with_other_bytes_is_sent_again(moto_site: Site) -> None:
    """The local bytes decide, not the number in the list. (rclone accepts no part twice.)"""
    site = moto_site
    data = killed_after_two_parts(site)
    (key, upload_id) = site.rows("SELECT key, upload_id FROM upload")[0]
    site.client.upload_part(
        Bucket=site.bucket, Key=key, UploadId=upload_id, PartNumber=1, Body=os.urandom(5 * MIB)
    )
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"f": data}
    assert parts_sent(site) == ["1", "3", "4"]


def test_an_upload_of_an_older_version_is_not_gone_on_with(rclone_site: Site) -> None:
    site = rclone_site
    killed_after_two_parts(site)
    data = os.urandom(17 * MIB)
    site.write("f", data)
    site.proxy.forget()
    site.drain()
    assert site.objects() == {"f": data}
    assert parts_sent(site) == ["1", "2", "3", "4"]
    assert len(site.proxy.operations("ABORT")) == 1
    assert site.multiparts() == 0


def test_parts_of_a_file_are_in_flight_together(rclone_site: Site) -> None:
    site = rclone_site
    data = os.urandom(22 * MIB)
    site.write("f", data)
    held = site.proxy.inject(lambda r: r.operation == "PART", Act.HOLD, times=3)
    with site.draining():
        until(lambda: len(site.proxy.operations("PART")) >= 4, "four parts are under way")
        held.release()
        until(site.is_clean, "everything is drained")
    assert site.objects() == {"f": data}


def test_a_hole_is_not_read(tmp_path: Path, read_bytes: Counted) -> None:
    path = tmp_path / "sparse"
    size = 64 * BLOCK_BYTES + 5
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(9 * BLOCK_BYTES)
        file.write(b"data")
    with path.open("rb", buffering=0) as held_open:
        section = FileRange(held_open.fileno(), BLOCK_BYTES // 2, size - BLOCK_BYTES // 2)
        whole = b"".join(bytes(block) for block in blocks(section))
        md5 = digest(section).md5
    assert whole == path.read_bytes()[BLOCK_BYTES // 2 :]
    assert md5 == digest(whole).md5
    assert 0 < read_bytes() <= 4 * BLOCK_BYTES


def test_a_file_that_ends_early_is_not_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"x" * 10)
    with path.open("rb", buffering=0) as file:
        for start in (0, 10):
            with pytest.raises(DataFileError, match="early"):
                digest(FileRange(file.fileno(), start, 100))


def test_what_the_disk_does_not_give_is_not_the_stores_fault(tmp_path: Path) -> None:
    """An OSError of the disk must not be taken for a lost connection."""
    path = tmp_path / "f"
    path.write_bytes(b"x" * 10)
    unreadable = os.open(path, os.O_WRONLY)
    with pytest.raises(DataFileError, match="cannot be read"):
        digest(FileRange(unreadable, 0, 10))
    os.close(unreadable)


def test_a_sparse_file_arrives(rclone_site: Site) -> None:
    site = rclone_site
    data = bytes(11 * MIB) + b"end"
    ino = site.write("f", data)
    path = site.namespace.files.path(ino, 0)
    with path.open("r+b") as file:
        file.truncate(0)
        file.truncate(11 * MIB)
        file.seek(11 * MIB)
        file.write(b"end")
    site.drain()
    assert site.objects() == {"f": data}


@pytest.mark.parametrize("lost", [1, 2])
def test_an_upload_whose_beginning_was_not_answered_is_aborted(site: Site, lost: int) -> None:
    """This holds even if the file is soon deleted, and with it each row that names the key."""
    fault = site.proxy.inject(lambda r: r.operation == "CREATE", Act.DROP_ANSWER, times=lost)
    site.write("f", os.urandom(11 * MIB))
    with site.process():
        until(lambda: fault.times == 0, "the beginning is lost")
        site.unlink("f")
        until(lambda: not site.left() and not site.objects(), "the file is gone")
    assert site.multiparts() == 0
