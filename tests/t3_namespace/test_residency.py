"""Files are evicted only under every condition, come back whole, and no data file is lost by it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gateway.common import clock, errors
from gateway.common.types import ROOT_CRED, Attr, DataFileOnDisk, Residency, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace import adopt, content, data_files
from gateway.namespace.data_files import DataFiles
from tests.support.namespace import Namespace
from tests.support.t3.names import ROOT, mkdir
from tests.support.t3.residency import DATA, count, evict, problems, save
from tests.support.volumes import query


def fetched(namespace: Namespace, settings: Settings, attr: Attr, data: bytes) -> None:
    """Put some verified blocks into the data file, as the hydrator does."""
    namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
    query(
        settings,
        "INSERT INTO present_blocks VALUES (:ino, :epoch, 4194304, :blocks)",
        ino=attr.ino,
        epoch=attr.epoch,
        blocks=b"\1",
    )


def test_a_file_whose_bytes_are_younger_than_its_row_is_not_evicted(
    namespace: Namespace, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The database is older than the disk, and no start has noticed."""
    attr = save(namespace, settings)
    wrong = (
        DataFileOnDisk(attr.size + 1, attr.mtime_ns),
        DataFileOnDisk(attr.size - 1, attr.mtime_ns),
        DataFileOnDisk(attr.size, attr.ctime_ns + 1),
    )
    for disk in wrong:
        with pytest.raises(errors.Busy):
            namespace.evict(attr.ino, 1, disk)
    assert caplog.text.count("the database may be older than the disk") == len(wrong)
    # It came back from the bucket after its row was written.
    namespace.note_reads([(attr.ino, attr.ctime_ns + 1)])
    assert namespace.evict(attr.ino, 1, wrong[-1]).residency == Residency.ABSENT


def test_a_clean_file_is_evicted_and_arrives_again(
    namespace: Namespace, settings: Settings
) -> None:
    attr = save(namespace, settings)
    evicted = namespace.evict(attr.ino, 1)
    assert evicted == attr._replace(epoch=attr.epoch + 1, residency=Residency.ABSENT)
    assert evicted == namespace.getattr(attr.ino)
    assert query(settings, "SELECT ino, epoch FROM eviction") == [(attr.ino, attr.epoch)]
    fetched(namespace, settings, evicted, DATA)
    query(settings, "INSERT INTO warm_request VALUES (:ino, 1)", ino=attr.ino)
    for epoch, version in ((attr.epoch, 1), (evicted.epoch, 2)):
        with pytest.raises(errors.Stale):
            namespace.arrived(attr.ino, epoch, version)
    arrived = namespace.arrived(attr.ino, evicted.epoch, 1)
    assert arrived == evicted._replace(residency=Residency.RESIDENT)
    assert count(settings, "present_blocks") == count(settings, "warm_request") == 0
    assert namespace.arrived(attr.ino, evicted.epoch, 1) == arrived
    with pytest.raises(errors.Stale):
        namespace.arrived(attr.ino, evicted.epoch + 1, 1)


CONDITIONS = {
    "dirty": "UPDATE inode SET content_version = 2 WHERE ino = {ino}",
    "only a snapshot in the bucket": "UPDATE inode SET drained_version = 0 WHERE ino = {ino}",
    "another version in the bucket": "UPDATE object SET content_version = 0 WHERE ino = {ino}",
    "another size in the bucket": "UPDATE object SET size = 6 WHERE ino = {ino}",
    "open": "UPDATE inode SET write_open = 1 WHERE ino = {ino}",
    "no name": "UPDATE inode SET nlink = 0 WHERE ino = {ino}",
    "no object": "DELETE FROM object WHERE ino = {ino}",
    "no digests": "DELETE FROM block_digest WHERE ino = {ino}",
    "damage": "INSERT INTO damage VALUES ({ino}, 1, 'lost', 1)",
    "rekey": "INSERT INTO rekey VALUES ({ino}, 1)",
    "a late request for its key": "INSERT INTO indeterminate_write VALUES ('{key}', 0, 1, 1)",
    "an upload to its key": "INSERT INTO upload VALUES (9999, 1, '{key}', 'id', 1, 1, 0)",
}


