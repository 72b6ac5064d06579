"""If an object cannot be moved after a rename, the file's local bytes are uploaded instead."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.clisite import spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act


def vanish(site: Site) -> None:
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/a")


def replace(site: Site) -> None:
    site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/a", Body=b"a person's")


def archive(site: Site) -> None:
    """Let the store refuse copies, as it does for archived or encrypted objects; HEAD works."""
    site.proxy.inject(lambda r: r.operation == "COPY", Act.FAIL, 1e9, 400, "InvalidObjectState")


@pytest.mark.parametrize("spoil", [vanish, archive])
def test_a_new_file_at_the_old_name_is_not_held_up(
    rclone_site: Site, spoil: Callable[[Site], None]
) -> None:
    site = rclone_site
    site.write("a", b"first")
    site.drain()
    spoil(site)
    site.rename("a", "b")
    site.write("a", b"second")
    site.drain()
    assert site.objects() == {"a": b"second", "b": b"first"}
    assert site.left() == []


def test_a_new_file_leaves_the_object_of_a_person_at_its_name(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", b"first")
    site.drain()
    replace(site)
    site.rename("a", "b")
    site.write("a", b"second")
    site.drain()
    assert site.objects() == {"a": b"a person's", "b": b"first"}
    assert site.left() != [], "the new file is not in the bucket"


@pytest.mark.parametrize("spoil", [replace, archive])
def test_without_a_new_file_the_old_object_goes_only_if_it_is_ours(
    rclone_site: Site, spoil: Callable[[Site], None]
) -> None:
    site = rclone_site
    site.write("a", b"first")
    site.drain()
    spoil(site)
    site.rename("a", "b")
    site.drain()
    stays = {"a": b"a person's"} if spoil is replace else {}
    assert site.objects() == {"b": b"first", **stays}
    assert site.left() == []


def test_swapped_files_whose_objects_both_vanished(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", b"first")
    site.write("b", b"second")
    site.drain()
    for key in ("a", "b"):
        site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/{key}")
    site.rename("a", "x.tmp")
    site.rename("b", "a")
    site.rename("x.tmp", "b")
    site.drain()
    assert site.objects() == {"a": b"second", "b": b"first"}
    assert site.left() == []


def test_a_file_with_a_temporary_name_gives_its_key_up(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", b"first")
    site.drain()
    archive(site)
    site.rename("a", "a.tmp")
    site.write("a", b"second")
    site.drain()
    assert site.objects() == {"a": b"second"}
    # After an open and a close without a write, the file is still not in the bucket.
    ino = site.attr("a.tmp").ino
    site.namespace.open_write(ino)
    site.namespace.seal(ino, site.sealed_unchanged(b"first"))
    site.rename("a.tmp", "b")
    site.drain()
    assert site.objects() == {"a": b"second", "b": b"first"}
    assert site.left() == []


def test_a_file_that_gave_its_key_up_and_is_deleted_leaves_nothing(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", b"first")
    site.drain()
    archive(site)
    site.rename("a", "a.tmp")
    site.write("a", b"second")
    fault = site.proxy.inject(lambda r: r.operation == "PUT", Act.FAIL, 1e9, 500, "InternalError")
    site.drain()
    assert site.objects() == {"a": b"first"}
    site.unlink("a")
    site.drain()
    # The new file is deleted. The object is the old file's only copy in the bucket.
    assert site.objects() == {"a": b"first"}
    site.unlink("a.tmp")
    fault.release()
    site.drain()
    assert site.objects() == {}
    assert site.left() == []


def test_the_only_copy_stays_when_the_new_file_at_its_key_is_deleted_before_its_upload(
    rclone_site: Site,
) -> None:
    site = rclone_site
    site.write("a", b"first")
    site.drain()
    archive(site)
    site.rename("a", "b")
    site.write("a", b"second")
    fault = site.proxy.inject(lambda r: r.operation == "PUT", Act.FAIL, 1e9, 400, "Unusual")
    site.drain()
    site.unlink("a")
    site.drain()
    assert site.objects() == {"a": b"first"}
    fault.release()
    site.drain()
    assert site.objects() == {"b": b"first"}
    assert site.left() == []


def lose_residency(site: Site, ino: int) -> None:
    site.rows(f"UPDATE inode SET residency = 0 WHERE ino = {ino} RETURNING 1")


def lose_file(site: Site, ino: int) -> None:
    site.namespace.files.remove(ino, 0)


def rot(site: Site, ino: int) -> None:
    site.namespace.files.path(ino, 0).write_bytes(b"fIrst")


def damage(site: Site, ino: int) -> None:
    site.rows(
        "INSERT INTO damage (ino, content_version, reason, noted_ns) "
        f"SELECT ino, content_version, 'a failed fsync', 1 FROM inode WHERE ino = {ino} RETURNING 1"
    )


def test_the_object_of_a_damaged_file_that_is_opened_again_is_not_given_up(
    rclone_site: Site,
) -> None:
    site = rclone_site
    ino = site.write("a", b"first")
    site.drain()
    archive(site)
    damage(site, ino)
    site.namespace.open_write(ino)
    site.namespace.seal(ino, site.sealed_unchanged(b"first"))
    site.rename("a", "b")
    site.write("a", b"second")
    site.drain()
    assert site.objects() == {"a": b"first"}
    assert site.rows(f"SELECT key FROM object WHERE ino = {ino}") == [(f"{PREFIX}/a",)]


@pytest.mark.parametrize(
    ("spoil", "lose"),
    [(archive, lose_file), (archive, rot), (archive, damage), (replace, lose_residency)],
)
def test_an_object_that_is_the_only_good_copy_keeps_its_key(
    rclone_site: Site, spoil: Callable[[Site], None], lose: Callable[[Site, int], None]
) -> None:
    site = rclone_site
    ino = site.write("a", b"first")
    site.drain()
    spoil(site)
    lose(site, ino)
    before = site.objects()
    site.rename("a", "b")
    site.write("a", b"second")
    site.drain()
    site.drain()
    assert site.objects() == before
    ((version, drained),) = site.rows(
        f"SELECT content_version, drained_version FROM inode WHERE ino = {ino}"
    )
    assert version == drained
    config = ("--config", site.settings.source)
    waiting = json.loads(spillway("queue", "--json", *config).stdout)["files"]
    (shown,) = [entry for entry in waiting if entry["path"] == "/checkpoints/a"]
    assert shown["state"] == "failing"
    assert "it is not sent again instead" in shown["error"]
    with site.process():
        result = spillway("drain", "--wait", "--timeout", "20", *config)
    assert result.returncode == 1
    assert "it is not sent again instead" in result.stderr
