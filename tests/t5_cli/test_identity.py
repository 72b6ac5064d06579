"""Database, data files and bucket that do not belong together are refused, with the remedy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.db.engine import Database
from gateway.namespace.data_files import DataFiles
from tests.support.clisite import Site, assert_refused, spillway
from tests.support.namespace import Namespace
from tests.support.volumes import query


@pytest.fixture
def used(site: Site) -> Iterator[Site]:
    """Make a gateway with one file, which the bucket has."""
    namespace = Namespace(site.settings)
    attr = namespace.create(ROOT_CRED, 2, b"f", SetAttr())
    namespace.files.path(attr.ino, attr.epoch).write_bytes(b"12345")
    namespace.seal(attr.ino, Sealed(5, 4096, 1, 1))
    namespace.close()
    query(site.settings, "UPDATE volume SET bucket = 'b', prefix = ''")
    query(
        site.settings,
        "INSERT INTO object VALUES (:ino, 'f', 1, 5, 'e', 'c', 1, NULL)",
        ino=attr.ino,
    )
    query(site.settings, "UPDATE inode SET drained_version = 1 WHERE ino = :ino", ino=attr.ino)
    yield site


def drain(site: Site) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "gateway.processes.drain", "--config", str(site.config)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30)


def test_a_disk_that_is_not_mounted(used: Site) -> None:
    files = used.settings.files_dir
    files.rename(files.with_name("unmounted"))
    remedy = ("is not mounted", "mount the disk", "spillway adopt files")
    assert_refused(spillway("up", "--config", used.config), *remedy)
    assert not files.exists(), "the data files would be made on the wrong disk"
    assert "is not mounted" in drain(used).stderr
    done = spillway("init", "--config", used.config)
    assert done.returncode == 0
    assert "is not mounted" in done.stdout
    assert_refused(spillway("up", "--config", used.config), *remedy)


def test_lost_bytes_are_adopted_and_said(used: Site) -> None:
    files = used.settings.files_dir
    files.rename(files.with_name("lost"))
    done = spillway("adopt", "files", "--config", used.config)
    assert done.returncode == 1
    assert "1 files have lost bytes" in done.stdout
    done = spillway("fsck", "--repair", "--config", used.config)
    assert "is missing, 5 bytes expected" in done.stdout
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 problems found, 1 left")
    assert query(used.settings, "SELECT key FROM object") == [("f",)]


def test_what_is_fetched_or_set_aside_is_said(used: Site) -> None:
    query(used.settings, "INSERT INTO block_digest SELECT ino, 4194304, '12345678' FROM object")
    files = DataFiles(used.settings.files_dir)
    [(ino, epoch)] = files.walk()
    files.path(ino, epoch).rename(files.path(ino, epoch + 7))
    files.path(ino + 256, epoch).write_bytes(b"of no file")
    done = spillway("adopt", "files", "--config", used.config)
    assert done.returncode == 1, "the bucket does not answer"
    assert "1 files have no data file with their bytes: they are fetched from" in done.stdout
    assert f"2 data files were moved to {files.aside}" in done.stdout
    assert len(list(files.aside.iterdir())) == 2
    done = spillway("adopt", "files", "--config", used.config)
    _files, bucket = done.stdout.splitlines()  # nothing is said of what did not happen
    assert "not compared with the bucket" in bucket and "spillway reconcile" in bucket


def test_another_bucket_is_refused_by_up_and_drain(used: Site) -> None:
    used.edit("bucket", "name", '"other"')
    refused = spillway("up", "--config", used.config)
    assert_refused(refused, "'b'", "'other'", "put bucket.name", "spillway adopt bucket")
    assert "spillway adopt bucket" in drain(used).stderr
    done = spillway("adopt", "bucket", "--config", used.config)
    assert done.returncode == 0
    assert "1 files will be sent" in done.stdout
    assert query(used.settings, "SELECT bucket FROM volume") == [("other",)]


def test_a_database_of_yesterday(used: Site) -> None:
    settings = used.settings
    database = Database(settings.database_url)
    assert database.path is not None
    yesterday = database.path.read_bytes()
    namespace = Namespace(settings)
    attr = namespace.create(ROOT_CRED, 2, b"today", SetAttr())
    namespace.files.path(attr.ino, attr.epoch).write_bytes(b"today")
    namespace.close()
    database.path.write_bytes(yesterday)
    for suffix in ("-wal", "-shm"):
        database.path.with_name(database.path.name + suffix).unlink(missing_ok=True)
    refused = spillway("up", "--config", used.config)
    assert_refused(refused, "restored from a backup", "spillway fsck --repair")
    assert spillway("fsck", "--repair", "--config", used.config).returncode == 1
    assert "adopted" in spillway("adopt", "files", "--config", used.config).stdout
    assert spillway("fsck", "--config", used.config).returncode == 0
    aside = DataFiles(settings.files_dir).aside
    assert (aside / f"{attr.ino}.0").read_bytes() == b"today"


def test_adopt_wants_to_know_what(site: Site) -> None:
    assert_refused(spillway("adopt", "--config", site.config), "what")
    assert_refused(spillway("adopt", "names", "--config", site.config), "names")
