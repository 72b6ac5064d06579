"""A manifest is in the bucket for what is durable, and for nothing else. A test plays the drain:
it records members as stored, and the bucket is a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.catalogue.manifest_writer import Manifests
from gateway.catalogue.tracker import Follower
from gateway.common import clock
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.objectstore.s3 import S3Store
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import World, follow, forgotten
from tests.support.owner import OWNER, own
from tests.support.s3server import RcloneServer, credentials
from tests.support.t9 import restore
from tests.support.volumes import query

BUCKET = "checkpoints"
PREFIX = "team/run"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RcloneServer]:
    with RcloneServer(tmp_path_factory.mktemp("s3") / "s3") as made:
        made.client().create_bucket(Bucket=BUCKET)
        yield made


@pytest.fixture
def settings(settings: Settings, server: RcloneServer) -> Settings:
    for listed_object in server.client().list_objects_v2(Bucket=BUCKET).get("Contents", []):
        server.client().delete_object(Bucket=BUCKET, Key=listed_object["Key"])
    settings.credentials_file.touch(0o600)
    settings.credentials_file.write_text(credentials())
    bucket = replace(settings.bucket, name=BUCKET, prefix=PREFIX, endpoint_url=server.url)
    found = replace(settings, bucket=bucket)
    own(found)
    return found


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    made = Database(settings.database_url)
    yield made
    made.close()


@pytest.fixture
def task(settings: Settings, database: Database) -> Manifests:
    return Manifests(settings, database, threading.Event())


def save(world: World, *paths: str, data: bytes = b"123") -> None:
    """Save checkpoints, and bring them to the bucket."""
    for path in paths:
        for name in (".metadata", "__0_0.distcp"):
            world.write(f"{path}/{name}", data)
            world.drain(f"{path}/{name}")


def delete(world: World, path: str) -> None:
    for name in (".metadata", "__0_0.distcp"):
        world.remove(f"{path}/{name}")
    world.remove(path)


def listed(server: RcloneServer) -> dict[str, Any]:
    return restore.manifests(server.client(), BUCKET, PREFIX)


def run_until_done(follower: Follower, task: Manifests, server: RcloneServer) -> set[str]:
    """Follow the journal, let the task do all, and return the names of the manifests."""
    follow(follower)
    while task.run_once() == 1.0:
        pass
    return set(listed(server))


def test_manifests_follow_the_catalogue(
    world: World,
    follower: Follower,
    task: Manifests,
    database: Database,
    server: RcloneServer,
) -> None:
    def run_once() -> set[str]:
        return run_until_done(follower, task, server)

    save(world, "job/step-5", "we%41ird\n/step-7", "job/last")
    world.write("job/step-6/.metadata", b"1")
    names = {"job/5.json", "we%2541ird%0A/7.json", "job/~last.json"}
    assert run_once() == names
    rows = query(world.settings, "SELECT key, etag, check_after_ns FROM manifest")
    etags = {
        listed_object["Key"]: listed_object["ETag"].strip('"')
        for listed_object in server.client().list_objects_v2(Bucket=BUCKET)["Contents"]
        if OWNER not in listed_object["Key"]
    }
    assert {key: etag for key, etag, _check_after_ns in rows} == etags
    assert {check_after_ns for *_rest, check_after_ns in rows} == {None}
    # What did not change is not written again, by the next process neither.
    assert run_once() == names
    Manifests(world.settings, database, threading.Event()).run_once()
    assert query(world.settings, "SELECT key, etag, check_after_ns FROM manifest") == rows
    # Written again in place: the manifest goes before the bucket has anything else.
    world.write("job/step-5/__0_0.distcp", b"new")
    assert run_once() == names - {"job/5.json"}
    world.drain("job/step-5/__0_0.distcp")
    assert run_once() == names
    # An attribute of a member is in the manifest too.
    world.chmod("job/step-5/.metadata", 0o600)
    assert run_once() == names
    (metadata, _shard) = listed(server)["job/5.json"]["members"]
    assert (metadata["path"], metadata["mode"]) == (".metadata", "0600")
    # An object that was sent once more.
    sent_again = clock.now_ns()
    query(world.settings, "UPDATE object SET etag = 'again', stored_ns = :now", now=sent_again)
    ino = world.attr("job/last/.metadata").ino
    query(world.settings, "INSERT INTO journal (what, inos) VALUES (4, :inos)", inos=f"[{ino}]")
    assert run_once() == names
    assert {member["etag"] for member in listed(server)["job/~last.json"]["members"]} == {"again"}


def test_what_a_killed_save_left_is_not_in_the_manifest(
    world: World, follower: Follower, task: Manifests, server: RcloneServer
) -> None:
    world.write("out/checkpoint-5/trainer_state.json", b"{}")
    world.drain("out/checkpoint-5/trainer_state.json")
    world.write("out/checkpoint-5/.tmp1aB2cD", b"the half of a file")
    assert run_until_done(follower, task, server) == {"out/5.json"}
    members = listed(server)["out/5.json"]["members"]
    assert [member["path"] for member in members] == ["trainer_state.json"]


def test_manifests_follow_names(
    world: World, follower: Follower, task: Manifests, server: RcloneServer
) -> None:
    def run_once() -> set[str]:
        return run_until_done(follower, task, server)

    save(world, "job/step-5", "we%41ird\n/step-7", "job/last")
    names = {"job/5.json", "we%2541ird%0A/7.json", "job/~last.json"}
    assert run_once() == names
    # A rename: another path, run and step.
    world.rename("job/step-5", "other-step-50")
    assert run_once() == names - {"job/5.json"}
    for name in (".metadata", "__0_0.distcp"):
        world.drain(f"other-step-50/{name}")
    names = names - {"job/5.json"} | {"other-step-N/50.json"}
    assert run_once() == names
    assert listed(server)["other-step-N/50.json"]["path"] == "other-step-50"
    # Two checkpoints of one step. The second one has the number of its inode in its key.
    for path in ("job/step-9", "job/step_9"):
        save(world, path)
        run_once()
    ino = world.attr("job/step_9").ino
    second = {f"job/9~{ino}.json"}
    assert run_once() == {*names, "job/9.json", *second}
    assert listed(server)["job/9.json"]["path"] == "job/step-9"
    # Deletion, and another checkpoint in its place.
    delete(world, "job/step-9")
    delete(world, "we%41ird\n/step-7")
    save(world, "we%41ird\n/step-7", data=b"other")
    assert run_once() == {*names, *second}
    assert listed(server)["we%2541ird%0A/7.json"]["size"] == 10
    # Only emptied: it is no checkpoint any more.
    for name in (".metadata", "__0_0.distcp"):
        world.remove(f"job/last/{name}")
    assert run_once() == {*names, *second} - {"job/~last.json"}


def test_only_what_is_known_to_be_deleted_goes(
    world: World, follower: Follower, task: Manifests, server: RcloneServer
) -> None:
    save(world, "job/step-1", "job/step-2", "job/step-3", "job/step-4")
    follow(follower)
    record(world.settings)  # the objects of older ones need not be held for a newer one
    follow(follower)
    task.run_once()
    names = {"job/1.json", "job/2.json", "job/3.json", "job/4.json"}

    def remaining() -> set[str]:
        task.run_once()
        return set(listed(server))

    assert remaining() == names
    # The catalogue is lost, or the rules do not know the checkpoint any more.
    query(world.settings, "DELETE FROM checkpoint")
    assert remaining() == names
    with forgotten(world.settings):
        assert remaining() == names
    follow(world.follower())
    record(world.settings)
    # The database does not know of a manifest: it may be older than the bucket.
    query(world.settings, "DELETE FROM manifest WHERE path = :path", path=b"job/step-1")
    delete(world, "job/step-1")
    assert remaining() == names
    # Another program has put something else there.
    (key,) = query(world.settings, "SELECT key FROM manifest WHERE path = :p", p=b"job/step-2")[0]
    server.client().put_object(Bucket=BUCKET, Key=key, Body=b'{"members": []}')
    delete(world, "job/step-2")
    assert remaining() == names
    # The row of what was kept is gone, and what is known to be deleted goes.
    delete(world, "job/step-3")
    assert remaining() == names - {"job/3.json"}
    assert query(world.settings, "SELECT path FROM manifest") == [(b"job/step-4",)]


@pytest.mark.parametrize("how", ["write", "chmod", "delete"])
def test_a_checkpoint_that_changes_during_the_request_has_no_manifest(
    world: World,
    follower: Follower,
    task: Manifests,
    server: RcloneServer,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    changes: dict[str, Callable[[], object]] = {
        "write": lambda: world.open("job/step-1/.metadata"),
        "chmod": lambda: world.chmod("job/step-1/.metadata", 0o600),
        "delete": lambda: delete(world, "job/step-1"),
    }
    put = S3Store.put

    def changing(*args: Any) -> Any:
        stored = put(*args)
        changes[how]()
        monkeypatch.undo()
        return stored

    save(world, "job/step-1")
    follow(follower)
    monkeypatch.setattr(S3Store, "put", changing)
    # The catalogue has not seen the change yet.
    assert task.run_once() == 1.0
    assert listed(server) == {}
    assert query(world.settings, "SELECT * FROM manifest") == []
    task.run_once()
    assert set(listed(server)) == ({"job/1.json"} if how == "chmod" else set())


def volume_of(world: World) -> str:
    return bytes(query(world.settings, "SELECT fs_id FROM volume")[0][0]).hex()


def put_there(world: World, server: RcloneServer, volume: str | None) -> None:
    """Put another object to the key of a manifest.

    Args:
        volume: whose it says that it is.
    """
    metadata = {} if volume is None else {"volume": volume, "ino": "1"}
    key = f"{PREFIX}/.spillway/checkpoints/job/1.json"
    text = b'{"members": [1, 2]}'
    server.client().put_object(Bucket=BUCKET, Key=key, Body=text, Metadata=metadata)


@pytest.mark.parametrize("volume", [None, "0" * 32])
def test_an_object_of_others_at_the_key_of_a_manifest_stays(
    world: World,
    follower: Follower,
    task: Manifests,
    database: Database,
    server: RcloneServer,
    caplog: pytest.LogCaptureFixture,
    volume: str | None,
) -> None:
    put_there(world, server, volume)
    save(world, "job/step-1", "job/step-2")
    assert run_until_done(follower, task, server) == {"job/1.json", "job/2.json"}
    assert listed(server)["job/1.json"]["members"] == [1, 2]
    assert "job/1.json: an object that this gateway did not put there" in caplog.text
    # No later pass takes it for a manifest of its own.
    for _ in range(2):
        Manifests(world.settings, database, threading.Event()).run_once()
    delete(world, "job/step-1")
    assert run_until_done(follower, task, server) == {"job/1.json", "job/2.json"}
    assert listed(server)["job/1.json"]["members"] == [1, 2]


def test_a_manifest_of_an_earlier_time_of_this_namespace_is_replaced(
    world: World, follower: Follower, task: Manifests, server: RcloneServer
) -> None:
    """The database was restored, and does not know of it."""
    put_there(world, server, volume_of(world))
    save(world, "job/step-1")
    assert run_until_done(follower, task, server) == {"job/1.json"}
    assert "path" in listed(server)["job/1.json"]["members"][0]


def test_a_request_that_was_given_up_is_looked_at(
    world: World,
    follower: Follower,
    database: Database,
    server: RcloneServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bucket is away in the middle of a request, and carries it out later."""
    timeouts = replace(world.settings.bucket, read_timeout_seconds=0.1)
    task = Manifests(replace(world.settings, bucket=timeouts), database, threading.Event())
    save(world, "job/step-1", data=b"old")
    follow(follower)
    server.stop()
    assert task.run_once() > 0
    ((etag, check_after_ns),) = query(world.settings, "SELECT etag, check_after_ns FROM manifest")
    assert etag is None
    assert check_after_ns > 0
    server.start()
    monkeypatch.setattr(task._breaker, "_retry_at", 0.0)
    task.run_once()
    assert set(listed(server)) == {"job/1.json"}
    # The late request brings an older manifest.
    put_there(world, server, volume_of(world))
    query(world.settings, "UPDATE manifest SET check_after_ns = 1")
    task.run_once()
    assert len(listed(server)["job/1.json"]["members"]) == 2
    assert "path" in listed(server)["job/1.json"]
    ((etag, check_after_ns),) = query(world.settings, "SELECT etag, check_after_ns FROM manifest")
    assert etag is not None
    assert check_after_ns is None
