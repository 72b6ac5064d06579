"""Only the gateway changes ``/.spillway``. Clients read it, except the trash."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from gateway.common import errors
from gateway.common.patterns import IncompleteNames
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, Attr, InodeKind, SetAttr
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import (
    CHECKPOINTS_INO,
    PROMOTED_INO,
    RESERVED_INO,
    RESERVED_NAME,
    RUNS_INO,
    TRASH_INO,
)
from gateway.drain.paths import Paths
from gateway.namespace import fsck, reserved
from gateway.namespace.data_files import DataFiles
from tests.support import trash
from tests.support.namespace import Namespace
from tests.support.volumes import query
from tests.support.waiting import until

ROOT = 2
THEIRS = SetAttr(mode=0o755)


def problems(settings: Settings) -> list[str]:
    files = DataFiles(settings.files_dir)
    return [
        broken_invariant.check
        for broken_invariant in fsck.check(Database(settings.database_url), files)
    ]


def install(
    namespace: Namespace, name: bytes, data: bytes, parent: int = CHECKPOINTS_INO
) -> reserved.Installed:
    namespace.files.incoming.mkdir(exist_ok=True)
    (namespace.files.incoming / "made").write_bytes(data)
    return namespace.install(GATEWAY_CRED, parent, name, b"made", SetAttr(mode=0o444))


def data_of(namespace: Namespace, attr: Attr) -> bytes:
    return namespace.files.path(attr.ino, attr.epoch).read_bytes()


def test_every_start_finds_the_directories(namespace: Namespace, settings: Settings) -> None:
    def shape() -> list[tuple[object, ...]]:
        return query(
            settings,
            "SELECT d.parent, i.ino, i.mode, i.uid, i.nlink, i.reserved FROM inode i"
            " JOIN dirent d ON d.ino = i.ino WHERE i.ino BETWEEN 3 AND 7 ORDER BY i.ino",
        )

    expected = [
        (ROOT, RESERVED_INO, 0o555, 0, 5, 1),
        (RESERVED_INO, TRASH_INO, 0o700, 0, 2, 1),
        *((RESERVED_INO, ino, 0o555, 0, 2, 1) for ino in (PROMOTED_INO, RUNS_INO, CHECKPOINTS_INO)),
    ]
    assert shape() == expected
    assert namespace.getattr(ROOT).nlink == 2
    namespace.close()
    query(settings, "DELETE FROM dirent WHERE ino = 5")
    query(settings, "DELETE FROM inode WHERE ino = 5")
    query(settings, "UPDATE inode SET nlink = 4 WHERE ino = 3")
    Namespace(settings).close()
    assert [row[1] for row in shape()] == [3, 4, 5, 6, 7]


def test_clients_find_it_and_do_not_list_it(namespace: Namespace) -> None:
    namespace.mkdir(ROOT_CRED, ROOT, b"d", THEIRS)
    assert [dirent.name for dirent in namespace.readdir(ROOT, 0, 10)] == [b"d"]
    assert namespace.lookup(ROOT, RESERVED_NAME).ino == RESERVED_INO
    shown = [dirent.name for dirent in namespace.readdir(RESERVED_INO, 0, 10)]
    assert shown == [b"promoted", b"runs", b"checkpoints"]
    thrown = namespace.mkdir(GATEWAY_CRED, TRASH_INO, b"thrown", THEIRS)
    for parent, name in ((RESERVED_INO, b"trash"), (TRASH_INO, b"thrown")):
        assert namespace.lookup(parent, name, is_gateway=True)
        with pytest.raises(errors.NotFound):
            namespace.lookup(parent, name)
    with pytest.raises(errors.NotFound):
        namespace.readdir(TRASH_INO, 0, 10)
    assert namespace.readdir(thrown.ino, 0, 10) == []


def test_every_change_by_a_client_is_refused(namespace: Namespace, settings: Settings) -> None:
    theirs, runs, cred = namespace.mkdir(ROOT_CRED, ROOT, b"d", THEIRS).ino, RUNS_INO, ROOT_CRED
    file = namespace.create(ROOT_CRED, theirs, b"f", SetAttr()).ino
    ours = namespace.mkdir(GATEWAY_CRED, runs, b"run", SetAttr(mode=0o777)).ino
    target = namespace.symlink(GATEWAY_CRED, ours, b"link", b"../x", SetAttr()).ino
    receipt = install(namespace, b"file", b"bytes", ours).attr.ino
    refused: list[Callable[[], object]] = [
        *(
            call
            for at in (RESERVED_INO, runs, ours)
            for call in (
                lambda at=at: namespace.create(cred, at, b"new", SetAttr()),
                lambda at=at: namespace.mkdir(cred, at, b"new", THEIRS),
                lambda at=at: namespace.symlink(cred, at, b"new", b"x", SetAttr()),
                lambda at=at: namespace.mknod(cred, at, b"new", InodeKind.FIFO, 0, SetAttr()),
                lambda at=at: namespace.link(cred, file, at, b"new"),
                lambda at=at: namespace.rename(cred, theirs, b"f", at, b"new"),
                lambda at=at: namespace.setattr(at, SetAttr(mode=0o777)),
                lambda at=at: namespace.setxattr(cred, at, b"a", b"b"),
                lambda at=at: namespace.removexattr(cred, at, b"a"),
            )
        ),
        lambda: namespace.remove(cred, ROOT, RESERVED_NAME),
        lambda: namespace.remove(cred, RESERVED_INO, b"promoted"),
        lambda: namespace.remove(cred, runs, b"run"),
        lambda: namespace.remove(cred, ours, b"link"),
        lambda: namespace.remove(cred, ours, b"file"),
        lambda: namespace.create(cred, ours, b"file", SetAttr()),
        lambda: namespace.rename(cred, ROOT, RESERVED_NAME, ROOT, b"x"),
        lambda: namespace.rename(cred, ROOT, b"d", ROOT, RESERVED_NAME),
        lambda: namespace.rename(cred, ours, b"file", theirs, b"x"),
        lambda: namespace.rename(cred, ours, b"file", ours, b"x"),
        lambda: namespace.rename(cred, theirs, b"f", ours, b"file"),
        lambda: namespace.link(cred, receipt, theirs, b"x"),
        lambda: namespace.setattr(receipt, SetAttr(mtime_ns=1)),
        lambda: namespace.setattr(target, SetAttr(uid=1)),
        lambda: namespace.setxattr(cred, receipt, b"a", b"b"),
        lambda: namespace.open_write(receipt),
        lambda: namespace.open_emptied(receipt),
        # Nor may the gateway: a reserved inode in a client's directory breaks the invariant.
        lambda: namespace.rename(GATEWAY_CRED, ours, b"file", theirs, b"x"),
        lambda: namespace.link(GATEWAY_CRED, receipt, theirs, b"x"),
        # And one of clients would be changed by them in a reserved one.
        lambda: namespace.rename(GATEWAY_CRED, theirs, b"f", ours, b"x"),
        lambda: namespace.remove(GATEWAY_CRED, RESERVED_INO, b"promoted"),
        lambda: namespace.rename(GATEWAY_CRED, RESERVED_INO, b"trash", runs, b"trash"),
        lambda: namespace.install(ROOT_CRED, ours, b"new", b"made", SetAttr()),
        lambda: namespace.install(GATEWAY_CRED, theirs, b"new", b"made", SetAttr()),
    ]
    before = query(settings, "SELECT * FROM inode ORDER BY ino")
    names = query(settings, "SELECT * FROM dirent ORDER BY parent, name")
    (namespace.files.incoming / "made").write_bytes(b"x")
    for number, call in enumerate(refused):
        with pytest.raises(errors.ReadOnly):
            call()
            raise AssertionError(f"call {number} was not refused")
    assert query(settings, "SELECT * FROM inode ORDER BY ino") == before
    assert query(settings, "SELECT * FROM dirent ORDER BY parent, name") == names
    namespace.close()
    assert problems(settings) == []


def test_the_gateway_changes_it(namespace: Namespace, settings: Settings) -> None:
    made = namespace.mkdir(GATEWAY_CRED, RUNS_INO, b"run", SetAttr(mode=0o555))
    for number, target in enumerate((b"../a", b"../b")):
        namespace.symlink(GATEWAY_CRED, made.ino, b"new", target, SetAttr())
        _moved, replaced = namespace.rename(GATEWAY_CRED, made.ino, b"new", made.ino, b"latest")
        assert (replaced is not None) == bool(number)
    link = namespace.lookup(made.ino, b"latest")
    assert (made.reserved, link.reserved) == (1, 1)
    assert namespace.readlink(link.ino) == b"../b"
    # A checkpoint goes into the trash and back, and stays a client's.
    top = namespace.mkdir(ROOT_CRED, ROOT, b"step-1", THEIRS).ino
    namespace.create(ROOT_CRED, top, b"shard", SetAttr())
    trash.discard(settings, namespace, ROOT, b"step-1", b"1")
    assert namespace.getattr(ROOT).nlink == 2
    assert namespace.getattr(TRASH_INO).nlink == 3
    trash.take_back(settings, namespace, b"1", ROOT, b"step-1")
    assert namespace.lookup(top, b"shard").reserved == 0
    namespace.remove(ROOT_CRED, top, b"shard")
    namespace.remove(GATEWAY_CRED, made.ino, b"latest")
    namespace.remove(GATEWAY_CRED, RUNS_INO, b"run")
    namespace.close()
    assert problems(settings) == []


def test_an_installed_file_replaces_and_is_never_dirty(
    namespace: Namespace, settings: Settings
) -> None:
    first = install(namespace, b"1.json", b"one")
    second = install(namespace, b"1.json", b"second")
    assert first.removed is None
    assert second.removed is not None
    assert second.removed.ino == first.attr.ino
    attr = namespace.lookup(CHECKPOINTS_INO, b"1.json")
    assert (attr.size, attr.nlink, attr.reserved, attr.mode) == (6, 1, 1, 0o444)
    assert data_of(namespace, attr) == b"second"
    assert namespace.dirty_bytes() == 0
    with pytest.raises(errors.Busy):
        namespace.evict(attr.ino, 1)
    namespace.mkdir(GATEWAY_CRED, CHECKPOINTS_INO, b"run", THEIRS)
    (namespace.files.incoming / "directory").mkdir()
    for name, prepared, error in (
        (b"run", b"made", errors.IsADirectory),
        (b"new", b"gone", errors.NotFound),
        (b"new", b"../files", errors.InvalidArgument),
        (b"new", b"directory", errors.InvalidArgument),
    ):
        (namespace.files.incoming / "made").write_bytes(b"x")
        with pytest.raises(error):
            namespace.install(GATEWAY_CRED, CHECKPOINTS_INO, name, prepared, SetAttr())
    # The file that was replaced is an orphan until its last handle goes. A refusal leaves nothing.
    left = query(settings, "SELECT ino FROM inode WHERE nlink = 0")
    assert left == [(first.attr.ino,)]
    namespace.close()
    assert problems(settings) == []
    (namespace.files.incoming / "left").write_bytes(b"x")
    again = Namespace(settings)
    assert [path.name for path in again.files.incoming.iterdir()] == ["directory"]
    assert {ino for ino, _epoch in again.files.walk()} == {attr.ino}
    assert data_of(again, again.getattr(attr.ino)) == b"second"
    again.close()


def test_files_that_are_installed_together_share_commits(
    namespace: Namespace, settings: Settings
) -> None:
    namespace.files.incoming.mkdir(exist_ok=True)
    names = [f"{number}.json".encode() for number in range(8)]
    for name in names:
        (namespace.files.incoming / name.decode()).write_bytes(name)

    def put(name: bytes) -> errors.NamespaceError | None:
        parent = ROOT if name == names[-1] else CHECKPOINTS_INO
        try:
            namespace.install(GATEWAY_CRED, parent, name, name, SetAttr())
        except errors.NamespaceError as exc:
            return exc
        return None

    before = namespace.commits.commits
    with ThreadPoolExecutor(len(names)) as threads:
        with namespace._install._running:
            answers = [threads.submit(put, name) for name in names]
            until(lambda: len(namespace._install._waiting) == len(names), "all of them wait")
        namespace_errors = [answer.result() for answer in answers]
    # The first commit is of all of them.
    assert namespace.commits.commits - before <= 1 + len(names)
    # One that is refused harms no other.
    assert [type(error) for error in namespace_errors] == [type(None)] * 7 + [errors.ReadOnly]
    for name in names[:-1]:
        assert data_of(namespace, namespace.lookup(CHECKPOINTS_INO, name)) == name
    namespace.close()
    assert problems(settings) == []


def test_fsck_knows_the_invariant(namespace: Namespace, settings: Settings) -> None:
    ino = install(namespace, b"1.json", b"one").attr.ino
    namespace.close()
    query(settings, "UPDATE dirent SET parent = 2 WHERE ino = :ino", ino=ino)
    assert problems(settings) == ["reserved"]


def test_an_entry_of_a_client_with_the_name_stays(
    namespace: Namespace, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    query(settings, "DELETE FROM dirent WHERE ino BETWEEN 3 AND 7")
    query(settings, "DELETE FROM inode WHERE ino BETWEEN 3 AND 7")
    theirs = namespace.mkdir(ROOT_CRED, ROOT, b"d", THEIRS).ino
    query(settings, "UPDATE dirent SET name = :name WHERE ino = :i", name=RESERVED_NAME, i=theirs)
    for _ in range(2):
        namespace.close()
        namespace = Namespace(settings)
        assert namespace.lookup(ROOT, RESERVED_NAME).ino == theirs
        assert "let a client give it another name" in caplog.text
    assert [dirent.name for dirent in namespace.readdir(ROOT, 0, 9)] == [RESERVED_NAME]
    file = namespace.create(ROOT_CRED, theirs, b"f", SetAttr()).ino
    assert key_of(settings, file) == "p/%2Espillway/f"
    namespace.rename(ROOT_CRED, ROOT, RESERVED_NAME, ROOT, b"d")
    namespace.close()
    Namespace(settings).close()
    assert problems(settings) == []
    assert query(settings, "SELECT count(*) FROM inode WHERE reserved = 1") == [(5,)]


def key_of(settings: Settings, ino: int) -> str | None:
    database = Database(settings.database_url)
    with closing(database), database.reader() as connection:
        paths = Paths(Session(connection, database.dialect), IncompleteNames([]), "p")
        key = paths.key_of(ino)
        assert key is None or paths.owner(key) == ino
        return key


def test_files_in_it_have_keys_that_no_client_reaches(
    namespace: Namespace, settings: Settings
) -> None:
    file = namespace.create(ROOT_CRED, ROOT, b"f", SetAttr()).ino
    promoted = namespace.mkdir(GATEWAY_CRED, PROMOTED_INO, b"best", THEIRS).ino
    trash.reserve(settings, file)
    namespace.rename(GATEWAY_CRED, ROOT, b"f", promoted, b"x")
    assert key_of(settings, file) == "p/.spillway/promoted/best/x"
    deep = namespace.mkdir(ROOT_CRED, ROOT, b"d", THEIRS).ino
    inner = namespace.mkdir(ROOT_CRED, deep, RESERVED_NAME, THEIRS).ino
    other = namespace.create(ROOT_CRED, inner, b"x", SetAttr()).ino
    assert key_of(settings, other) == "p/d/.spillway/x"
