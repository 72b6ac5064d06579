"""An object names its origin, and no tombstone deletes an object of another origin."""

from __future__ import annotations

import os

import pytest

from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.objectstore.objects import COPY_PART_BYTES
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import MIB, PART_BYTES, PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.s3server import MotoServer
from tests.support.sites import MakeSite


def volume(site: Site) -> str:
    return bytes(site.rows("SELECT fs_id FROM volume")[0][0]).hex()


def generation(site: Site, path: str) -> int:
    ino = site.attr(path).ino
    return int(site.rows(f"SELECT generation FROM inode WHERE ino = {ino}")[0][0])


@pytest.fixture
def pair(moto: MotoServer, make_site: MakeSite) -> tuple[Site, Site]:
    """Make two namespaces with the same bucket and prefix. Each drains after a person gave the
    bucket to it."""
    site, other = make_site(moto), make_site(moto)
    other.values["bucket"]["name"] = other.bucket = site.bucket
    other.configure()
    return site, other


def drain(site: Site) -> None:
    site.own()
    site.drain()


def test_an_object_says_of_which_inode_of_which_volume_it_is(moto_site: Site) -> None:
    site = moto_site
    for path, size in {"small": 5, "large": 11 * MIB}.items():
        site.write(path, os.urandom(size))
    site.drain()
    for path in ("small", "large"):
        metadata = site.metadata(path)
        assert metadata["volume"] == volume(site)
        assert metadata["generation"] == str(generation(site, path))
        assert metadata["ino"] == str(site.attr(path).ino)
        assert metadata["content-version"] == "1"
        assert metadata.keys() >= {"mode", "uid", "gid", "mtime-ns"}
    assert site.metadata("large")["part-bytes"] == str(PART_BYTES)
    assert "part-bytes" not in site.metadata("small")


def test_a_copy_keeps_where_the_object_came_from(moto_site: Site) -> None:
    site = moto_site
    site.write("large", os.urandom(11 * MIB))
    site.drain()
    before = site.metadata("large")
    site.rename("large", "moved")
    site.drain()
    assert site.metadata("moved").items() >= before.items()
    head = S3Store(site.settings).head(f"{PREFIX}/moved")
    assert head is not None
    # A copy in parts has parts of another size, and the ETag of these parts.
    store = S3Store(site.settings, copy_max_bytes=6 * MIB)
    store.copy(f"{PREFIX}/moved", f"{PREFIX}/copy", head, head.metadata)
    assert site.metadata("copy") == {**site.metadata("moved"), "part-bytes": str(6 * MIB)}
    assert COPY_PART_BYTES > 6 * MIB


def test_two_namespaces_on_one_prefix_never_delete_each_others_objects(
    pair: tuple[Site, Site],
) -> None:
    site, other = pair
    assert site.write("f", b"of one") == other.write("f", b"of the other")
    drain(site)
    drain(other)
    assert site.objects() == {"f": b"of one"}
    other.unlink("f")
    drain(other)
    assert site.objects() == {"f": b"of one"}
    assert other.proxy.operations("DELETE") == []
    assert other.left() == []
    site.unlink("f")
    drain(site)
    assert site.objects() == {}


def test_what_an_interrupted_upload_left_is_no_licence_for_the_object_of_another(
    pair: tuple[Site, Site],
) -> None:
    site, other = pair
    site.write("f", b"of one")
    site.proxy.inject(lambda r: r.operation == "PUT", Act.FAIL, 1e9, 500, "InternalError")
    drain(site)
    assert site.rows("SELECT generation FROM upload") == [(generation(site, "f"),)]
    other.write("f", b"of the other")
    drain(other)
    site.unlink("f")
    drain(site)
    assert site.objects() == {"f": b"of the other"}
    assert site.left() == []


def test_an_object_of_another_generation_of_the_inode_stays(rclone_site: Site) -> None:
    """A restored database may use an inode number again."""
    site = rclone_site
    ino = site.write("f", b"data")
    site.drain()
    born = generation(site, "f")
    site.rows(f"UPDATE inode SET generation = generation + 1 WHERE ino = {ino} RETURNING 1")
    site.unlink("f")
    assert site.rows("SELECT generation FROM tombstone") == [(born + 1,)]
    site.drain()
    assert site.objects() == {"f": b"data"}
    assert site.left() == []


@pytest.mark.parametrize("forgets", ["the object", "the tombstone"])
def test_what_an_earlier_spillway_left_is_deleted_as_before(moto_site: Site, forgets: str) -> None:
    """The objects and the tombstones of that version name neither volume nor generation."""
    site = moto_site
    site.write("f", b"data")
    site.drain()
    if forgets == "the object":
        known = ("ino", "content-version", "mode", "uid", "gid", "mtime-ns")
        kept = {name: site.metadata("f")[name] for name in known}
        key = f"{PREFIX}/f"
        site.client.copy_object(
            Bucket=site.bucket,
            Key=key,
            CopySource={"Bucket": site.bucket, "Key": key},
            MetadataDirective="REPLACE",
            Metadata=kept,
        )
    site.unlink("f")
    if forgets == "the tombstone":
        site.rows("UPDATE tombstone SET generation = 0 RETURNING 1")
    site.drain()
    assert site.objects() == {}
    assert site.left() == []


def test_a_licence_without_an_inode_takes_no_object_of_another_volume(
    pair: tuple[Site, Site],
) -> None:
    site, other = pair
    other.write("f", b"of the other")
    drain(other)
    database = Database(site.settings.database_url)
    with Context(site.settings, database, S3Store(site.settings)).writing() as view:
        view.add_tombstone(f"{PREFIX}/f", 0, 0)
    database.close()
    drain(site)
    assert site.objects() == {"f": b"of the other"}
    assert site.left() == []
