"""A namespace opens only with its own data files, and only if both are of the same time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.common import failpoints
from gateway.common.errors import IdentityError, TryAgain
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.db.models import CHECKPOINTS_INO, PROMOTED_INO
from gateway.namespace import adopt, content, data_files, fsck, identity
from gateway.namespace.data_files import DataFiles
from tests.support.namespace import Namespace
from tests.support.t3.crash import run
from tests.support.volumes import make_settings, make_volume, query

ROOT = 2


def save(namespace: Namespace, name: bytes, data: bytes) -> int:
    attr = namespace.create(ROOT_CRED, ROOT, name, SetAttr())
    path = namespace.files.path(attr.ino, attr.epoch)
    path.write_bytes(data)
    namespace.seal(attr.ino, Sealed(len(data), 4096, path.stat().st_mtime_ns, 1))
    return attr.ino


def reserve(namespace: Namespace, directory: int) -> int:
    """Make a file that the gateway shows."""
    namespace.files.incoming.mkdir(exist_ok=True)
    (namespace.files.incoming / "made").write_bytes(b"54321")
    made = namespace.install(GATEWAY_CRED, directory, b"kept", b"made", SetAttr())
    return made.attr.ino


def state(settings: Settings) -> list[tuple[object, ...]]:
    """Return the rows that a refused start must not change."""
    rows = query(settings, "SELECT boot, mark, next_ino FROM volume")
    return rows + query(settings, "SELECT ino, size, write_open, content_version FROM inode")


@pytest.fixture
def stopped(settings: Settings) -> Settings:
    """Make a namespace with one file, and stop it."""
    namespace = Namespace(settings)
    save(namespace, b"f", b"12345")
    namespace.close()
    return settings


def unmount(settings: Settings) -> None:
    settings.files_dir.rename(settings.files_dir.with_name("unmounted"))
    DataFiles(settings.files_dir).create()


def remove_the_directory(settings: Settings) -> None:
    settings.files_dir.rename(settings.files_dir.with_name("unmounted"))


def change_stamp(settings: Settings, **values: object) -> None:
    path = settings.files_dir / data_files.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def copy_the_files(settings: Settings) -> None:
    original = settings.files_dir.with_name("original")
    settings.files_dir.rename(original)
    shutil.copytree(original, settings.files_dir)


def put_back_an_older_snapshot(settings: Settings) -> None:
    old = (settings.files_dir / data_files.NAME).read_text()
    Namespace(settings).close()
    (settings.files_dir / data_files.NAME).write_text(old)


def restore_an_older_database(settings: Settings) -> None:
    [(mark,)] = query(settings, "SELECT mark FROM volume")
    Namespace(settings).close()
    query(settings, "UPDATE volume SET mark = :mark, boot = boot - 1", mark=mark)


def damage_the_stamp(settings: Settings) -> None:
    (settings.files_dir / data_files.NAME).write_text("{")


@pytest.mark.parametrize(
    ("surprise", "said"),
    [
        (unmount, "is not mounted"),
        (remove_the_directory, "is not mounted"),
        (lambda s: change_stamp(s, fs_id="00" * 16), "another namespace"),
        (lambda s: change_stamp(s, gateway="00" * 16), "another gateway"),
        (copy_the_files, "is a copy"),
        (put_back_an_older_snapshot, "older than the database"),
        (restore_an_older_database, "restored from a backup"),
        (damage_the_stamp, "cannot be read"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_other_surroundings_are_refused_and_nothing_changes(
    stopped: Settings, surprise: Callable[[Settings], None], said: str
) -> None:
    surprise(stopped)
    before = state(stopped)
    with pytest.raises(IdentityError, match=said):
        Namespace(stopped)
    assert state(stopped) == before


@pytest.mark.parametrize("surprise", [copy_the_files, restore_an_older_database, damage_the_stamp])
def test_a_person_can_adopt_the_files(
    stopped: Settings, surprise: Callable[[Settings], None]
) -> None:
    surprise(stopped)
    if surprise is damage_the_stamp:
        (stopped.files_dir / data_files.NAME).unlink()
    database = Database(stopped.database_url)
    assert adopt.adopt_files(database, DataFiles(stopped.files_dir)) == (1, 0, 0, 0, 0)
    namespace = Namespace(stopped)
    assert namespace.lookup(ROOT, b"f").size == 5
    namespace.close()
    assert fsck.check(database, DataFiles(stopped.files_dir)) == []


def test_files_of_another_namespace_are_never_adopted(stopped: Settings) -> None:
    change_stamp(stopped, fs_id="00" * 16)
    with pytest.raises(IdentityError, match="directory of its own"):
        adopt.adopt_files(Database(stopped.database_url), DataFiles(stopped.files_dir))


def test_adopting_an_empty_disk_keeps_files_and_objects(stopped: Settings) -> None:
    [(ino,)] = query(stopped, "SELECT ino FROM inode WHERE kind = 1")
    query(stopped, "INSERT INTO object VALUES (:ino, 'k', 1, 5, 'e', 'c', 1, NULL)", ino=ino)
    query(stopped, "UPDATE inode SET drained_version = 1 WHERE ino = :ino", ino=ino)
    unmount(stopped)
    database = Database(stopped.database_url)
    assert adopt.adopt_files(database, DataFiles(stopped.files_dir)) == (1, 1, 0, 0, 0)
    Namespace(stopped).close()
    assert query(stopped, "SELECT key, content_version FROM object") == [("k", 1)]
    [problem] = fsck.check(database, DataFiles(stopped.files_dir), repair=True)
    assert (problem.check, problem.repair) == ("damaged", "")
    assert "is missing, 5 bytes expected" in problem.detail


def test_numbers_of_adopted_files_are_not_handed_out_again(stopped: Settings) -> None:
    query(stopped, "UPDATE volume SET next_ino = 100, mark = 0")
    stray = DataFiles(stopped.files_dir).path(5000, 0)
    stray.write_bytes(b"of a file that the backup does not know")
    adopt.adopt_files(Database(stopped.database_url), DataFiles(stopped.files_dir))
    namespace = Namespace(stopped)
    assert namespace.create(ROOT_CRED, ROOT, b"new", SetAttr()).ino > 5000
    namespace.close()


def test_bytes_newer_than_a_restored_database_are_drained_again(stopped: Settings) -> None:
    [(ino,)] = query(stopped, "SELECT ino FROM inode WHERE kind = 1")
    DataFiles(stopped.files_dir).path(ino, 0).write_bytes(b"1234567")
    query(stopped, "UPDATE volume SET mark = 0")
    database = Database(stopped.database_url)
    assert adopt.adopt_files(database, DataFiles(stopped.files_dir)) == (1, 0, 1, 0, 0)
    rows = query(stopped, "SELECT size, content_version - drained_version FROM inode WHERE kind=1")
    assert rows == [(7, 2)]


def test_receipts_of_a_restored_database_are_no_lost_bytes(stopped: Settings) -> None:
    namespace = Namespace(stopped)
    receipt = reserve(namespace, CHECKPOINTS_INO)
    namespace.close()
    DataFiles(stopped.files_dir).path(receipt, 0).unlink()
    query(stopped, "UPDATE volume SET mark = 0")
    database = Database(stopped.database_url)
    assert adopt.adopt_files(database, DataFiles(stopped.files_dir)) == (1, 0, 0, 0, 0)


def test_a_rewrite_of_the_same_length_is_drained_again(stopped: Settings) -> None:
    [(ino,)] = query(stopped, "SELECT ino FROM inode WHERE kind = 1")
    DataFiles(stopped.files_dir).path(ino, 0).write_bytes(b"54321")
    query(stopped, "UPDATE volume SET mark = 0")
    database = Database(stopped.database_url)
    assert adopt.adopt_files(database, DataFiles(stopped.files_dir)) == (1, 0, 1, 0, 0)


def test_another_namespaces_files_are_not_moved_by_a_repair(stopped: Settings) -> None:
    stray = DataFiles(stopped.files_dir).path(5000, 0)
    stray.write_bytes(b"theirs")
    change_stamp(stopped, fs_id="00" * 16)
    broken_invariants = fsck.check(
        Database(stopped.database_url), DataFiles(stopped.files_dir), repair=True
    )
    assert {problem.check for problem in broken_invariants} == {"stamp", "data file without inode"}
    assert not any(problem.repair for problem in broken_invariants)
    assert stray.read_bytes() == b"theirs"


def adopt_and_die(settings: Settings, failpoint: str) -> None:
    database = Database(settings.database_url)
    run = Session.run

    def dies(session: Session, statement: Statement, **params: Any) -> int:
        if statement is sql.MARK:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(session, statement, **params)

    session_class: Any = Session
    session_class.run = dies
    adopt.adopt_files(database, DataFiles(settings.files_dir))


def test_an_interrupted_adoption_does_not_take_damaged_bytes_for_newer_ones(
    stopped: Settings,
) -> None:
    """The data files are older than the database, and one of them is too short."""
    [(ino,)] = query(stopped, "SELECT ino FROM inode WHERE kind = 1")
    DataFiles(stopped.files_dir).path(ino, 0).write_bytes(b"12")
    query(stopped, "UPDATE volume SET mark = mark + 5")
    assert run(adopt_and_die, stopped, "") == -signal.SIGKILL
    database = Database(stopped.database_url)
    assert adopt.adopt_files(database, DataFiles(stopped.files_dir)) == (1, 1, 0, 0, 0)
    assert query(stopped, "SELECT size FROM inode WHERE kind = 1") == [(5,)]


def marks(settings: Settings) -> list[tuple[int, ...]]:
    """Return the mark of the database, and those of the stamp if they differ from it."""
    stamp = data_files.read(settings.files_dir)
    assert stamp is not None
    [mark] = query(settings, "SELECT mark FROM volume")
    return [mark] if mark == stamp.marks else [mark, stamp.marks]


def test_the_mark_moves_while_something_changes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "MARK_SECONDS", 0.0)
    namespace = Namespace(settings)
    [(first,)] = marks(settings)
    namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
    for _ in range(2):
        namespace.keep_mark_now()
        assert marks(settings) == [(first + 1,)], "the second time nothing had changed"
    namespace.close()


def test_a_stop_moves_the_mark_and_nothing_is_committed_after_it(settings: Settings) -> None:
    namespace = Namespace(settings)
    namespace.create(ROOT_CRED, ROOT, b"a", SetAttr())
    [(before,)] = marks(settings)
    namespace.close()
    assert marks(settings) == [(before + 1,)]
    stamp = data_files.read(settings.files_dir)
    assert stamp is not None and stamp.is_stopped
    with pytest.raises(TryAgain):
        namespace.create(ROOT_CRED, ROOT, b"b", SetAttr())
    assert query(settings, "SELECT count(*) FROM dirent WHERE name = :name", name=b"b") == [(0,)]


def back_up(settings: Settings, target: Path) -> None:
    path = Database(settings.database_url).path
    assert path is not None
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)


def put_back(settings: Settings, backup: Path) -> None:
    path = Database(settings.database_url).path
    assert path is not None
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shutil.copy(backup, path)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path / "data")
    make_volume(made)
    return made


def change_and_end(settings: Settings, how: str) -> None:
    namespace = Namespace(settings)
    save(namespace, b"before", b"12345")
    back_up(settings, settings.data_dir / "backup.db")
    save(namespace, b"after", b"12345")
    if how == "stop":
        namespace.close()
    os._exit(0)


@pytest.mark.parametrize(
    ("how", "said"),
    [("stop", "is newer than the database"), ("kill", "may be newer than the database")],
)
def test_a_backup_of_the_last_minute_is_refused(on_sqlite: Settings, how: str, said: str) -> None:
    assert run(change_and_end, on_sqlite, how) == 0
    put_back(on_sqlite, on_sqlite.data_dir / "backup.db")
    before = state(on_sqlite)
    with pytest.raises(IdentityError, match=said):
        Namespace(on_sqlite)
    assert state(on_sqlite) == before
    database, files = Database(on_sqlite.database_url), DataFiles(on_sqlite.files_dir)
    assert adopt.adopt_files(database, files).aside == 1
    namespace = Namespace(on_sqlite)
    assert namespace.lookup(ROOT, b"before").change > content.CRASH_CHANGE_STEP
    namespace.close()


def test_a_database_that_was_copied_after_a_stop_is_the_same(on_sqlite: Settings) -> None:
    assert run(change_and_end, on_sqlite, "stop") == 0
    back_up(on_sqlite, on_sqlite.data_dir / "backup.db")
    put_back(on_sqlite, on_sqlite.data_dir / "backup.db")
    namespace = Namespace(on_sqlite)
    assert namespace.lookup(ROOT, b"after")
    namespace.close()


def test_a_stamp_of_an_earlier_release_is_understood(stopped: Settings) -> None:
    path = stopped.files_dir / data_files.NAME
    document = json.loads(path.read_text())
    for key in ("lineage", "is_stopped", "is_behind"):
        del document[key]
    path.write_text(json.dumps(document))
    Namespace(stopped).close()


def start(settings: Settings, failpoint: str) -> None:
    failpoints.arm(failpoint)
    Namespace(settings)
    os._exit(0)


@pytest.mark.parametrize(
    "failpoint", ["move_mark.1", failpoints.BEFORE_COMMIT, failpoints.AFTER_COMMIT]
)
def test_a_crash_while_the_mark_moves_refuses_nothing(stopped: Settings, failpoint: str) -> None:
    for _ in range(2):
        assert run(start, stopped, failpoint) == -signal.SIGKILL
    Namespace(stopped).close()


def test_a_first_start_wants_some_of_the_bytes(stopped: Settings) -> None:
    """The database is older than the stamps, and its disk is not mounted."""
    query(stopped, "UPDATE volume SET gateway = NULL")
    unmount(stopped)
    with pytest.raises(IdentityError, match="none of the files"):
        Namespace(stopped)
    shutil.rmtree(stopped.files_dir)
    stopped.files_dir.with_name("unmounted").rename(stopped.files_dir)
    (stopped.files_dir / data_files.NAME).unlink()
    Namespace(stopped).close()


def test_a_lost_data_file_is_not_sealed_as_empty(settings: Settings) -> None:
    namespace = Namespace(settings)
    ino = save(namespace, b"f", b"checkpoint\n")
    query(settings, "INSERT INTO object VALUES (:ino, 'f', 1, 11, 'e', 'c', 1, NULL)", ino=ino)
    query(settings, "UPDATE inode SET drained_version = 1 WHERE ino = :ino", ino=ino)
    namespace.open_write(ino)
    namespace.close()
    namespace.files.path(ino, 0).unlink()
    for _ in range(2):
        namespace = Namespace(settings)
        assert namespace.recovered == (0, 0)
        assert namespace.getattr(ino).size == 11
        namespace.close()
    assert query(settings, "SELECT write_open FROM inode WHERE ino = :ino", ino=ino) == [(1,)]
    [problem] = fsck.check(Database(settings.database_url), namespace.files)
    assert problem.check == "damaged"
    assert "is missing, 11 bytes expected" in problem.detail


def test_a_directory_that_never_had_a_file_can_be_taken(tmp_path: Path, settings: Settings) -> None:
    Namespace(settings).close()
    url = f"sqlite:///{tmp_path}/another.db"
    other = make_settings(settings.data_dir, {"namespace": {"url": url}})
    make_volume(other)
    namespace = Namespace(other)
    save(namespace, b"f", b"12345")
    namespace.close()
    with pytest.raises(IdentityError, match="another namespace"):
        Namespace(settings)


@pytest.fixture
def bucket_site(tmp_path: Path) -> Settings:
    made = make_settings(tmp_path / "data")
    make_volume(made)
    Namespace(made).close()
    return made


def at_bucket(settings: Settings, **values: str) -> None:
    changed = make_settings(settings.data_dir, {"bucket": {"name": "checkpoints", **values}})
    identity.require_bucket(Database(changed.database_url), changed.bucket)


def test_another_bucket_or_prefix_is_refused_once_something_was_drained(
    bucket_site: Settings,
) -> None:
    at_bucket(bucket_site, name="a-typo")
    at_bucket(bucket_site, prefix="p")
    query(bucket_site, "INSERT INTO object VALUES (2, 'p/k', 1, 5, 'e', 'c', 1, NULL)")
    at_bucket(bucket_site, prefix="p")
    for other in ({"name": "other", "prefix": "p"}, {"prefix": "q"}):
        with pytest.raises(IdentityError, match=r"put bucket\.name and bucket\.prefix back"):
            at_bucket(bucket_site, **other)
    assert query(bucket_site, "SELECT bucket, prefix FROM volume") == [("checkpoints", "p")]


def test_an_adopted_bucket_gets_everything_again(bucket_site: Settings) -> None:
    namespace = Namespace(bucket_site)
    ino = save(namespace, b"f", b"12345")
    promoted, receipt = (reserve(namespace, at) for at in (PROMOTED_INO, CHECKPOINTS_INO))
    namespace.close()
    at_bucket(bucket_site)
    for one, key in ((ino, "f"), (promoted, ".spillway/promoted/kept")):
        query(
            bucket_site,
            "INSERT INTO object VALUES (:ino, :key, 1, 5, 'e', 'c', 1, NULL)",
            ino=one,
            key=key,
        )
    query(bucket_site, "UPDATE inode SET drained_version = 1 WHERE ino = :ino", ino=ino)
    query(
        bucket_site,
        "INSERT INTO tombstone (key, ino, content_version, deleted_ns) VALUES ('gone', 9, 1, 1)",
    )
    other = make_settings(bucket_site.data_dir, {"bucket": {"name": "other"}})
    assert adopt.adopt_bucket(Database(other.database_url), other.bucket) == 2
    at_bucket(bucket_site, name="other")
    # A promoted file is sent too, and a receipt never is.
    rows = query(other, "SELECT ino, drained_version FROM inode WHERE kind = 1 AND reserved = 1")
    assert dict(rows) == {promoted: 0, receipt: 1}
    assert query(other, "SELECT drained_version FROM inode WHERE ino = :ino", ino=ino) == [(0,)]
    assert query(other, "SELECT key FROM object UNION SELECT key FROM tombstone") == []
    assert fsck.check(Database(other.database_url), DataFiles(other.files_dir)) == []
    query(other, "UPDATE inode SET drained_version = 1 WHERE ino = :ino", ino=promoted)
    columns = "name, state, ino, path, note, asked_by, asked_ns, top, generation, files, size"
    values = "'n', 'done', 2, 'f', '', 'me', 1, :ino, 1, 1, 5"
    query(other, f"INSERT INTO promotion ({columns}) VALUES ({values})", ino=promoted)
    member = "('n', :ino, 'kept', 4, 1, 2, 1, 'k', 1)"
    query(other, f"INSERT INTO promotion_member VALUES {member}", ino=promoted)
    [problem] = fsck.check(Database(other.database_url), DataFiles(other.files_dir), repair=True)
    assert problem.check == "drained without object"
    assert fsck.check(Database(other.database_url), DataFiles(other.files_dir)) == []


def test_a_bucket_that_has_the_only_bytes_is_not_left(bucket_site: Settings) -> None:
    namespace = Namespace(bucket_site)
    ino = save(namespace, b"f", b"12345")
    namespace.close()
    query(
        bucket_site, "UPDATE inode SET drained_version = 1, residency = 0 WHERE ino = :ino", ino=ino
    )
    with pytest.raises(IdentityError, match="only in the former bucket"):
        adopt.adopt_bucket(Database(bucket_site.database_url), bucket_site.bucket)