def test_nothing_else_is_evicted(namespace: Namespace, settings: Settings) -> None:
    evicted = []
    for number, (name, change) in enumerate(CONDITIONS.items()):
        key = f"f{number}"
        attr = save(namespace, settings, key.encode())
        query(settings, change.format(ino=attr.ino, key=key))
        before = namespace.getattr(attr.ino)
        # The caller knows the newest version; only the other conditions can refuse.
        for version in (1, 2):
            try:
                namespace.evict(attr.ino, version)
                evicted.append(name)
            except errors.Busy:
                assert namespace.getattr(attr.ino) == before
    empty = save(namespace, settings, b"empty")
    query(settings, "UPDATE inode SET size = 0 WHERE ino = :ino", ino=empty.ino)
    query(settings, "UPDATE object SET size = 0 WHERE ino = :ino", ino=empty.ino)
    with pytest.raises(errors.Busy):
        namespace.evict(empty.ino, 1)
    assert evicted == []
    assert count(settings, "eviction") == 0


def test_a_version_that_the_caller_did_not_see_is_not_evicted(
    namespace: Namespace, settings: Settings
) -> None:
    attr = save(namespace, settings)
    for version in (0, 2):
        with pytest.raises(errors.Busy):
            namespace.evict(attr.ino, version)
    with pytest.raises(errors.Busy):
        namespace.evict(mkdir(namespace, b"d").ino, 0)
    with pytest.raises(errors.Stale):
        namespace.evict(987_654, 1)
    assert namespace.evict(attr.ino, 1).residency == Residency.ABSENT


def test_an_absent_file_is_evicted_again_only_if_it_has_blocks(
    namespace: Namespace, settings: Settings
) -> None:
    attr = evict(namespace, save(namespace, settings))
    with pytest.raises(errors.Busy):
        namespace.evict(attr.ino, 1)
    fetched(namespace, settings, attr, DATA)
    query(settings, "INSERT INTO warm_request VALUES (:ino, 1)", ino=attr.ino)
    again = namespace.evict(attr.ino, 1)
    assert again.epoch == attr.epoch + 1
    assert count(settings, "present_blocks") == count(settings, "warm_request") == 0
    assert query(settings, "SELECT epoch FROM eviction ORDER BY epoch") == [
        (attr.epoch - 1,),
        (attr.epoch,),
    ]


def test_an_absent_file_is_opened_for_writing_only_if_it_is_emptied(
    namespace: Namespace, settings: Settings
) -> None:
    attr = evict(namespace, save(namespace, settings))
    fetched(namespace, settings, attr, DATA)
    query(settings, "INSERT INTO warm_request VALUES (:ino, 1)", ino=attr.ino)
    with pytest.raises(errors.TryAgain):
        namespace.open_write(attr.ino)
    assert namespace.getattr(attr.ino) == attr
    emptied = namespace.open_emptied(attr.ino)
    assert (emptied.size, emptied.used, emptied.epoch) == (0, 0, attr.epoch + 1)
    assert (emptied.residency, emptied.change) == (Residency.RESIDENT, attr.change + 1)
    assert emptied.mtime_ns == emptied.ctime_ns > attr.mtime_ns
    assert count(settings, "present_blocks") == count(settings, "warm_request") == 0
    assert query(
        settings, "SELECT write_open, content_version, drained_version FROM inode WHERE kind = 1"
    ) == [(1, 3, 1)]
    # The answer may be lost: a start seals what is there, nothing, and deletes the old blocks.
    namespace.close()
    after = Namespace(settings)
    assert after.getattr(attr.ino).size == 0
    assert not after.files.path(attr.ino, attr.epoch).exists()
    after.close()
    assert problems(settings) == []


def test_an_emptied_file_without_a_write_is_not_what_the_bucket_has(
    namespace: Namespace, settings: Settings
) -> None:
    """The truncation failed after its commit, and its client did not repeat it."""
    attr = evict(namespace, save(namespace, settings))
    namespace.open_emptied(attr.ino)
    namespace.seal(attr.ino, Sealed(0, 0, 0, 0))
    [(version, drained)] = query(
        settings, "SELECT content_version, drained_version FROM inode WHERE kind = 1"
    )
    assert drained < version


