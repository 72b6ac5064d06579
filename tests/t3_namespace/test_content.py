"""Content versions move before a byte is written, are sealed afterwards, and survive a crash."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.common import errors
from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.namespace import names
from gateway.namespace.content import CRASH_CHANGE_STEP
from gateway.namespace.data_files import DataFiles
from tests.support.disks import ThinDisk
from tests.support.namespace import Namespace
from tests.support.t3.names import ROOT, create, mkdir
from tests.support.volumes import query


class Row(NamedTuple):
    content_version: int
    drained_version: int
    write_open: int
    size: int


def row(settings: Settings, ino: int) -> Row | None:
    columns = ", ".join(Row._fields)
    rows = query(settings, f"SELECT {columns} FROM inode WHERE ino = :ino", ino=ino)
    return Row(*rows[0]) if rows else None


def drained(settings: Settings, ino: int, key: str) -> None:
    """Record a file as drained, as the drain does."""
    [(version,)] = query(
        settings,
        "UPDATE inode SET drained_version = content_version WHERE ino = :ino"
        " RETURNING content_version",
        ino=ino,
    )
    query(
        settings,
        "INSERT INTO object VALUES (:ino, :key, :version, 1, 'e', 'c', 1, NULL)",
        ino=ino,
        key=key,
        version=version,
    )


def test_a_new_file_is_open_for_writing_and_dirty(namespace: Namespace, settings: Settings) -> None:
    assert row(settings, create(namespace, b"f").ino) == Row(1, 0, 1, 0)


def test_seal_records_what_the_data_file_said(namespace: Namespace, settings: Settings) -> None:
    attr = create(namespace, b"f")
    sealed = namespace.seal(attr.ino, Sealed(size=10, used=4096, mtime_ns=77, writes=3))
    assert (sealed.size, sealed.used, sealed.mtime_ns) == (10, 4096, 77)
    assert sealed.change == attr.change + 3
    assert row(settings, attr.ino) == Row(1, 0, 0, 10)


def test_a_seal_with_writes_of_a_file_that_is_not_open_is_a_new_version(
    namespace: Namespace, settings: Settings
) -> None:
    attr = create(namespace, b"f")
    namespace.seal(attr.ino, Sealed(10, 4096, 77, 3))
    drained(settings, attr.ino, "f")
    sealed = namespace.seal(attr.ino, Sealed(size=20, used=8192, mtime_ns=88, writes=2))
    assert (sealed.size, sealed.used, sealed.mtime_ns) == (20, 8192, 88)
    assert sealed.change == attr.change + 5
    # The bucket has version 1, which does not have these bytes.
    assert row(settings, attr.ino) == Row(2, 1, 0, 20)
    unchanged = namespace.seal(attr.ino, Sealed(0, 0, 0, writes=0))
    assert unchanged == sealed
    assert row(settings, attr.ino) == Row(2, 1, 0, 20)


def test_opening_for_write_moves_the_version_first(
    namespace: Namespace, settings: Settings
) -> None:
    attr = create(namespace, b"f")
    namespace.seal(attr.ino, Sealed(10, 4096, 77, 3))
    drained(settings, attr.ino, "f")
    namespace.open_write(attr.ino)
    assert row(settings, attr.ino) == Row(2, 1, 1, 10)


def test_an_open_without_a_write_stays_clean(namespace: Namespace, settings: Settings) -> None:
    attr = create(namespace, b"f")
    namespace.seal(attr.ino, Sealed(10, 4096, 77, 3))
    drained(settings, attr.ino, "f")
    namespace.open_write(attr.ino)
    namespace.seal(attr.ino, Sealed(0, 0, 0, writes=0))
    assert row(settings, attr.ino) == Row(2, 2, 0, 10)
    assert query(settings, "SELECT content_version FROM object") == [(2,)]


def test_an_empty_file_that_was_never_drained_stays_dirty(
    namespace: Namespace, settings: Settings
) -> None:
    attr = create(namespace, b"f")
    namespace.seal(attr.ino, Sealed(0, 0, 0, writes=0))
    assert row(settings, attr.ino) == Row(1, 0, 0, 0)


def test_every_seal_begins_to_settle(namespace: Namespace, settings: Settings) -> None:
    for name, writes in ((b"empty", 0), (b"written", 1)):
        attr = create(namespace, name)
        namespace.seal(attr.ino, Sealed(0, 0, 0, writes))
        [(after_ns,)] = query(
            settings, "SELECT drain_after_ns FROM inode WHERE ino = :ino", ino=attr.ino
        )
        assert after_ns > attr.ctime_ns


def test_only_files_are_written(namespace: Namespace) -> None:
    with pytest.raises(errors.InvalidArgument):
        namespace.open_write(mkdir(namespace, b"d").ino)
    with pytest.raises(errors.Stale):
        namespace.open_write(987_654)


def test_removing_a_drained_file_licenses_one_deletion(
    namespace: Namespace, settings: Settings
) -> None:
    attr = create(namespace, b"f")
    namespace.seal(attr.ino, Sealed(1, 1, 1, 1))
    drained(settings, attr.ino, "dir/f")
    create(namespace, b"never-drained")
    namespace.remove(ROOT_CRED, ROOT, b"f")
    namespace.remove(ROOT_CRED, ROOT, b"never-drained")
    assert query(settings, "SELECT key FROM tombstone") == [("dir/f",)]
    assert query(settings, "SELECT key FROM object") == []


def test_renames_are_noted_where_objects_may_be(namespace: Namespace, settings: Settings) -> None:
    attr = create(namespace, b"f")
    directory = mkdir(namespace, b"d")
    namespace.rename(ROOT_CRED, ROOT, b"f", ROOT, b"g")
    assert query(settings, "SELECT ino FROM rekey") == []
    drained(settings, attr.ino, "g")
    namespace.rename(ROOT_CRED, ROOT, b"g", ROOT, b"h")
    namespace.rename(ROOT_CRED, ROOT, b"h", ROOT, b"i")
    namespace.rename(ROOT_CRED, ROOT, b"d", ROOT, b"e")
    assert query(settings, "SELECT ino FROM rekey ORDER BY ino") == [
        (attr.ino,),
        (directory.ino,),
    ]


def test_losing_one_of_two_names_is_noted(namespace: Namespace, settings: Settings) -> None:
    attr = create(namespace, b"f")
    drained(settings, attr.ino, "f")
    namespace.link(ROOT_CRED, attr.ino, ROOT, b"g")
    namespace.remove(ROOT_CRED, ROOT, b"f")
    assert query(settings, "SELECT ino FROM rekey") == [(attr.ino,)]
    assert query(settings, "SELECT key FROM tombstone") == []


def test_orphans_live_until_they_are_reclaimed(namespace: Namespace, settings: Settings) -> None:
    attr = create(namespace, b"f")
    path = namespace.files.path(attr.ino, attr.epoch)
    path.write_bytes(b"bytes")
    removed = namespace.remove(ROOT_CRED, ROOT, b"f")
    assert removed.nlink == 0
    assert path.exists()
    namespace.reclaim(attr.ino, attr.epoch)
    namespace.setattr(ROOT, SetAttr())  # the writer works in order
    assert row(settings, attr.ino) is None
    assert not path.exists()


def test_a_reclaim_whose_answer_was_lost_is_done_again(
    namespace: Namespace, settings: Settings
) -> None:
    attr = create(namespace, b"f")
    namespace.remove(ROOT_CRED, ROOT, b"f")
    assert namespace.run(names.reclaim, attr.ino)
    assert namespace.run(names.reclaim, attr.ino)


def test_reclaim_spares_what_has_a_name(namespace: Namespace, settings: Settings) -> None:
    attr = create(namespace, b"f")
    namespace.reclaim(attr.ino, attr.epoch)
    namespace.setattr(ROOT, SetAttr())
    assert row(settings, attr.ino) is not None


def test_a_crash_seals_open_files_and_reclaims_orphans(
    namespace: Namespace, settings: Settings
) -> None:
    written, empty, orphan = (create(namespace, name) for name in (b"w", b"e", b"o"))
    for attr, data in ((written, b"x" * 5000), (orphan, b"y")):
        namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
    namespace.remove(ROOT_CRED, ROOT, b"o")
    namespace.close()

    after = Namespace(settings)
    assert after.recovered == (2, 1)
    assert after.boot.boot == namespace.boot.boot + 1
    found = after.getattr(written.ino)
    assert found.size == 5000
    # Larger than anything a client can have seen before the crash: more than a billion writes.
    assert CRASH_CHANGE_STEP > 1_000_000_000
    assert found.change == written.change + CRASH_CHANGE_STEP
    assert after.getattr(empty.ino).size == 0
    assert row(settings, orphan.ino) is None
    assert not after.files.path(orphan.ino, orphan.epoch).exists()
    # Clients may reconnect and continue to write, so the drain waits for them.
    wait = query(settings, "SELECT drain_after_ns FROM inode WHERE ino = :ino", ino=written.ino)
    assert wait[0][0] > found.ctime_ns
    after.close()


def test_a_data_file_that_cannot_be_opened_keeps_no_start_away(
    namespace: Namespace, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole, orphan = (create(namespace, name) for name in (b"b", b"w", b"o"))
    namespace.files.path(whole.ino, whole.epoch).write_bytes(b"bytes")
    for attr in (broken, orphan):
        namespace.files.path(attr.ino, attr.epoch).mkdir()
    namespace.remove(ROOT_CRED, ROOT, b"o")
    namespace.close()

    after = Namespace(settings)
    assert after.recovered == (1, 1)
    assert row(settings, broken.ino) == Row(1, 0, 1, 0), "it is neither sealed nor drained"
    assert after.getattr(broken.ino).change == broken.change + CRASH_CHANGE_STEP
    assert after.damages(0, 10) == [], "its bytes are not lost"
    for attr, said in ((broken, "cannot be opened"), (orphan, "cannot be deleted")):
        path = str(namespace.files.path(attr.ino, attr.epoch))
        assert any(path in line and said in line for line in caplog.messages)
    after.close()

    namespace.files.path(broken.ino, broken.epoch).rmdir()
    namespace.files.path(broken.ino, broken.epoch).write_bytes(b"mended")
    again = Namespace(settings)
    assert again.recovered == (1, 0)
    assert again.getattr(broken.ino).size == len(b"mended")
    again.close()


def test_a_damaged_file_is_never_sealed_by_a_restart(
    namespace: Namespace, settings: Settings
) -> None:
    lost, whole = create(namespace, b"lost"), create(namespace, b"whole")
    for attr in (lost, whole):
        namespace.files.path(attr.ino, attr.epoch).write_bytes(b"some of it")
    before = namespace.getattr(lost.ino).change
    namespace.damaged(lost.ino, "fdatasync failed: Input/output error")
    namespace.damaged(lost.ino, "fdatasync failed: No space left on device")
    assert query(settings, "SELECT ino, content_version, reason FROM damage") == [
        (lost.ino, 1, "fdatasync failed: No space left on device")
    ]
    namespace.close()

    after = Namespace(settings)
    assert after.recovered == (1, 0)
    assert row(settings, lost.ino) == Row(1, 0, 1, 0)
    assert row(settings, whole.ino) == Row(1, 0, 0, 10)
    # Clients saw `change` grow with each write, and it must not go back.
    assert after.getattr(lost.ino).change == before + CRASH_CHANGE_STEP
    assert after.damages(0, 10) == [lost.ino]
    assert after.damages(lost.ino, 10) == []
    # After a client has emptied the file, it is not damaged any more.
    after.whole(lost.ino)
    assert after.damages(0, 10) == []
    after.close()
    again = Namespace(settings)
    assert again.recovered == (1, 0)
    again.close()


def test_bytes_that_a_start_cannot_put_on_the_disk_are_never_sealed(
    settings: Settings, tmp_path: Path
) -> None:
    """The kernel reports the error only once, so the next start would find no error."""
    disk = ThinDisk(settings.files_dir, tmp_path / "pool", 48, 256)
    try:
        files = DataFiles(settings.files_dir)
        files.create()
        namespace = Namespace(settings)
        lost, empty = create(namespace, b"lost"), create(namespace, b"empty")
        with files.path(lost.ino, lost.epoch).open("wb") as file:
            file.write(b"x" * (64 << 20))  # the write succeeds, and nothing is synced
        namespace.crash()

        after = Namespace(settings)
        assert after.recovered == (1, 0)
        assert after.damages(0, 10) == [lost.ino]
        assert row(settings, lost.ino) == Row(1, 0, 1, 0)
        assert after.getattr(lost.ino).change == lost.change + CRASH_CHANGE_STEP
        assert row(settings, empty.ino) == Row(1, 0, 0, 0)
        [(reason,)] = query(settings, "SELECT reason FROM damage")
        assert reason.startswith("its data file could not be synced: ")
        after.crash()
        disk.mend()
        again = Namespace(settings)
        assert again.recovered == (0, 0)
        assert row(settings, lost.ino) == Row(1, 0, 1, 0)
        again.close()
    finally:
        disk.remove()


def test_a_damage_goes_with_its_file(namespace: Namespace, settings: Settings) -> None:
    attr = create(namespace, b"f")
    namespace.damaged(attr.ino, "lost")
    namespace.remove(ROOT_CRED, ROOT, b"f")
    namespace.reclaim(attr.ino, attr.epoch)
    assert query(settings, "SELECT ino FROM damage") == []
    with pytest.raises(errors.Stale):
        namespace.damaged(attr.ino, "lost")
