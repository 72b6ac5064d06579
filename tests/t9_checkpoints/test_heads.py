"""The bucket is asked, right before a deletion, whether it has the newer checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from gateway.catalogue.store import Catalogue, catalogue_of
from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.common.errors import StoreError
from gateway.db.engine import Database
from gateway.lifecycle.retention import guard as heads_module
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.facts import PlanCheckpoint
from gateway.lifecycle.retention.guard import BELIEVED_SECONDS, BucketHeads
from gateway.lifecycle.retention.planning import checkpoint_of
from gateway.lifecycle.trash.trash import Trash
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import follow
from tests.support.drainsite import PREFIX, Site
from tests.support.namespace import Namespace
from tests.support.s3proxy import Act
from tests.support.s3server import SECRET_KEY, credentials
from tests.support.volumes import query

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")

FILES = ("__0_0.distcp", ".metadata", "deep/er/c")


@pytest.fixture
def database(site: Site) -> Iterator[Database]:
    """That of a site with two checkpoints in the bucket, and one file that is no checkpoint's."""
    for step in (1, 2):
        for name in FILES:
            site.write(f"run/step-{step}/{name}", b"12345" * step)
    site.write("run/other", b"1")
    site.drain()
    made = Database(site.settings.database_url)
    follow(Follower(site.settings, made, threading.Event()))
    record(site.settings)
    site.proxy.forget()
    yield made
    made.close()


@pytest.fixture
def catalogue(site: Site, database: Database) -> Catalogue:
    return catalogue_of(site.settings, database)


def newest(site: Site, database: Database) -> PlanCheckpoint:
    with database.reading() as session:
        row = session.one(store.OF_INO, ino=site.attr("run/step-2").ino)
    assert row is not None
    return checkpoint_of(row)


def heads_of(site: Site) -> BucketHeads:
    return BucketHeads(site.settings, threading.Event())


def asked(site: Site) -> set[str]:
    found = {request.key.removeprefix(f"{PREFIX}/") for request in site.proxy.operations("HEAD")}
    site.proxy.forget()
    return found


def test_each_object_is_asked_for_once_an_hour(
    site: Site, database: Database, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_module, "PAGE", 1)
    heads, checkpoint = heads_of(site), newest(site, database)
    every = {f"run/step-2/{name}" for name in FILES}
    assert heads.differs(catalogue, checkpoint) is None
    assert asked(site) == every
    assert heads.differs(catalogue, checkpoint) is None
    assert asked(site) == set()
    # Other members are another checkpoint.
    assert heads.differs(catalogue, checkpoint._replace(evidence="other")) is None
    assert asked(site) == every
    later = clock.monotonic_seconds() + BELIEVED_SECONDS + 1
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: later)
    assert heads.differs(catalogue, checkpoint) is None
    assert asked(site) == every


def lose(site: Site, key: str) -> None:
    site.client.delete_object(Bucket=site.bucket, Key=key)


def cut(site: Site, key: str) -> None:
    site.client.put_object(Bucket=site.bucket, Key=key, Body=b"123")


def replace(site: Site, key: str) -> None:
    """Store other bytes of the same length."""
    site.client.put_object(Bucket=site.bucket, Key=key, Body=b"x" * 10)


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lose, "the bucket lost the object of deep/er/c"),
        (cut, "the object of deep/er/c has 3 bytes, and not 10"),
        (replace, "the object of deep/er/c is another one"),
    ],
)
def test_an_object_that_is_not_as_recorded_is_named(
    happens: Callable[[Site, str], None],
    why: str,
    site: Site,
    database: Database,
    catalogue: Catalogue,
) -> None:
    heads, checkpoint = heads_of(site), newest(site, database)
    happens(site, f"{PREFIX}/run/step-2/deep/er/c")
    for _ in range(2):
        # It is not remembered: a person may put it right.
        differs = heads.differs(catalogue, checkpoint)
        assert differs is not None
        assert differs.startswith(why)
        assert differs.endswith(f"{PREFIX}/run/step-2/deep/er/c")


def test_a_file_without_an_object_is_missed(
    site: Site, database: Database, catalogue: Catalogue
) -> None:
    checkpoint = newest(site, database)
    ino = site.attr("run/step-2/.metadata").ino
    query(site.settings, "UPDATE object SET content_version = 99 WHERE ino = :ino", ino=ino)
    assert heads_of(site).differs(catalogue, checkpoint) == "the bucket has 2 of its 3 files"


def test_a_bucket_that_does_not_answer_says_nothing(
    site: Site, database: Database, catalogue: Catalogue
) -> None:
    heads, checkpoint = heads_of(site), newest(site, database)
    site.proxy.inject(lambda request: request.operation == "HEAD", Act.FAIL, times=100)
    with pytest.raises(StoreError):
        heads.differs(catalogue, checkpoint)
    ended = threading.Event()
    ended.set()
    with pytest.raises(StoreError):
        BucketHeads(site.settings, ended).differs(catalogue, checkpoint)


def test_corrected_credentials_are_used_without_a_restart(
    site: Site, database: Database, catalogue: Catalogue
) -> None:
    heads, checkpoint = heads_of(site), newest(site, database)
    site.set_credentials(credentials(SECRET_KEY[:-1]))
    with pytest.raises(StoreError):
        heads.differs(catalogue, checkpoint)
    site.set_credentials(credentials())
    assert heads.differs(catalogue, checkpoint) is None


def run_once(site: Site, database: Database) -> list[tuple[str, str]]:
    """Have a pass of a new process, while no server runs. Returns what was done."""
    site.namespace.close()
    stop = threading.Event()
    trash = Trash(site.settings, database)
    Applier(site.settings, database, stop, trash, BucketHeads(site.settings, stop)).run_once()
    site.namespace = Namespace(site.settings)
    return query(site.settings, "SELECT what, result FROM action ORDER BY id")


def govern(database: Database, **table: object) -> None:
    with database.writing() as session:
        said = {"name": "p", "run": "*", "wait_hours": 0, "approve": "automatic", **table}
        store.put(session, policy.of(said), "a person")


def test_what_the_bucket_lost_keeps_the_older_one(site: Site, database: Database) -> None:
    govern(database, keep_newest=1)
    lose(site, f"{PREFIX}/run/step-2/__0_0.distcp")
    [(what, result)] = run_once(site, database)
    assert what == "trash"
    assert result.startswith(
        "refused: the bucket does not have the newer one, run/step-2: the bucket lost the object"
    )
    assert query(site.settings, "SELECT path FROM trash") == []
    # It is sent again.
    query(site.settings, "DELETE FROM action")
    site.write("run/step-2/__0_0.distcp", b"67890" * 100)
    site.drain()
    follow(Follower(site.settings, database, threading.Event()))
    record(site.settings)
    [(_what, result)] = run_once(site, database)
    assert result.startswith("in the trash as t")


def test_a_silent_bucket_deletes_nothing_and_stops_nothing_else(
    site: Site, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    govern(database, keep_newest=1, evict_after_hours=0)
    fault = site.proxy.inject(lambda request: "step-" in request.key, Act.FAIL, times=10**6)
    found = run_once(site, database)
    assert "nothing is deleted now: " in caplog.text
    assert [what for what, _result in found] == ["evict"]
    fault.release()
    assert tuple(what for what, _result in run_once(site, database)[1:]) == ("trash", "evict")
