"""An object is deleted if a client deleted its file, and for no other reason."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from gateway.db.engine import Database
from gateway.drain import worker
from gateway.drain.context import Context
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.owner import OWNER
from tests.support.s3proxy import Act
from tests.support.waiting import until


def test_an_unlinked_files_object_is_deleted(site: Site) -> None:
    site.write("dir/f", b"data")
    site.write("dir/g", b"stays")
    site.drain()
    site.unlink("dir/f")
    site.drain()
    assert site.objects() == {"dir/g": b"stays"}
    assert site.left() == []


def test_an_empty_database_deletes_nothing_from_a_full_bucket(site: Site) -> None:
    """An empty database has no row that permits a deletion."""
    for key in (f"{PREFIX}/a", f"{PREFIX}/b/c", "foreign", f"{PREFIX}/.spillway/staging/77"):
        site.client.put_object(Bucket=site.bucket, Key=key, Body=key.encode())
    kept = site.objects()
    theirs = site.client.create_multipart_upload(Bucket=site.bucket, Key=f"{PREFIX}/theirs")
    site.drain()
    assert site.objects() == kept
    assert site.multiparts() == 1
    assert {r.operation for r in site.proxy.operations()} == {"LIST", "LIST UPLOADS"}
    site.client.abort_multipart_upload(
        Bucket=site.bucket, Key=f"{PREFIX}/theirs", UploadId=theirs["UploadId"]
    )


def test_a_file_unlinked_during_its_upload_leaves_nothing(site: Site) -> None:
    site.write("f", os.urandom(11 * MIB))
    held = site.proxy.inject(lambda r: r.operation == "PART", Act.HOLD)
    with site.draining():
        held.wait()
        site.unlink("f")
        held.release()
        until(lambda: not site.left(), "everything is settled")
    assert site.objects() == {}
    assert site.multiparts() == 0
    assert site.proxy.operations("COMPLETE") == []


def test_a_file_unlinked_after_the_last_check_leaves_nothing(site: Site) -> None:
    site.write("f", b"data")
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD_ANSWER)
    with site.draining():
        held.wait()
        site.unlink("f")
        assert site.objects() == {"f": b"data"}
        held.release()
        until(lambda: not site.left(), "everything is settled")
    assert site.objects() == {}


def test_a_file_made_anew_replaces_the_object_without_a_gap(site: Site) -> None:
    site.write("f", b"old")
    site.drain()
    site.unlink("f")
    site.write("f", b"new")
    site.drain()
    assert site.objects() == {"f": b"new"}
    assert site.proxy.operations("DELETE") == []
    assert site.left() == []


def test_a_key_that_an_object_row_names_is_not_deleted(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"data")
    site.drain()
    context = Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))
    with context.writing() as view:
        view.add_tombstone(f"{PREFIX}/f", site.attr("f").ino, 1)
    context.database.close()
    site.drain()
    assert site.objects() == {"f": b"data"}
    assert site.left() == []


def test_a_failed_deletion_is_tried_again(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"data")
    site.drain()
    site.unlink("f")
    site.proxy.inject(lambda r: r.operation == "DELETE", Act.FAIL, times=4)
    with site.draining():
        until(lambda: not site.left(), "the object is deleted")
    assert site.objects() == {}


def test_a_directory_takes_the_place_of_a_file(rclone_site: Site) -> None:
    """rclone's bucket is a directory tree: the old object must be deleted before the new upload."""
    site = rclone_site
    # rclone removes a directory after its last object. A concurrent upload into the directory is
    # on the disk then, but no answer of rclone shows it.
    site.write("neighbour", b"stays")
    site.write("x", b"file")
    site.drain()
    site.unlink("x")
    site.write("x/y", b"below")
    with site.draining():
        until(lambda: not site.left(), "everything is drained")
    assert site.objects() == {"neighbour": b"stays", "x/y": b"below"}


def test_a_restored_backup_deletes_nothing_that_was_written_since(rclone_site: Site) -> None:
    """The restored rows name other inodes and versions than the objects at their keys."""
    site = rclone_site
    site.write("again", b"first")
    site.write("newer", b"first")
    site.drain()
    old = {path: site.attr(path).ino for path in ("again", "newer")}
    site.unlink("again")
    site.write("again", b"second")
    site.write("newer", b"second")
    site.drain()
    for path, ino in old.items():
        site.rows(f"DELETE FROM object WHERE key = '{PREFIX}/{path}'")
        site.unlink(path)
        site.rows(f"DELETE FROM tombstone WHERE key = '{PREFIX}/{path}'")
        site.rows(
            "INSERT INTO tombstone (key, ino, content_version, etag, deleted_ns) "
            f"VALUES ('{PREFIX}/{path}', {ino}, 1, 'x', 0)"
        )
    site.drain()
    assert site.objects() == {"again": b"second", "newer": b"second"}
    assert site.proxy.operations("DELETE") == []
    assert site.left() == []


def test_many_deletions_are_one_request(site: Site) -> None:
    for number in range(150):
        site.write(f"d/{number}", b"%d" % number)
    site.write("stays", b"x")
    site.drain()
    for number in range(150):
        site.unlink(f"d/{number}")
    site.drain()
    assert site.objects() == {"stays": b"x"}
    assert len(site.proxy.operations("DELETE")) <= 4
    assert site.left() == []


def test_a_versioned_bucket_keeps_the_old_version(moto_site: Site) -> None:
    site = moto_site
    site.client.put_bucket_versioning(
        Bucket=site.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    site.write("f", b"data")
    site.drain()
    site.unlink("f")
    site.drain()
    assert site.objects() == {}
    listed = site.client.list_object_versions(Bucket=site.bucket)
    assert [v["Key"] for v in listed["Versions"] if OWNER not in v["Key"]] == [f"{PREFIX}/f"]
    assert [m["Key"] for m in listed["DeleteMarkers"]] == [f"{PREFIX}/f"]


def test_a_licence_for_an_older_version_does_not_replace_a_newer_one(rclone_site: Site) -> None:
    site = rclone_site
    ino = site.write("f", b"data")
    context = Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))
    with context.writing() as view:
        for version in (1, 3, 2):
            view.add_tombstone("k", ino, version)
    context.database.close()
    assert site.rows("SELECT key, content_version FROM tombstone") == [("k", 3)]


def test_abandoned_uploads_of_a_day_are_aborted_daily(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are aborted while the drain runs, but only at the keys of our objects."""
    monkeypatch.setattr(worker, "A_DAY", timedelta(seconds=1))
    site.write("f", b"data")
    with site.draining():
        until(site.is_clean, "the file is drained")
        for key in ("f", "theirs"):
            site.client.create_multipart_upload(Bucket=site.bucket, Key=f"{PREFIX}/{key}")
        until(lambda: site.multiparts() == 1, "ours is aborted")
    assert [r.key for r in site.proxy.operations("ABORT")] == [f"{PREFIX}/f"]
    assert len(site.proxy.operations("LIST UPLOADS")) < 10
    assert site.objects() == {"f": b"data"}