def test_a_resident_file_that_is_emptied_keeps_its_data_file(
    namespace: Namespace, settings: Settings
) -> None:
    attr = save(namespace, settings)
    opened = namespace.open_emptied(attr.ino)
    assert (opened.epoch, opened.size) == (attr.epoch, len(DATA))
    assert count(settings, "eviction") == 0


REASON = "data file 16.0 has 3 bytes, 5 expected"


def damages(settings: Settings) -> list[tuple[int, str]]:
    return [(ino, reason) for ino, reason in query(settings, "SELECT ino, reason FROM damage")]


def test_a_clean_file_whose_data_file_is_lost_is_absent(
    namespace: Namespace, settings: Settings
) -> None:
    attr = save(namespace, settings)
    lost = namespace.lost(attr.ino, REASON)
    assert (lost.residency, lost.epoch) == (Residency.ABSENT, attr.epoch + 1)
    assert (lost.size, lost.change, lost.mtime_ns) == (attr.size, attr.change, attr.mtime_ns)
    assert damages(settings) == []
    assert query(settings, "SELECT ino, epoch FROM eviction") == [(attr.ino, attr.epoch)]
    # Of an absent file only verified copies are on the disk, whatever has become of the object.
    fetched(namespace, settings, lost, DATA)
    query(settings, "DELETE FROM object")
    again = namespace.lost(attr.ino, REASON)
    assert (again.residency, again.epoch) == (Residency.ABSENT, attr.epoch + 2)
    assert count(settings, "present_blocks") == 0
    assert damages(settings) == []


@pytest.mark.parametrize(
    "only_here",
    [
        "UPDATE inode SET write_open = 1",
        "UPDATE inode SET drained_version = 0",
        "UPDATE object SET content_version = 0",
        "UPDATE object SET size = 4",
        "DELETE FROM block_digest",
        "DELETE FROM object",
    ],
)
def test_a_file_that_the_bucket_may_lack_is_damaged_when_its_data_file_is_lost(
    namespace: Namespace, settings: Settings, only_here: str
) -> None:
    attr = save(namespace, settings)
    query(settings, only_here)
    lost = namespace.lost(attr.ino, REASON)
    assert (lost.residency, lost.epoch) == (Residency.RESIDENT, attr.epoch)
    assert damages(settings) == [(attr.ino, REASON)]
    assert count(settings, "eviction") == 0


def test_a_lost_data_file_waits_while_its_object_may_still_change(
    namespace: Namespace, settings: Settings
) -> None:
    attr = save(namespace, settings)
    query(
        settings,
        "INSERT INTO indeterminate_write (key, ino, noted_ns) VALUES ('f', :ino, 1)",
        ino=attr.ino,
    )
    with pytest.raises(errors.TryAgain):
        namespace.lost(attr.ino, REASON)
    assert damages(settings) == []
    query(settings, "DELETE FROM indeterminate_write")
    query(settings, "INSERT INTO rekey (ino, renamed_ns) VALUES (:ino, 1)", ino=attr.ino)
    assert namespace.lost(attr.ino, REASON).residency == Residency.ABSENT


def test_a_pinned_file_whose_data_file_is_lost_is_brought_back_whole(
    namespace: Namespace, settings: Settings
) -> None:
    attr = save(namespace, settings)
    other = save(namespace, settings, b"g")
    query(
        settings,
        "INSERT INTO pin (ino, note, pinned_by, pinned_ns) VALUES (:ino, '', 'x', 1)",
        ino=attr.ino,
    )
    for one in (attr, other):
        assert namespace.lost(one.ino, REASON).residency == Residency.ABSENT
    assert query(settings, "SELECT ino FROM warm_request") == [(attr.ino,)]
    # What a person has asked for comes back, although another data file is lost meanwhile.
    query(settings, "DELETE FROM pin")
    namespace.lost(attr.ino, REASON)
    assert query(settings, "SELECT ino FROM warm_request") == [(attr.ino,)]


