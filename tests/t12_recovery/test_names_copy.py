"""The bucket has every name, and the names come back from it as they were."""

from __future__ import annotations

import itertools
import random
import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.cache.rows import AbsentSource, Rows
from gateway.common import clock
from gateway.common.types import InodeKind, Residency
from gateway.config import settings as configuration
from gateway.db.checkpoint_models import Base
from gateway.db.engine import Database
from gateway.objectstore.ranges import ObjectLocation
from gateway.recovery import names_copy, tables
from gateway.recovery.names_store import base_name, series_name
from tests.support.drainsite import Site
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import Act, S3Proxy
from tests.support.s3server import MotoServer
from tests.support.sites import MakeSite
from tests.support.t9.promoting import Promoting
from tests.support.t12.names import copied, load, rows_of, save, sqlite_url
from tests.support.t12.process import NAMES
from tests.support.volumes import query

NOT_COPIED = {
    "fence": "it belongs to one cluster of PostgreSQL",
    "present_blocks": "it tells what is on the lost disk",
    "eviction": "it tells what is on the lost disk",
    "warm_request": "what was wanted on the lost disk is read when it is wanted again",
    "last_read": "it orders evictions of bytes that are lost",
    "digest": "it is of bytes that the bucket does not have",
    "upload": "its parts were of bytes on the lost disk; the drain finds uploads that no row has",
    "transition": "an order that a policy gives again",
    "endpoint": "the store is asked again",
    "bucket_owner": "the restored gateway makes a claim of its own",
    "lease": "it belongs to a process",
    "claim": "it belongs to a process",
    "retry": "each job is tried at once",
    "indeterminate_write": "a restore looks at every object",
    "checkpoint": "the catalogue makes it from the namespace",
    "catalogue": "the catalogue makes it from the namespace",
    "approval": "a plan after a restore needs an approval of its own",
    "superseded": "the next plan says it again",
    "elapsed_time": "it belongs to a machine; graces begin again",
    "known_time": "it belongs to a machine",
    "journal": "it has the order of changes that the log has",
    "reader": "it belongs to the journal",
    "directory_usage": "triggers count what is loaded",
    "owner_usage": "triggers count what is loaded",
    "names_copy": "it says how far this copy has come",
    "scrub_pass": "it says how far a look at the lost disk has come",
}
"""Why the rows of the other tables stay here."""


