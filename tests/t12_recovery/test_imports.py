"""Imports: objects of other programs become files that clients read and nothing changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from gateway.catalogue.store import catalogue_of
from gateway.common.clock import NS
from gateway.common.errors import (
    ControlSocketClosed,
    NotEmpty,
    NotPossible,
    ObjectRefused,
    ReadOnly,
    UserError,
)
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, InodeKind, Residency, SetAttr
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.drain.context import Context
from gateway.namespace import fsck, names, reserved
from gateway.objectstore.imported import AnyRanges, ImportedStore, settings_of
from gateway.objectstore.ranges import ObjectLocation
from gateway.objectstore.s3 import S3Store
from gateway.recovery import import_orders
from gateway.recovery.importer import Importer
from gateway.rpc.frames import Op
from gateway.service.durability import DurabilityWait
from tests.support.direct import Direct, reclaim
from tests.support.drainsite import PREFIX, Site
from tests.support.imports import Imports
from tests.support.postgres import PostgresServer
from tests.support.s3server import Server
from tests.support.t12.names import copied
from tests.support.t12.restored import RestoredSite

MakeSite = Callable[..., Site]


@pytest.fixture(params=["sqlite", "postgres"])
def imports(
    request: pytest.FixtureRequest, make_site: MakeSite, rclone: Server, postgres: PostgresServer
) -> Iterator[Imports]:
    """A gateway, on each engine, and a bucket of another program."""
    url = postgres.create_database() if request.param == "postgres" else ""
    made = Imports(make_site(rclone, url))
    yield made
    made.close()


@pytest.fixture
def lite(make_site: MakeSite, rclone: Server) -> Iterator[Imports]:
    """A gateway on SQLite, and a bucket of another program."""
    made = Imports(make_site(rclone))
    yield made
    made.close()


def assert_at_rest(imports: Imports) -> None:
    """Require that fsck finds nothing, and that nothing was written to the other bucket."""
    site = imports.site
    site.namespace.close()
    found = fsck.check(imports.database, site.namespace.files)
    assert found == [], found
    assert imports.writes() == []


def test_objects_become_files(each_site: Site) -> None:
    imports = Imports(each_site)
    bodies = {f"train/{n % 3}/{n:04}.jpg": b"x" * n for n in range(20)}
    for key, body in bodies.items():
        imports.put(f"set/{key}", body)
    imports.put("settings/other", b"not below the prefix")
    each_site.proxy.forget()
    top = imports.all()
    assert imports.files(top) == {key: len(body) for key, body in bodies.items()}
    found = imports.tree(top)
    assert found["train"].kind == InodeKind.DIRECTORY
    assert (found["train"].mode, found["train"].nlink, found["train"].reserved) == (0o555, 5, 1)
    empty, full = found["train/0/0000.jpg"], found["train/1/0001.jpg"]
    assert (empty.residency, full.residency) == (Residency.RESIDENT, Residency.ABSENT)
    assert (full.mode, full.uid, full.reserved) == (0o444, 0, 1)
    head = each_site.client.head_object(Bucket=imports.bucket, Key="set/train/1/0001.jpg")
    assert full.mtime_ns // NS == int(head["LastModified"].timestamp())
    row = imports.row()
    assert (row.state, row.files, row.size) == ("whole", 20, sum(map(len, bodies.values())))
    each_site.drain()
    assert each_site.is_clean()
    assert each_site.objects() == {}
    assert_at_rest(imports)
    imports.close()


def test_clients_change_nothing(imports: Imports) -> None:
    imports.put("set/a/b", b"1")
    namespace = imports.site.namespace
    top = imports.begin()
    # Also not while it is empty.
    with pytest.raises(ReadOnly):
        namespace.remove(ROOT_CRED, ROOT_INO, b"data")
    imports.run()
    [directory, file] = imports.tree(top).values()
    with pytest.raises(ReadOnly):
        namespace.remove(ROOT_CRED, directory.ino, b"b")
    with pytest.raises(ReadOnly):
        namespace.open_write(file.ino)
    with pytest.raises(ReadOnly):
        namespace.create(ROOT_CRED, top, b"new", SetAttr())
    with pytest.raises(ReadOnly):
        namespace.run(names.link, ROOT_CRED, file.ino, ROOT_INO, b"link")
    with pytest.raises(ReadOnly):
        namespace.rename(ROOT_CRED, ROOT_INO, b"data", ROOT_INO, b"other")
    with pytest.raises((ReadOnly, NotEmpty)):
        namespace.remove(ROOT_CRED, ROOT_INO, b"data")
    # The gateway alone places it, and nothing else that is its own.
    attr = namespace.mkdir(GATEWAY_CRED, top, b"new", SetAttr(mode=0o755))
    with pytest.raises(ReadOnly):
        namespace.rename(GATEWAY_CRED, top, b"new", ROOT_INO, b"new")
    assert attr.reserved


def test_what_cannot_be_a_name_is_left_out(make_site: MakeSite, moto: Server) -> None:
    imports = Imports(make_site(moto))
    long = "n" * 256
    wrong = ["a//b", "../c", "x/./y", f"d/{long}", "//", "dir/sub/x//", ".spillway/owner.json"]
    for key in (*wrong, "good", "dir/good", "file", "file/below", "empty/", "dir/\x01\u00e9"):
        imports.put(f"set/{key}")
    imports.put("set/full/", b"bytes")
    top = imports.all()
    found = imports.tree(top)
    assert sorted(found) == ["dir", "dir/\x01\u00e9", "dir/good", "empty", "file", "good"]
    assert (found["file"].kind, found["empty"].kind) == (InodeKind.REGULAR, InodeKind.DIRECTORY)
    row = imports.row()
    assert row.left_out == len(wrong) + 2
    assert {key for key, _why in row.left_out_first} == {
        f"set/{key}" for key in (*wrong, "file/below", "full/")
    }
    assert_at_rest(imports)
    imports.close()


def test_a_source_of_its_own_is_refused(lite: Imports) -> None:
    settings = lite.site.settings
    own = settings.bucket.name
    for prefix in ("", "/", f"/{PREFIX}", f"/{PREFIX}/run", "/team/"):
        with pytest.raises(UserError, match="reconcile --import"):
            import_orders.source_of(settings, f"s3://{own}{prefix}")
    assert import_orders.source_of(settings, f"s3://{own}/team/other/") == (own, "team/other")
    assert import_orders.source_of(settings, "s3://data") == ("data", "")
    for url in ("data", "https://data/x", "s3:///x", "s3://data/x?y=1"):
        with pytest.raises(UserError, match="write s3://"):
            import_orders.source_of(settings, url)


def test_a_taken_place_is_refused_and_leaves_nothing(lite: Imports) -> None:
    lite.site.write("data", b"mine")
    with pytest.raises(NotPossible, match="has this name already"):
        lite.begin()
    assert lite.rows() == []
    assert_at_rest(lite)


def test_new_changed_and_gone_objects_are_taken(imports: Imports) -> None:
    site = imports.site
    for name in "abc":
        imports.put(f"set/dir/{name}", b"old " + name.encode())
    top = imports.all()
    before = imports.tree(top)
    imports.put("set/dir/a", b"a newer one")
    imports.delete("set/dir/b")
    imports.put("set/dir/d", b"new")
    site.proxy.forget()
    imports.refresh(top)
    imports.run()
    after = imports.tree(top)
    assert sorted(after) == ["dir", "dir/a", "dir/b", "dir/c", "dir/d"]
    # A changed file is another one: who has the former one open never reads bytes of both.
    assert after["dir/a"].ino != before["dir/a"].ino
    assert after["dir/a"].size == len(b"a newer one")
    assert [after[f"dir/{name}"].ino for name in "bc"] == [before[f"dir/{n}"].ino for n in "bc"]
    row = imports.row()
    assert (row.files, row.gone) == (4, 1)
    # It is back.
    imports.put("set/dir/b", b"old b")
    imports.refresh(top)
    imports.run()
    row = imports.row()
    assert (row.files, row.gone) == (4, 0)
    assert imports.writes() == []
    assert_at_rest(imports)


def test_a_refresh_of_what_is_as_it_was_writes_nothing(lite: Imports) -> None:
    for n in range(30):
        lite.put(f"set/{n}")
    top = lite.all()
    [(before,)] = lite.site.rows("SELECT sum(change) FROM inode")
    lite.refresh(top)
    lite.control.asked.clear()
    lite.run()
    assert lite.site.rows("SELECT sum(change) FROM inode") == [(before,)]
    assert lite.control.asked == []


def test_a_removal_takes_names_and_leaves_the_bucket(imports: Imports) -> None:
    for n in range(5):
        imports.put(f"set/{n % 2}/{n}", b"x")
    keys = imports.keys()
    top = imports.all()
    imports.site.proxy.forget()
    imports.remove(top)
    imports.run()
    assert imports.rows() == []
    assert [entry.name for entry in imports.site.namespace.readdir(ROOT_INO, 0, 10)] == []
    reclaim(imports.site.namespace)
    assert imports.site.rows("SELECT * FROM imported_object") == []
    assert imports.keys() == keys
    # The path is free for another import.
    top = imports.all()
    assert len(imports.files(top)) == 5
    assert_at_rest(imports)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_restore_brings_them_back_and_lists_them_again(
    imports: Imports, engine: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    site = imports.site
    imports.put("set/dir/a", b"one")
    imports.put("set/dir/b", b"two")
    top = imports.all()
    before = imports.tree(top)
    # The disk that is lost had the bytes of one.
    ino = before["dir/a"].ino
    site.rows(f"UPDATE inode SET residency = 2 WHERE ino = {ino} RETURNING 1")
    with copied(site) as copy:
        copy.all()
    imports.put("set/dir/c", b"three")
    url = postgres.create_database() if engine == "postgres" else ""
    gateway = RestoredSite(site, tmp_path / "new", url)
    restored = gateway.restore()
    assert (restored.problems, restored.lost) == ([], [])
    rows = "SELECT i.ino, i.residency, o.key, o.etag FROM inode i JOIN imported_object o"
    found = gateway.rows(f"{rows} ON o.ino = i.ino ORDER BY i.ino")
    assert [row[:3] for row in found] == [
        (before[f"dir/{name}"].ino, Residency.ABSENT, f"set/dir/{name}") for name in "ab"
    ]
    assert gateway.rows("SELECT top, state, last_key FROM imported_prefix") == [
        (top, "listing", None)
    ]
    with closing(Database(gateway.settings.database_url)) as database:
        importer = Importer(
            gateway.settings, database, threading.Event(), lambda: nullcontext(control)
        )
        control = Direct(gateway.settings)
        try:
            importer.step()
            importer.step()
        finally:
            control.close()
    assert gateway.rows("SELECT state, files, error FROM imported_prefix") == [("whole", 3, None)]
    assert gateway.problems() == []


def test_they_are_no_checkpoints_and_nothing_waits_for_them(lite: Imports) -> None:
    """A data set may look like a checkpoint."""
    site = lite.site
    index = json.dumps({"weight_map": {"a": "model-00001.safetensors"}}).encode()
    for above in ("", "step-10/"):
        lite.put(f"set/{above}model.safetensors.index.json", index)
        lite.put(f"set/{above}model-00001.safetensors", b"x")
    top = lite.all()
    site.drain()
    catalogue = catalogue_of(site.settings, lite.database)
    inos = [top, *(attr.ino for attr in lite.tree(top).values())]
    with catalogue.viewing() as view:
        assert view.concerned(inos).roots == {}
    context = Context(site.settings, lite.database, S3Store(site.settings))
    inside = lite.tree(top)["step-10"].ino
    for ino in (ROOT_INO, top, inside, lite.tree(top)["model-00001.safetensors"].ino):
        assert DurabilityWait(context, ino, "/data").look() is None


def test_no_request_that_changes_something_is_sent(lite: Imports) -> None:
    key, etag = "set/a", lite.put("set/a", b"x")
    store = ImportedStore(settings_of(lite.site.settings, lite.bucket))
    place = ObjectLocation(key, etag, bucket=lite.bucket)
    ranges = AnyRanges(lite.site.settings)
    head = store.head(key)
    assert head is not None
    archived = ranges.archived(place)
    lite.site.proxy.forget()
    changes: tuple[Callable[[], object], ...] = (
        lambda: store.put(key, b"y", {}),
        lambda: store.begin(key, {}),
        lambda: store.copy(key, "set/b", head, {}),
        lambda: ranges.restore(place, archived, "Standard", 1),
    )
    for change in changes:
        with pytest.raises(ObjectRefused, match="nothing is changed in the bucket of an import"):
            change()
    assert lite.site.proxy.operations() == []


def test_what_the_server_was_not_told_is_told_by_the_next_process(
    lite: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    lite.put("set/dir/a")
    top = lite.begin()

    def fail(_requests: object) -> None:
        raise ControlSocketClosed("it went away")

    with monkeypatch.context() as patch:
        patch.setattr(lite.control, "run", fail)
        lite.importer().step()
    assert lite.row().untold_inos == [top]
    assert lite.row().error == "it went away"
    lite.control.asked.clear()
    lite.importer().step()
    assert [(request.op, request.ino) for request in lite.control.asked] == [(Op.GETATTR, top)]


def test_what_is_asked_for_during_a_listing_is_listed_after_it(
    lite: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.recovery.importer.TOGETHER", 1)
    for name in "bc":
        lite.put(f"set/{name}")
    top = lite.begin()
    importer = lite.importer()
    importer.step()
    lite.put("set/a")
    lite.refresh(top)
    lite.run(importer)
    assert sorted(lite.files(top)) == ["a", "b", "c"]


def test_what_is_given_back_to_clients_keeps_its_imports(lite: Imports) -> None:
    """A checkpoint that is taken out of the trash, say, with an import in it."""
    lite.put("set/a", b"x")
    parent = lite.site.directory("run")
    ino = lite.site.write("run/mine", b"1")
    top = lite.all()
    lite.site.rows(f"UPDATE dirent SET parent = {parent} WHERE ino = {top} RETURNING 1")
    reserved.reserve(lite.database, parent)
    reserved.give_back(lite.database, parent)
    found = lite.site.rows("SELECT ino FROM inode WHERE reserved = 1 AND ino > 15 ORDER BY ino")
    assert found == [(top,), (lite.tree(top)["a"].ino,)]
    assert not lite.site.namespace.getattr(ino).reserved
