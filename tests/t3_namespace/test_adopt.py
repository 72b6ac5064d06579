"""What `spillway adopt files` makes of files whose bytes are of another time than their rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

import pytest

from gateway.common.types import ROOT_CRED, Attr, Residency, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.drain import verify
from gateway.namespace import adopt, content, data_files
from gateway.namespace.adopt import Adopted
from gateway.namespace.data_files import DataFiles
from tests.support.namespace import Namespace
from tests.support.t3.residency import DATA, count, problems, save
from tests.support.volumes import query

OTHER = bytes(reversed(DATA))


@pytest.fixture
def attr(settings: Settings) -> Attr:
    """Make a namespace with one clean file, whose mtime a client has set, and stop it."""
    namespace = Namespace(settings)
    made = save(namespace, settings)
    namespace.close()
    return made


def older_database(settings: Settings) -> None:
    query(settings, "UPDATE volume SET mark = mark - 1")


def newer_database(settings: Settings) -> None:
    query(settings, "UPDATE volume SET mark = mark + 5")


def no_stamp(settings: Settings) -> None:
    (settings.files_dir / data_files.NAME).unlink()


def adopted(settings: Settings) -> Adopted:
    database, files = Database(settings.database_url), DataFiles(settings.files_dir)
    return adopt.adopt_files(database, files, partial(verify.is_unchanged, database, files))


def with_digest(settings: Settings, ino: int) -> None:
    """Record the checksum of the data of a file, as the drain does."""
    query(settings, "DELETE FROM block_digest")
    checksum = f"md5:{hashlib.md5(DATA).hexdigest()}"
    query(settings, "INSERT INTO digest VALUES (:ino, 1, :sum, 1)", ino=ino, sum=checksum)


@pytest.mark.parametrize("how", [older_database, newer_database, no_stamp])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_without_bytes_in_a_backup_is_not_sent_empty(
    settings: Settings, how: Callable[[Settings], None], is_open: bool
) -> None:
    """A client wrote it after the backup, the drain sent it, and the disk is lost."""
    namespace = Namespace(settings)
    ino = namespace.create(ROOT_CRED, 2, b"f", SetAttr()).ino
    namespace.close()
    query(
        settings, "UPDATE inode SET write_open = :open WHERE ino = :ino", open=int(is_open), ino=ino
    )
    if not is_open:
        query(settings, "UPDATE inode SET content_version = 1 WHERE ino = :ino", ino=ino)
    how(settings)
    assert adopted(settings) == (1, 1, 0, 0, 0)
    row = "SELECT write_open, content_version, drained_version FROM inode WHERE kind = 1"
    before = query(settings, row)
    Namespace(settings).close()
    assert query(settings, row) == before, "the start must not seal it as an empty file"
    assert count(settings, "damage") == 1


def test_an_empty_file_of_the_same_time_is_whole(settings: Settings) -> None:
    namespace = Namespace(settings)
    ino = namespace.create(ROOT_CRED, 2, b"f", SetAttr()).ino
    namespace.close()
    query(settings, "UPDATE inode SET content_version = 1 WHERE ino = :ino", ino=ino)
    assert adopted(settings) == (1, 0, 0, 0, 0)


def test_a_file_that_a_client_had_open_keeps_its_bytes(settings: Settings, attr: Attr) -> None:
    """The next start seals what its data file has."""
    query(settings, "UPDATE inode SET write_open = 1, size = 0 WHERE ino = :ino", ino=attr.ino)
    older_database(settings)
    assert adopted(settings) == (1, 0, 0, 0, 0)
    namespace = Namespace(settings)
    assert namespace.getattr(attr.ino).size == len(DATA)
    namespace.close()


def test_bytes_of_an_older_disk_are_fetched_again(settings: Settings, attr: Attr) -> None:
    """The file was rewritten in place with as many bytes after the snapshot of the disk."""
    files = DataFiles(settings.files_dir)
    files.path(attr.ino, attr.epoch).write_bytes(OTHER)
    newer_database(settings)
    assert adopted(settings) == (1, 0, 0, 1, 1)
    namespace = Namespace(settings)
    found = namespace.getattr(attr.ino)
    assert (found.residency, found.epoch) == (Residency.ABSENT, attr.epoch + 1)
    namespace.close()
    assert (files.aside / f"{attr.ino}.{attr.epoch}").read_bytes() == OTHER
    assert problems(settings) == []


def test_bytes_of_an_older_disk_that_the_bucket_lacks_are_damage(
    settings: Settings, attr: Attr
) -> None:
    query(settings, "UPDATE inode SET content_version = 2 WHERE ino = :ino", ino=attr.ino)
    DataFiles(settings.files_dir).path(attr.ino, attr.epoch).write_bytes(OTHER)
    newer_database(settings)
    assert adopted(settings) == (1, 1, 0, 0, 0)
    [(reason,)] = query(settings, "SELECT reason FROM damage")
    assert str(reason).endswith("has bytes of an earlier time")


@pytest.mark.parametrize("how", [older_database, newer_database])
def test_verified_bytes_are_kept_with_the_time_that_a_client_set(
    settings: Settings, attr: Attr, how: Callable[[Settings], None]
) -> None:
    with_digest(settings, attr.ino)
    how(settings)
    assert adopted(settings) == (1, 0, 0, 0, 0)
    namespace = Namespace(settings)
    # Clients may know a higher value of changes that an older database lacks.
    step = content.CRASH_CHANGE_STEP if how is older_database else 0
    assert namespace.getattr(attr.ino) == attr._replace(change=attr.change + step)
    assert namespace.getattr(ROOT_INO).change > step
    namespace.close()


def test_bytes_that_differ_from_their_digest_are_newer_than_an_older_database(
    settings: Settings, attr: Attr
) -> None:
    with_digest(settings, attr.ino)
    DataFiles(settings.files_dir).path(attr.ino, attr.epoch).write_bytes(OTHER)
    older_database(settings)
    assert adopted(settings) == (1, 0, 1, 0, 0)
    rows = query(settings, "SELECT content_version, drained_version FROM inode WHERE kind = 1")
    assert rows == [(2, 1)]