def test_each_table_is_copied_or_there_is_a_reason() -> None:
    assert set(Base.metadata.tables) == tables.COPIED.keys() | NOT_COPIED.keys()
    assert not tables.COPIED.keys() & NOT_COPIED.keys()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_the_names_come_back_on_either_engine(
    each_site: Site, engine: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    site = each_site
    site.write("a", b"first")
    site.write(r"odd/\xff", b"x")
    site.link("a", "also")
    save(site, 10)
    site.drain()
    with copied(site) as copy:
        copy.all()
        # The log has renames, deletions, and names that are exchanged.
        save(site, 20)
        site.unlink("run/step-10/__0_0.distcp")
        site.rename("a", "b.tmp")
        site.rename("also", "a")
        site.rename("b.tmp", "also")
        copy.step()
        site.drain()
        copy.step()
        url = postgres.create_database() if engine == "postgres" else sqlite_url(tmp_path / "new")
        loaded = load(copy.names, url)
    assert loaded.broken == {}
    assert rows_of(url) == rows_of(site.settings.database_url)


def test_a_base_waits_for_its_log_without_work(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = moto_site
    monkeypatch.setattr(names_copy, "PAGE_INOS", 1)
    monkeypatch.setattr(names_copy, "BASE_INOS", 1)
    site.write("a", b"1")
    with copied(site) as copy:
        assert copy.copy.step() == 0
        site.write("b", b"2")
        while (seconds := copy.copy.step()) == 0:
            pass
        assert 0 < seconds <= site.settings.recovery.names_seconds
        assert copy.copy._base is not None
        copy.step()
        assert copy.copy._base is None


class Changes:
    """Random changes of names, as many clients make them."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._site = site
        self._chance = chance
        self._paths: list[str] = []
        self._number = 0

    def make(self) -> None:
        """Make one change."""
        chance, site = self._chance, self._site
        kind = chance.choice(["write", "write", "rename", "replace", "link", "unlink", "exchange"])
        if kind == "write" or len(self._paths) < 2:
            self._number += 1
            path = f"d{chance.randrange(5)}/f{self._number}"
            site.write(path, b"%d" % self._number)
            self._paths.append(path)
            return
        first, second = chance.sample(self._paths, 2)
        if kind == "rename":
            self._number += 1
            site.rename(first, f"d{chance.randrange(5)}/r{self._number}")
            self._paths[self._paths.index(first)] = self._last("r")
        elif kind == "replace":
            site.rename(first, second)
            self._paths = self._there()
        elif kind == "link":
            self._number += 1
            site.link(first, f"l{self._number}")
            self._paths.append(f"l{self._number}")
        elif kind == "unlink":
            site.unlink(first)
            self._paths.remove(first)
        else:
            self._number += 1
            for old, new in ((first, f"x{self._number}"), (second, first)):
                site.rename(old, new)
            site.rename(f"x{self._number}", second)
            self._paths = self._there()

    def _last(self, kind: str) -> str:
        return next(path for path in self._there() if path.endswith(f"/{kind}{self._number}"))

    def _there(self) -> list[str]:
        """Return the paths of all files."""
        names = self._site.rows("SELECT parent, name, ino FROM dirent ORDER BY parent, name")
        above = {ino: (parent, bytes(name).decode()) for parent, name, ino in names}
        kinds = dict(self._site.rows("SELECT ino, kind FROM inode"))

        def path_of(parent: int, name: str) -> str:
            while parent in above:
                parent, directory = above[parent]
                name = f"{directory}/{name}"
            return name

        return [
            path_of(parent, bytes(name).decode())
            for parent, name, ino in names
            if kinds[ino] == InodeKind.REGULAR
        ]


@pytest.mark.parametrize("seed", range(4))
def test_a_base_that_is_read_while_names_change_is_whole(
    each_site: Site, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the copy is interrupted at any step."""
    monkeypatch.setattr(names_copy, "PAGE_INOS", 1)
    monkeypatch.setattr(names_copy, "BASE_INOS", 1)
    site, chance = each_site, random.Random(seed)
    changes = Changes(site, chance)
    for _ in range(20):
        changes.make()
    is_whole = False
    while not is_whole:
        with copied(site) as copy:
            for _ in range(chance.randrange(20, 200)):
                for _ in range(chance.randrange(3)):
                    changes.make()
                if not chance.randrange(16):
                    site.drain(cycles=30)
                copy.step()
                if is_whole := copy.copy.progress().base_ns > 0:
                    break
    with copied(site) as copy:
        copy.step()
        url = sqlite_url(tmp_path / "new")
        loaded = load(copy.names, url)
    assert loaded.broken == {}
    assert rows_of(url) == rows_of(site.settings.database_url)


def test_a_base_that_someone_deleted_is_made_again(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("a", b"1")
    with copied(site) as copy:
        copy.all()
        bases = [one for series in copy.names.series() for one in series.documents]
        copy.names.delete(bases)
    with copied(site) as copy:
        copy.all()
        url = sqlite_url(tmp_path / "new")
        load(copy.names, url)
    assert rows_of(url) == rows_of(site.settings.database_url)


def test_an_older_database_begins_another_series(moto_site: Site, tmp_path: Path) -> None:
    """Its log would be mixed with that of the time which it does not know."""
    site = moto_site
    database = site.namespace._database.path
    assert database is not None
    site.write("a", b"1")
    with copied(site) as copy:
        copy.all()
    site.namespace.close()
    backup = tmp_path / "backup.db"
    shutil.copyfile(database, backup)
    site.namespace = Namespace(site.settings)
    site.write("b", b"2")
    with copied(site) as copy:
        copy.step()
        copy.step()
    site.namespace.close()
    shutil.copyfile(backup, database)
    with copied(site) as copy:
        copy.all()
        assert len(copy.names.series()) == 2
        url = sqlite_url(tmp_path / "new")
        load(copy.names, url)
    assert rows_of(url) == rows_of(site.settings.database_url)


@pytest.mark.parametrize("server", ["moto", "rclone"])
def test_a_new_series_comes_after_all_that_are_there(
    server: str, make_site: MakeSite, request: pytest.FixtureRequest
) -> None:
    site = make_site(request.getfixturevalue(server))
    with copied(site) as copy:
        for number in (3, 1, 12):
            for row in range(3):
                copy.names.put_log(f"{number:06d}-00000000", row, row + 1, row, b"x")
        copy.names.put_part("000012-00000000", base_name(7), 1, b"x")
        site.client.put_object(Bucket=site.bucket, Key=f"{NAMES}000013-odd", Body=b"x")
        names = [f"{number:06d}-00000000" for number in (1, 3, 12)]
        assert [series.name for series in copy.names.series()] == names
        site.proxy.forget()
        assert copy.names.series_names() == names
        assert len(site.proxy.operations()) <= 5
        assert series_name(names)[:7] == "000013-"


def test_a_copy_that_is_switched_off_keeps_no_journal(moto_site: Site) -> None:
    site = moto_site
    site.write("a", b"1")
    with copied(site) as copy:
        copy.all()
        assert site.rows("SELECT name FROM reader WHERE name = 'names'")
        copy.copy.leave()
        assert not site.rows("SELECT name FROM reader WHERE name = 'names'")
        # It begins with another series.
        copy.all()
        assert len(copy.names.series()) == 2


def test_a_lost_answer_costs_no_other_base(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    with copied(site) as copy:
        copy.all()
        site.write("a", b"1")
        fault = site.proxy.inject(lambda request: "/log/" in request.key, Act.DROP_ANSWER, times=10)
        copy.step()
        assert copy.copy.progress().error
        fault.discard()
        site.write("b", b"2")
        copy.step()
        copy.step()
        assert len(copy.names.series()) == 1
        url = sqlite_url(tmp_path / "new")
        load(copy.names, url)
    assert rows_of(url) == rows_of(site.settings.database_url)


def test_a_clock_that_is_set_back_makes_no_names_young(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is copied meanwhile, as in an outage."""
    with copied(moto_site) as copy:
        copy.all()
        by = SimpleNamespace(passed=0, moved=0)
        now_ns, uptime_ns = clock.now_ns, clock.uptime_ns
        monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + by.passed + by.moved)
        monkeypatch.setattr(clock, "uptime_ns", lambda: uptime_ns() + by.passed)

        def age_seconds() -> float:
            return (clock.now_ns() - copy.copy.progress().copied_ns) / clock.NS

        assert age_seconds() < 60
        by.passed = 600 * clock.NS
        for by.moved in (0, -3600 * clock.NS, 86_400 * clock.NS):
            assert 600 <= age_seconds() < 660


def test_promoted_copies_and_digests_are_in_the_copy(
    moto: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows are written beside the NFS server, and are named in the journal all the same."""
    monkeypatch.setattr(configuration, "LATE_FACTOR", 0.001)
    with S3Proxy(moto.port) as proxy:
        site = Promoting(tmp_path / "gateway", moto, "promoted-names", proxy)
        for path in ("__0_0.distcp", "deep/__1_0.distcp", ".metadata"):
            site.write(f"job/step-5/{path}", path.encode())
        site.drain()

        def differing() -> set[str]:
            copy.step()
            url = sqlite_url(tmp_path / f"loaded-{next(numbers)}")
            load(copy.names, url)
            ours, theirs = rows_of(site.settings.database_url), rows_of(url)
            return {name for name, rows in ours.items() if rows != theirs[name]}

        numbers = itertools.count()
        with copied(site) as copy:
            copy.all()
            site.ask("job/step-5", "best")
            assert differing() == set()
            site.settle()
            assert site.rows("SELECT copy FROM promotion_member")
            assert differing() == set()
            site.demote("best")
            site.settle()
            assert site.rows("SELECT copy FROM promotion_member") == []
            assert differing() == set()
            # One that fails has members of which nothing was made.
            site.ask("job/step-5", "other")
            site.write("job/step-5/.metadata", b"another")
            site.settle()
            assert differing() == set()
            assert site.rows("SELECT copy FROM promotion_member WHERE is_made = 0")
            site.demote("other")
            site.settle()
            assert site.rows("SELECT copy FROM promotion_member") == []
            assert differing() == set()
            learn_digests(site)
            assert differing() == set()
        site.close()


def learn_digests(site: Site) -> None:
    """Record digests of an evicted file, as the hydrator does that has fetched it."""
    settings = site.settings
    ino, epoch, version, size, key, etag, block_bytes, crcs = site.rows(
        "SELECT i.ino, i.epoch, i.content_version, i.size, o.key, o.etag, b.block_bytes, b.crcs"
        " FROM inode i JOIN object o ON o.ino = i.ino JOIN block_digest b ON b.ino = i.ino"
    )[0]
    query(settings, f"DELETE FROM block_digest WHERE ino = {ino}")
    query(settings, f"UPDATE inode SET residency = {Residency.ABSENT:d} WHERE ino = {ino}")
    place = ObjectLocation(key, etag)
    source = AbsentSource(ino, epoch, version, size, place, block_bytes, bytes(crcs))
    with closing(Database(settings.database_url)) as database:
        Rows(database).save_digests(source, bytes(crcs))
    assert site.rows(f"SELECT ino FROM block_digest WHERE ino = {ino}")
