"""The bucket alone brings everything back that was durable, and what was not is named."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from gateway.common import clock
from gateway.common.errors import StoreUnavailable, UserError
from gateway.common.types import SetAttr
from gateway.db.engine import Database
from gateway.lifecycle.retention import store as policies
from gateway.lifecycle.retention.policy import of
from gateway.namespace import data_files
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.ownership import Ownership
from gateway.recovery import restore
from gateway.recovery.restore import NamespaceRestore
from tests.support.drainsite import Site
from tests.support.postgres import PostgresServer
from tests.support.t12.names import copied, save
from tests.support.t12.reconcile import made_by, put_object
from tests.support.t12.restored import RestoredSite


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_what_the_bucket_has_comes_back_and_the_rest_is_named(
    each_site: Site, engine: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    site = each_site
    with copied(site) as copy:
        expected = save(site, 10)
        site.drain()
        copy.all()
        expected |= save(site, 20)
        site.drain()
        # This is only on the disk that is lost: a file, a new version, a rename, a deletion.
        site.write("run/step-30/__0_0.distcp", b"lost")
        site.write("run/latest", b"step-30")
        site.rename("run/step-10", "run/kept")
        site.unlink("run/step-20/__2_0.distcp")
        copy.step()
    url = postgres.create_database() if engine == "postgres" else ""
    gateway = RestoredSite(site, tmp_path / "new", url)
    restored = gateway.restore()
    assert restored.problems == []
    assert [(lost.path, lost.size) for lost in restored.lost] == [("run/step-30/__0_0.distcp", 4)]
    assert restored.older == ["run/latest"]
    del expected["run/step-20/__2_0.distcp"]
    assert gateway.contents() == expected
    names = {bytes(name) for (name,) in gateway.rows("SELECT name FROM dirent")}
    assert b"kept" in names
    assert b"step-10" not in names


def test_an_owner_that_the_names_have_is_kept(each_site: Site, tmp_path: Path) -> None:
    """The object was sent before the owner changed, and its metadata has the former one."""
    site = each_site
    ino = site.write("a", b"one")
    site.namespace.setattr(ino, SetAttr(mode=0o600, uid=6, gid=3, mtime_ns=5))
    [(version,)] = site.rows(f"SELECT content_version FROM inode WHERE ino = {ino}")
    with copied(site) as copy:
        copy.all()
    put_object(site, "a", b"one", **made_by(site, ino, version, site.attr("a").generation))
    gateway = RestoredSite(site, tmp_path / "new")
    assert gateway.restore().lost == []
    assert gateway.contents() == {"a": b"one"}
    columns = f"SELECT mode, uid, gid, mtime_ns FROM inode WHERE ino = {ino}"
    assert gateway.rows(columns) == [(0o600, 6, 3, 5)]


def test_policies_ask_again(each_site: Site, tmp_path: Path) -> None:
    site = each_site
    document = {"name": "short", "path": "run/*", "keep_newest": 1, "approve": "automatic"}
    with site.namespace._database.writing() as session:
        policies.put(session, of(document), "a person")
    site.write("run/a", b"one")
    site.drain()
    with copied(site) as copy:
        copy.all()
    gateway = RestoredSite(site, tmp_path / "new")
    restored = gateway.restore()
    assert restored.bucket is not None and not restored.bucket.changes
    with (
        closing(Database(gateway.settings.database_url)) as database,
        database.reading() as session,
    ):
        current = policies.current(session)
        assert [str(policy) for policy in current] == ["short v2"]
        assert policies.consent(session, current).versions == frozenset()


def test_the_former_gateway_writes_nothing_any_more(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("a", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
        RestoredSite(site, tmp_path / "new").restore()
        site.write("b", b"2")
        # What it knew of the bucket is a minute old.
        copy._store.permit = Ownership(site.settings, copy._database).require
        copy.step()
        assert "belongs to another copy of this gateway" in copy.copy.progress().error


def test_what_the_former_gateway_copied_last_is_waited_for(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("a", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
        gateway = RestoredSite(site, tmp_path / "new")
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            # It does not know yet that the bucket was taken.
            copy._store.permit = None
            site.write("b", b"2")
            copy.step()

        gateway.restore(is_gone=False, wait=wait)
    assert waits and waits[0] >= 60
    assert {bytes(name) for (name,) in gateway.rows("SELECT name FROM dirent")} >= {b"a", b"b"}


def test_a_time_can_be_named(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("a", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
        before_ns = clock.now_ns()
        site.write("b", b"2")
        site.drain()
        copy.step()
    with pytest.raises(UserError, match="no copy of the names from that time"):
        RestoredSite(site, tmp_path / "early").restore(at_ns=before_ns - 3600 * clock.NS)
    gateway = RestoredSite(site, tmp_path / "new")
    gateway.restore(at_ns=before_ns)
    assert gateway.contents() == {"a": b"1"}
    # The segment after that time is not loaded.
    loaded = [line for line in gateway.said if "segments of the names loaded" in line]
    assert loaded and not loaded[-1].startswith(loaded[-1].split()[2])
    assert gateway.said[-1].endswith("objects of the bucket compared")


def test_a_namespace_is_never_replaced(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("a", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
    gateway = RestoredSite(site, tmp_path / "new")
    gateway.restore()
    with pytest.raises(UserError, match="has a namespace"):
        gateway.restore()


def test_a_bucket_without_a_copy_says_so(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("a", b"1")
    site.drain()
    with pytest.raises(UserError, match="no copy of the names"):
        RestoredSite(site, tmp_path / "new").restore()
    # Nothing was taken.
    Ownership(site.settings, Database(site.settings.database_url)).require()


def test_objects_that_are_newer_than_the_names_come_back(moto_site: Site, tmp_path: Path) -> None:
    """The drain was quicker than the copy of the names."""
    site = moto_site
    site.write("run/latest", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
    site.write("run/latest", b"22")
    site.write("run/new", b"333")
    site.drain()
    gateway = RestoredSite(site, tmp_path / "new")
    restored = gateway.restore()
    assert restored.lost == []
    assert gateway.contents() == {"run/latest": b"22", "run/new": b"333"}


def test_a_disk_that_was_not_lost_keeps_what_only_it_has(each_site: Site, tmp_path: Path) -> None:
    """Only the database is lost."""
    site = each_site
    site.write("old", b"1")
    site.write("changed", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
        site.write("new", b"22")
        site.write("changed", b"333")
        copy.step()
    site.write("later", b"4444")
    before_ns = clock.now_ns()
    site.namespace.close()
    url = f"sqlite:///{tmp_path}/restored.db"
    settings = replace(site.settings, namespace=replace(site.settings.namespace, url=url))
    other = RestoredSite(site, tmp_path / "other")
    with pytest.raises(UserError, match="data files of today"):
        NamespaceRestore(settings, print).run(before_ns, is_gone=True)
    restored = NamespaceRestore(settings, print).run(is_gone=True)
    assert (restored.lost, restored.older, restored.problems) == ([], [], [])
    other.settings = settings
    assert other.problems() == []
    dirty = other.rows(
        "SELECT name FROM dirent JOIN inode ON inode.ino = dirent.ino "
        "WHERE content_version > drained_version AND residency <> 0 ORDER BY name"
    )
    assert [bytes(name) for (name,) in dirty] == [b"changed", b"new"]
    # The copy of the names does not know this one: its bytes are not deleted.
    assert b"4444" in [path.read_bytes() for path in (settings.files_dir / "set-aside").iterdir()]


def test_a_restore_that_was_cut_off_in_its_last_step_is_ended(
    moto_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = moto_site
    site.write("a", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
    site.write("b", b"22")
    site.drain()
    gateway = RestoredSite(site, tmp_path / "new")

    def cut_off(*_arguments: object, **_named: object) -> NoReturn:
        raise StoreUnavailable("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(restore, "reconcile", cut_off)
        with pytest.raises(StoreUnavailable):
            gateway.restore()
    gateway.restore()
    assert gateway.contents() == {"a": b"1", "b": b"22"}
    with pytest.raises(UserError, match="has a namespace"):
        gateway.restore()


def test_the_data_files_of_another_namespace_stop_it(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    with copied(site) as copy:
        copy.all()
    gateway = RestoredSite(site, tmp_path / "new")
    files = DataFiles(gateway.settings.files_dir)
    files.create()
    stamped = data_files.read(site.settings.files_dir)
    assert stamped is not None
    data_files.write(gateway.settings.files_dir, stamped._replace(fs_id="0" * 32))
    with pytest.raises(UserError, match="of another namespace"):
        gateway.restore()
    # Nothing was taken.
    Ownership(site.settings, Database(site.settings.database_url)).require()
