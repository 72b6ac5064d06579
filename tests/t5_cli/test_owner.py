"""Commands refuse a prefix that is another gateway's, unless they are told to take it."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config import loader
from gateway.config.settings import Settings
from tests.support.clisite import assert_refused, spillway
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, MotoServer
from tests.support.volumes import query

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
OWN = ".spillway/owner.json"
OWNER = f"p/{OWN}"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with MotoServer(tmp_path_factory.mktemp("s3")) as made:
        yield made


class Store:
    """A bucket of its own, for gateways that are made by ``spillway init``."""

    def __init__(self, server: MotoServer, directory: Path) -> None:
        self.client: S3Client = server.client()
        self.bucket = f"bucket-{next(_numbers)}"
        self.client.create_bucket(Bucket=self.bucket)
        self._url = server.url
        self._directory = directory

    def config(self, name: str) -> Path:
        return self._directory / name / "spillway.toml"

    def init(self, name: str, *more: str, prefix: str = "p") -> subprocess.CompletedProcess[str]:
        where: list[str | Path] = [
            "--data-dir",
            self._directory / name / "data",
            "--config",
            self.config(name),
        ]
        store = ["--bucket", self.bucket, "--endpoint-url", self._url, "--prefix", prefix]
        return spillway("init", *where, *store, *more, env=KEYS)

    def owner(self) -> dict[str, Any]:
        answer = self.client.get_object(Bucket=self.bucket, Key=OWNER)
        document: dict[str, Any] = json.loads(answer["Body"].read())
        return document

    def put(self, key: str, **metadata: str) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=b"12345", Metadata=metadata)

    def keys(self) -> set[str]:
        listed_objects = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {listed_object_["Key"] for listed_object_ in listed_objects}

    def settings(self, name: str) -> Settings:
        return loader.load(self.config(name))


@pytest.fixture
def store(server: MotoServer, tmp_path: Path) -> Store:
    return Store(server, tmp_path)


def namespace(settings: Settings) -> str:
    return bytes(query(settings, "SELECT fs_id FROM volume")[0][0]).hex()


def record(store: Store, name: str) -> str:
    """Record an object of a file, and put it into the bucket. Returns its key."""
    settings = store.settings(name)
    volume = namespace(settings)
    store.put("p/f", volume=volume, ino="2")
    etag = store.client.head_object(Bucket=store.bucket, Key="p/f")["ETag"].strip('"')
    query(settings, "INSERT INTO object VALUES (2, 'p/f', 1, 5, :etag, 'c', 1, NULL)", etag=etag)
    query(settings, "UPDATE volume SET bucket = :name, prefix = 'p'", name=store.bucket)
    return volume


def test_init_claims_the_prefix_and_the_next_one_is_refused(store: Store) -> None:
    done = store.init("one")
    assert done.returncode == 0, done.stderr
    assert f"bucket {store.bucket}, prefix 'p': claimed" in done.stdout
    before = store.owner()
    assert before["namespace"] == namespace(store.settings("one"))
    refused = store.init("two")
    assert_refused(refused, "belongs to another gateway", before["namespace"][:8], "--adopt")
    assert not store.config("two").parent.exists(), "nothing is made"
    assert store.owner() == before
    assert store.init("two", prefix="q").returncode == 0
    again = store.init("one")
    assert (again.returncode, store.owner()) == (0, before)
    assert "this gateway's" in again.stdout


def test_init_takes_a_prefix_if_it_is_told_to(store: Store) -> None:
    assert store.init("one").returncode == 0
    done = store.init("two", "--adopt")
    assert done.returncode == 0, done.stderr
    owner = store.owner()
    assert (owner["namespace"], owner["epoch"]) == (namespace(store.settings("two")), 2)
    refused = store.init("one")
    assert refused.returncode == 2
    assert "belongs to another gateway" in refused.stderr


def test_a_new_namespace_on_a_used_prefix_is_refused(store: Store) -> None:
    assert store.init("one").returncode == 0
    settings, before = store.settings("one"), store.owner()
    path = settings.data_dir / "namespace.db"
    path.rename(path.with_suffix(".lost"))
    known = settings.source.with_suffix(".id").read_text()
    assert_refused(store.init("one", "--new"), "belongs to another gateway", "--adopt")
    assert not path.exists()
    assert settings.source.with_suffix(".id").read_text() == known
    assert store.owner() == before
    assert store.init("one", "--new", "--adopt").returncode == 0
    assert store.owner()["epoch"] == 2


def test_a_prefix_with_objects_is_refused(store: Store) -> None:
    store.put("p/theirs")
    assert_refused(store.init("one"), "has objects (p/theirs)", "--adopt")
    assert store.keys() == {"p/theirs"}
    assert store.init("one", "--adopt").returncode == 0
    assert store.keys() == {"p/theirs", OWNER}


def test_init_makes_files_of_the_objects_that_it_adopts(store: Store) -> None:
    store.client.put_object(Bucket=store.bucket, Key="p/run/theirs", Body=b"x")
    assert_refused(store.init("one", "--import"), "add --adopt")
    done = store.init("one", "--adopt", "--import")
    assert done.returncode == 0, done.stderr
    assert "objects of the bucket: 1 imported" in done.stdout
    settings = loader.load(store.config("one"))
    assert query(settings, "SELECT key, checksum FROM object") == [("p/run/theirs", None)]
    assert spillway("ls", "/run", "--config", settings.source).stdout.split() == ["theirs"]


@pytest.mark.parametrize("inner", ["p/q", "p/q/r"])
@pytest.mark.parametrize("outer", ["p", ""])
def test_a_prefix_inside_of_that_of_another_gateway_is_refused(
    store: Store, outer: str, inner: str
) -> None:
    assert store.init("one", prefix=outer).returncode == 0
    before = store.keys()
    refused = store.init("two", prefix=inner)
    assert_refused(refused, f"is inside of the prefix {outer!r}", "beside it", "--adopt")
    assert store.keys() == before
    assert not store.config("two").exists()
    # Its owner is gone for good, a person says.
    assert store.init("two", "--adopt", prefix=inner).returncode == 0
    # From then on the inner one is there, and the outer one is not claimed again without a word.
    store.client.delete_object(Bucket=store.bucket, Key=f"{outer}/{OWN}".lstrip("/"))
    refused = store.init("three", prefix=outer)
    assert_refused(refused, f"contains the prefix {inner!r}", "--adopt")


def test_an_inner_prefix_of_the_same_gateway_is_no_other_one(store: Store) -> None:
    assert store.init("one").returncode == 0
    settings = store.settings("one")
    settings.source.write_text(settings.source.read_text().replace('"p"', '"p/q"'))
    assert store.settings("one").bucket.prefix == "p/q"
    done = spillway("adopt", "bucket", "--config", settings.source)
    assert done.returncode == 0, done.stderr
    assert store.keys() >= {f"p/q/{OWN}"}


@pytest.mark.parametrize("verb", ["setup", "test"])
def test_the_bucket_of_another_gateway_is_said_and_not_touched(store: Store, verb: str) -> None:
    assert store.init("one").returncode == 0
    own = spillway("bucket", verb, "--config", store.config("one"))
    assert "belongs to" not in own.stdout + own.stderr
    assert store.init("two", "--adopt").returncode == 0
    before = store.owner()
    done = spillway("bucket", verb, "--config", store.config("one"))
    assert done.returncode != 0
    assert "belongs to another gateway" in done.stdout + done.stderr
    assert (store.owner(), store.keys()) == (before, {OWNER})
    asked = spillway("bucket", verb, "--adopt", "--config", store.config("one"))
    assert "belongs to" not in asked.stdout + asked.stderr


def test_adopt_takes_no_bucket_of_another_gateway_unless_it_is_told_to(store: Store) -> None:
    assert store.init("one").returncode == 0
    record(store, "one")
    assert store.init("two", prefix="q").returncode == 0
    two = store.config("two")
    two.write_text(two.read_text().replace('prefix = "q"', 'prefix = "p"'))
    before = store.owner()
    assert_refused(spillway("adopt", "bucket", "--config", two), "another gateway", "--adopt")
    assert store.owner() == before
    assert query(store.settings("two"), "SELECT prefix FROM volume") != [("p",)]
    done = spillway("adopt", "bucket", "--adopt", "--config", two)
    assert done.returncode == 0, done.stderr
    assert store.owner()["namespace"] == namespace(store.settings("two"))


def test_adopt_takes_the_bucket_from_another_copy_and_keeps_what_is_recorded(store: Store) -> None:
    assert store.init("one").returncode == 0
    record(store, "one")
    store.client.put_object(
        Bucket=store.bucket,
        Key=OWNER,
        Body=json.dumps({**store.owner(), "token": "other", "holder": "x", "epoch": 7}).encode(),
    )
    asked = spillway("bucket", "test", "--config", store.config("one"))
    assert "another copy of this gateway" in asked.stdout
    done = spillway("adopt", "bucket", "--config", store.config("one"))
    assert done.returncode == 0, done.stderr
    assert "its 1 objects are looked at" in done.stdout
    settings = store.settings("one")
    assert query(settings, "SELECT key FROM object") == [("p/f",)]
    assert query(settings, "SELECT key, ino, check_after_ns FROM indeterminate_write") == [
        ("p/f", 2, 0)
    ]
    assert store.owner()["epoch"] == 8
    assert spillway("bucket", "test", "--config", store.config("one")).returncode == 0


def test_adopt_of_a_bucket_that_does_not_answer_changes_nothing(store: Store) -> None:
    assert store.init("one").returncode == 0
    record(store, "one")
    path = store.config("one")
    url = store.settings("one").bucket.endpoint_url
    path.write_text(path.read_text().replace(url, "http://127.0.0.1:9"))
    assert_refused(spillway("adopt", "bucket", "--config", path), "cannot be asked")
    assert query(store.settings("one"), "SELECT key FROM object") == [("p/f",)]


def test_a_bucket_that_does_not_answer_is_claimed_by_the_drain(tmp_path: Path) -> None:
    path = tmp_path / "spillway.toml"
    where: list[str | Path] = ["--data-dir", tmp_path / "data", "--config", path, "--bucket", "b"]
    done = spillway("init", *where, "--endpoint-url", "http://127.0.0.1:9", env=KEYS)
    assert done.returncode == 0, done.stderr
    assert "the drain claims it" in done.stdout