def test_reads_are_noted_for_files_that_exist(namespace: Namespace, settings: Settings) -> None:
    first, second = save(namespace, settings, b"f"), save(namespace, settings, b"g")
    namespace.note_reads([(first.ino, 5), (987_654, 6)])
    namespace.note_reads([(first.ino, 7), (second.ino, 8)])
    namespace.note_reads([])
    assert query(settings, "SELECT ino, read_ns FROM last_read ORDER BY ino") == [
        (first.ino, 7),
        (second.ino, 8),
    ]


def test_the_minute_of_a_read_hides_no_arrival_in_it(
    namespace: Namespace, settings: Settings
) -> None:
    attr = save(namespace, settings)
    minute, second = 60 * clock.NS, clock.NS

    def known() -> int:
        [(read_ns,)] = query(settings, "SELECT read_ns FROM last_read")
        return int(read_ns)

    namespace.note_reads([(attr.ino, 10 * minute + 5 * second)])
    namespace.note_reads([(attr.ino, 10 * minute)])
    assert known() == 10 * minute + 5 * second
    namespace.note_reads([(attr.ino, 11 * minute)])
    assert known() == 11 * minute
    # The clock was put back.
    namespace.note_reads([(attr.ino, 2 * minute)])
    assert known() == 2 * minute


def test_what_has_just_arrived_was_used(namespace: Namespace, settings: Settings) -> None:
    """It would otherwise be evicted before files that were read after its upload."""
    for name in (b"f", b"g"):
        attr = evict(namespace, save(namespace, settings, name))
        before_ns = clock.now_ns()
        if name == b"g":
            namespace.note_reads([(attr.ino, 5)])
        namespace.arrived(attr.ino, attr.epoch, 1)
        [(read_ns,)] = query(
            settings, "SELECT read_ns FROM last_read WHERE ino = :ino", ino=attr.ino
        )
        assert before_ns <= read_ns <= clock.now_ns()


def test_a_start_deletes_the_data_files_of_evictions_and_no_others(
    namespace: Namespace, settings: Settings
) -> None:
    evicted, partial, other = (save(namespace, settings, name) for name in (b"a", b"b", b"c"))
    namespace.evict(evicted.ino, 1)
    absent = namespace.evict(partial.ino, 1)
    fetched(namespace, settings, absent, DATA[:2])
    namespace.close()
    # A data file that an eviction row names is no riddle.
    assert problems(settings) == []
    Namespace(settings).close()
    assert set(DataFiles(settings.files_dir).walk()) == {
        (absent.ino, absent.epoch),
        (other.ino, other.epoch),
    }
    assert count(settings, "eviction") == 0
    assert count(settings, "present_blocks") == 1
    assert problems(settings) == []


