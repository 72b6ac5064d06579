"""Bytes that changed on the disk since their seal are never published."""

from __future__ import annotations

import hashlib
import os
from typing import BinaryIO

import pytest

from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.drain.job import JobOutcome
from gateway.drain.paths import file_of
from gateway.drain.send import checksum as checksum_module
from gateway.drain.send.upload import upload
from gateway.drain.verify import changed
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t4.checksum import flip, sealed_site, settle, unsettle
from tests.support.waiting import until

SIZES = [9, 3 * MIB, 11 * MIB]
"""Sizes of files that are sent in a batch, by themselves, and in parts."""


def digests(site: Site) -> dict[int, tuple[int, str]]:
    rows = site.rows("SELECT ino, content_version, checksum FROM digest")
    return {ino: (version, checksum) for ino, version, checksum in rows}


@pytest.mark.parametrize("size", SIZES)
def test_a_bit_that_flips_after_the_seal_is_never_published(site: Site, size: int) -> None:
    sealed_site(site)
    data = os.urandom(size)
    for path in ("f", "g"):
        site.write(path, data)
    unsettle(site)
    site.drain()
    assert len(digests(site)) == 2
    assert site.proxy.operations("PUT", "CREATE") == []
    flip(site, "f", size - 1)
    settle(site)
    for _ in range(3):
        site.drain()
    assert site.objects() == {"g": data}
    assert site.rows("SELECT count(*) FROM object") == [(1,)]
    assert site.proxy.operations("COMPLETE") == site.proxy.operations("COMPLETE")[:1]
    (failure,) = site.report()["failures"]
    assert failure["job"] == f"upload of {PREFIX}/f"
    assert failure["tries"] >= 3
    assert "changed on the disk since they were sealed" in failure["error"]
    # With the right bytes, the file is drained without more help. (rclone accepts no part twice.)
    flip(site, "f", size - 1)
    site.drain()
    site.drain()
    assert site.objects() == {"f": data, "g": data}
    assert site.left() == []
    assert site.multiparts() == 0


def test_bytes_that_changed_do_not_cause_a_storm_of_requests(rclone_site: Site) -> None:
    site = sealed_site(rclone_site)
    site.configure(retry_max_seconds=1.0)
    site.write("f", os.urandom(11 * MIB))
    unsettle(site)
    site.drain()
    flip(site, "f", 0)
    settle(site)
    with site.draining() as drain:

        def tries() -> int:
            return max((entry["tries"] for entry in drain.retries.shown(9)), default=0)

        until(lambda: tries() >= 4, "four tries")
    assert site.objects() == {}
    parts = site.proxy.operations("PART")
    assert len(parts) == 3, "each part is sent once"
    assert len(site.proxy.operations("LIST PARTS")) <= 8


def test_the_recorded_checksum_is_that_of_the_object(rclone_site: Site) -> None:
    site = sealed_site(rclone_site)
    inos = [site.write(f"f{size}", os.urandom(size)) for size in (0, *SIZES)]
    unsettle(site)
    site.drain()
    before = {ino: checksum for ino, (_version, checksum) in digests(site).items()}
    assert sorted(before) == sorted(inos)
    settle(site)
    site.drain()
    assert dict(site.rows("SELECT ino, checksum FROM object")) == before


def test_held_names_have_a_digest_too_and_it_goes_with_the_inode(rclone_site: Site) -> None:
    site = sealed_site(rclone_site)
    ino = site.write("f.tmp", b"data")
    site.drain()
    expected = "md5:" + hashlib.md5(b"data").hexdigest()
    assert digests(site) == {ino: (1, expected)}
    site.unlink("f.tmp")
    until(lambda: not site.rows(f"SELECT * FROM inode WHERE ino = {ino}"), "the inode is gone")
    assert digests(site) == {}


@pytest.mark.parametrize("size", SIZES)
def test_the_digest_of_an_old_version_is_not_used(rclone_site: Site, size: int) -> None:
    site = sealed_site(rclone_site)
    ino = site.write("f", os.urandom(size))
    site.drain()
    assert digests(site)[ino][0] == 1
    data = os.urandom(size)
    site.write("f", data)
    database = Database(site.settings.database_url)
    context = Context(site.settings, database, S3Store(site.settings))
    with context.reading() as view:
        planned = file_of(view.session, ino)
    assert planned is not None
    # The upload runs without a drain, which would first compute the new digest.
    assert upload(context, planned, f"{PREFIX}/f") == JobOutcome.DONE
    database.close()
    assert digests(site)[ino][0] == 1
    assert site.objects() == {"f": data}


def test_a_version_that_is_written_meanwhile_gets_no_digest(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = sealed_site(rclone_site)
    ino = site.write("f", b"old")
    honest = checksum_module.read

    def reopened(data: BinaryIO, size: int) -> bytes:
        site.namespace.open_write(ino)
        return honest(data, size)

    monkeypatch.setattr(checksum_module, "read", reopened)
    site.drain()
    assert digests(site) == {}


def test_nothing_is_computed_unless_asked_for(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f.tmp", b"data")
    site.write("f", b"data")
    site.drain()
    assert digests(site) == {}
    assert site.objects() == {"f": b"data"}


def test_digests_are_made_while_the_bucket_is_away(rclone_site: Site) -> None:
    site = sealed_site(rclone_site)
    site.proxy.inject(lambda _r: True, Act.FAIL, 1e9, 503)
    with site.draining():
        inos = {site.write(f"f{n}", b"%d" % n) for n in range(100)}
        until(lambda: digests(site).keys() == inos, "all have a digest")
        assert site.objects() == {}


def test_fsck_compares_data_files_with_what_they_were(rclone_site: Site) -> None:
    site = sealed_site(rclone_site)
    for path in ("drained", "broken"):
        site.write(path, os.urandom(11 * MIB))
    settle(site)
    site.drain()
    inos = [site.write(path, b"data") for path in ("waiting.tmp", "fine.tmp")]
    site.drain()
    flip(site, "broken", 7)
    flip(site, "waiting.tmp", 0)
    database = Database(site.settings.database_url)
    found = list(changed(database, DataFiles(site.settings.files_dir)))
    database.close()
    assert [file.ino for file, _why in found] == [site.attr("broken").ino, inos[0]]
    assert "bytes 0 to 4194303 of" in found[0][1]
    assert "changed on the disk" in found[1][1]