def test_the_deletions_of_a_start_are_durable_before_their_rows_go(
    namespace: Namespace, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.evict(save(namespace, settings).ino, 1)
    namespace.close()
    synced: list[int] = []
    sync = data_files.sync_directory

    def spy(path: object) -> None:
        synced.append(count(settings, "eviction"))
        sync(path)  # type: ignore[arg-type]

    monkeypatch.setattr(data_files, "sync_directory", spy)
    Namespace(settings).close()
    assert synced == [1]


def test_fsck_knows_what_is_not_on_the_disk(namespace: Namespace, settings: Settings) -> None:
    attr = evict(namespace, save(namespace, settings))
    fetched(namespace, settings, attr, DATA[:1])
    namespace.close()
    assert problems(settings) == []
    query(settings, "DELETE FROM object")
    # Nothing else has the bytes: to call the file dirty would upload a file with holes.
    assert problems(settings, repair=True) == ["absent without object"]
    assert query(settings, "SELECT residency, drained_version FROM inode WHERE kind = 1") == [
        (Residency.ABSENT, 1)
    ]
    assert problems(settings) == ["absent without object"]


def age(settings: Settings) -> None:
    """Make the database older than the data files."""
    query(settings, "UPDATE volume SET mark = mark - 1")


def keep(_settings: Settings) -> None:
    """Leave the database as it is: the disk was replaced."""
    (_settings.files_dir / "stamp.json").unlink()


@pytest.mark.parametrize("how", [age, keep])
def test_adopted_files_are_not_taken_for_the_blocks_of_absent_ones(
    namespace: Namespace, settings: Settings, how: Callable[[Settings], None]
) -> None:
    """The hydrator would overwrite what a client wrote after the backup, or believe in zeros."""
    attr = evict(namespace, save(namespace, settings))
    fetched(namespace, settings, attr, b"newer")
    namespace.close()
    how(settings)
    files = DataFiles(settings.files_dir)
    adopt.adopt_files(Database(settings.database_url), files)
    assert count(settings, "present_blocks") == 0
    assert not files.path(attr.ino, attr.epoch).exists()
    assert (files.aside / f"{attr.ino}.{attr.epoch}").read_bytes() == b"newer"
    Namespace(settings).close()
    assert problems(settings) == []


@pytest.mark.parametrize("how", [age, keep])
def test_adopted_files_of_another_epoch_are_not_written_over(
    namespace: Namespace, settings: Settings, how: Callable[[Settings], None]
) -> None:
    """Later evictions give a file of a restored database the epochs again that it had since."""
    absent = evict(namespace, save(namespace, settings))
    resident = save(namespace, settings, b"resident")
    namespace.close()
    files = DataFiles(settings.files_dir)
    late = [(absent.ino, absent.epoch + 2), (resident.ino, resident.epoch + 1)]
    for ino, epoch in late:
        files.path(ino, epoch).write_bytes(b"newer")
    how(settings)
    adopted = adopt.adopt_files(Database(settings.database_url), files)
    assert (adopted.files, adopted.damaged) == (1, 0)
    assert list(files.walk()) == [(resident.ino, resident.epoch)]
    for ino, epoch in late:
        assert (files.aside / f"{ino}.{epoch}").read_bytes() == b"newer"
    assert problems(settings) == []


@pytest.mark.parametrize("how", [age, keep])
def test_a_file_that_was_evicted_since_the_backup_is_absent(
    namespace: Namespace, settings: Settings, how: Callable[[Settings], None]
) -> None:
    attr = save(namespace, settings)
    namespace.close()
    files = DataFiles(settings.files_dir)
    files.remove(attr.ino, attr.epoch)
    files.path(attr.ino, attr.epoch + 1).write_bytes(b"\0\0\0\0\0")
    how(settings)
    assert adopt.adopt_files(Database(settings.database_url), files) == (1, 0, 0, 1, 1)
    namespace = Namespace(settings)
    evicted = attr._replace(
        residency=Residency.ABSENT,
        epoch=attr.epoch + 1,
        change=attr.change + content.CRASH_CHANGE_STEP,
    )
    assert namespace.getattr(attr.ino) == evicted
    namespace.close()
    assert list(files.walk()) == []
    assert count(settings, "damage") == 0
    assert problems(settings) == []


@pytest.mark.parametrize(
    "condition",
    [
        *("dirty", "only a snapshot in the bucket", "another version in the bucket"),
        *("another size in the bucket", "no object", "no digests", "damage"),
    ],
)
def test_an_adopted_file_that_the_bucket_may_lack_is_damaged(
    namespace: Namespace, settings: Settings, condition: str
) -> None:
    attr = save(namespace, settings)
    namespace.close()
    query(settings, CONDITIONS[condition].format(ino=attr.ino, key="f"))
    files = DataFiles(settings.files_dir)
    files.remove(attr.ino, attr.epoch)
    age(settings)
    assert adopt.adopt_files(Database(settings.database_url), files) == (1, 1, 0, 0, 0)
    assert query(settings, "SELECT residency, epoch FROM inode WHERE kind = 1") == [
        (Residency.RESIDENT, attr.epoch)
    ]


def test_removing_an_absent_file_leaves_nothing(namespace: Namespace, settings: Settings) -> None:
    attr = evict(namespace, save(namespace, settings))
    fetched(namespace, settings, attr, DATA[:1])
    removed = namespace.remove(ROOT_CRED, ROOT, b"f")
    assert (removed.nlink, removed.epoch) == (0, attr.epoch)
    namespace.reclaim(attr.ino, removed.epoch)
    assert [os.fspath(path) for path in settings.files_dir.glob("*/*")] == []
    assert query(settings, "SELECT key FROM tombstone") == [("f",)]
    assert namespace.setattr(ROOT, SetAttr()).ino == ROOT
