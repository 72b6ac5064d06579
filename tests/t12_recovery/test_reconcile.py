"""The names follow the bucket: each case by itself, and a backup of two minutes ago."""

from __future__ import annotations

import pytest

from gateway.common.errors import ObjectRefused
from gateway.common.types import Residency
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t12.reconcile import (
    assert_at_rest,
    backup_of,
    copy_object,
    damaged,
    delete_object,
    evict,
    forget_names,
    key_of,
    made_by,
    object_of,
    put_object,
    readable,
    reconcile,
    tree,
)


def test_what_is_as_recorded_stays(each_site: Site) -> None:
    site = each_site
    site.write("run/a", b"one")
    site.write("run/b", b"two")
    site.drain()
    evict(site, "run/b")
    report = reconcile(site)
    assert report.cases == {"own": 1, "same": 2}
    assert report.changes == 0
    assert_at_rest(site)


def test_a_newer_object_is_taken(each_site: Site) -> None:
    site = each_site
    ino = site.write("run/latest", b"1")
    site.drain()
    evict(site, "run/latest")
    restore = backup_of(site)
    # It is fetched, written again and evicted.
    site.rows(f"UPDATE inode SET residency = 2 WHERE ino = {ino} RETURNING 1")
    site.write("run/latest", b"step 2")
    site.drain()
    evict(site, "run/latest")
    restore()
    assert object_of(site, "run/latest") == ("run/latest", 1)
    report = reconcile(site)
    assert (report.cases["newer"], report.outcomes) == (1, {"taken from the bucket": 1})
    assert object_of(site, "run/latest") == ("run/latest", 2)
    attr = site.attr("run/latest")
    assert (attr.ino, attr.size, attr.mode, attr.uid) == (ino, 6, 0o640, 1000)
    assert attr.residency == Residency.ABSENT
    assert readable(site) == {"run/latest": b"step 2"}
    assert_at_rest(site)


def test_newer_local_bytes_stay_and_are_sent(each_site: Site) -> None:
    site = each_site
    site.write("run/a", b"one")
    site.drain()
    restore = backup_of(site)
    site.write("run/a", b"two two")
    site.drain()
    site.write("run/a", b"three three")
    restore()
    report = reconcile(site)
    assert report.outcomes == {"kept on the disk": 1}
    assert object_of(site, "run/a")[1] == 2
    assert readable(site) == {"run/a": b"three three"}
    assert_at_rest(site, sends=True)
    assert site.objects()["run/a"] == b"three three"
    assert int(site.metadata("run/a")["content-version"]) > 2


def test_a_clean_local_copy_of_an_older_version_is_set_aside(rclone_site: Site) -> None:
    site = rclone_site
    ino = site.write("a", b"one")
    site.drain()
    put_object(site, "a", b"newer", **{**site.metadata("a"), "content-version": "7"})
    report = reconcile(site)
    assert report.outcomes == {"taken from the bucket": 1}
    assert readable(site) == {"a": b"newer"}
    assert (site.namespace.files.aside / f"{ino}.0").read_bytes() == b"one"
    assert_at_rest(site)


def test_a_lost_object_is_sent_again_from_the_disk(each_site: Site) -> None:
    site = each_site
    site.write("run/a", b"here")
    site.drain()
    delete_object(site, "run/a")
    report = reconcile(site)
    assert (report.cases["missing"], report.outcomes) == (1, {"sent again": 1})
    assert damaged(site) == {}
    assert_at_rest(site, sends=True)
    assert site.objects() == {"run/a": b"here"}


def test_a_file_without_bytes_anywhere_is_damaged_until_its_object_is_back(
    each_site: Site,
) -> None:
    site = each_site
    site.write("run/a", b"gone")
    site.drain()
    evict(site, "run/a")
    metadata = site.metadata("run/a")
    delete_object(site, "run/a")
    report = reconcile(site)
    assert (report.lost, report.outcomes) == (1, {"lost": 1})
    assert [(one.run, one.lost) for one in report.runs] == [("run", 1)]
    assert damaged(site) == {"run/a": f"the bucket lacks the object of this file: {PREFIX}/run/a"}
    assert_at_rest(site)
    assert reconcile(site).outcomes == {"lost": 1}
    # A person brings the object back, of a bucket with versions.
    put_object(site, "run/a", b"gone", **metadata)
    report = reconcile(site)
    assert report.lost == 0
    assert damaged(site) == {}
    assert readable(site) == {"run/a": b"gone"}
    assert_at_rest(site, sends=True)


def test_a_renamed_file_has_its_name_of_the_bucket(each_site: Site) -> None:
    site = each_site
    ino = site.write("run/tmp/a", b"moved")
    site.drain()
    evict(site, "run/tmp/a")
    restore = backup_of(site)
    site.rename("run/tmp/a", "run/step/deep/a")
    site.drain()
    restore()
    report = reconcile(site)
    assert report.cases["moved"] == 1
    assert report.lost == 0
    assert tree(site) == {"run/step/deep/a": ino}
    assert readable(site) == {"run/step/deep/a": b"moved"}
    [(digests,)] = site.rows(f"SELECT count(*) FROM block_digest WHERE ino = {ino}")
    assert digests == 1
    assert_at_rest(site)


def test_a_file_that_was_renamed_while_it_was_sent_keeps_its_name(each_site: Site) -> None:
    site = each_site
    ino = site.write("run/tmp/a", b"sent")
    site.drain()
    # The names of the copy know the rename, and not that the object was stored.
    site.rows(f"UPDATE inode SET drained_version = 0 WHERE ino = {ino} RETURNING 1")
    site.rows(f"DELETE FROM object WHERE ino = {ino} RETURNING 1")
    site.rename("run/tmp", "run/step")
    report = reconcile(site)
    assert report.lost == 0
    assert tree(site) == {"run/step/a": ino}
    assert readable(site) == {"run/step/a": b"sent"}
    assert_at_rest(site, sends=True)
    assert site.objects() == {"run/step/a": b"sent"}


def test_files_that_swapped_their_names_do_so_again(each_site: Site) -> None:
    site = each_site
    a, b = site.write("a", b"was a"), site.write("b", b"was b")
    site.drain()
    evict(site, "a")
    evict(site, "b")
    restore = backup_of(site)
    site.rename("a", "c")
    site.rename("b", "a")
    site.rename("c", "b")
    site.drain()
    assert site.objects() == {"a": b"was b", "b": b"was a"}
    restore()
    report = reconcile(site)
    assert report.lost == 0
    assert tree(site) == {"a": b, "b": a}
    assert readable(site) == {"a": b"was b", "b": b"was a"}
    assert_at_rest(site)


def test_a_file_that_the_names_lack_comes_back_with_its_number(each_site: Site) -> None:
    site = each_site
    restore = backup_of(site)
    ino = site.write("run/new/file", b"made since")
    site.drain()
    before = site.attr("run/new/file")
    evict(site, "run/new/file")
    restore()
    assert tree(site) == {}
    report = reconcile(site)
    assert report.outcomes == {"came back": 1}
    after = site.attr("run/new/file")
    assert (after.ino, after.generation) == (ino, before.generation)
    assert (after.mode, after.uid, after.gid) == (0o640, 1000, 100)
    assert after.mtime_ns == before.mtime_ns
    assert readable(site) == {"run/new/file": b"made since"}
    # Its number is not given out again, and it can be deleted.
    assert site.write("other", b"x") > ino
    assert_at_rest(site, sends=True)
    site.unlink("run/new/file")
    site.drain()
    assert site.objects() == {"other": b"x"}


def test_a_taken_number_is_not_shared(each_site: Site) -> None:
    site = each_site
    ino = site.write("old", b"old")
    site.drain()
    put_object(site, "new", b"other", **made_by(site, ino, 3))
    put_object(site, "far", b"far", **made_by(site, 1_000_000, 3))
    put_object(site, "none", b"none", **made_by(site, 1 << 70, 1 << 70))
    report = reconcile(site)
    assert report.outcomes == {"came back": 3}
    assert len(set(tree(site).values())) == 4
    assert site.attr("far").ino == 1_000_000
    assert readable(site) == {"old": b"old", "new": b"other", "far": b"far", "none": b"none"}
    assert_at_rest(site)
    assert reconcile(site).changes == 0


def test_the_file_whose_path_another_one_has_gets_a_name_beside_it(each_site: Site) -> None:
    site = each_site
    local = site.write("run/a", b"on the disk")
    lost = site.write("run/b", b"only there")
    site.drain()
    evict(site, "run/b")
    for path in ("run/a", "run/b"):
        put_object(site, path, b"of the other", **made_by(site, 500 + ord(path[-1]), 1))
    report = reconcile(site)
    assert report.outcomes == {"came back": 2, "renamed": 2, "sent again": 1, "lost": 1}
    names = {ino: path for path, ino in tree(site).items()}
    assert names[local].startswith("run/a.before-20")
    assert names[lost].startswith("run/b.before-20")
    assert list(damaged(site)) == [names[lost]]
    assert damaged(site)[names[lost]].endswith(f" {PREFIX}/run/b")
    assert readable(site) == {
        "run/a": b"of the other",
        "run/b": b"of the other",
        names[local]: b"on the disk",
    }
    assert_at_rest(site, sends=True)
    assert site.objects()[names[local]] == b"on the disk"
    assert site.objects()["run/a"] == b"of the other"


def test_a_foreign_object_in_place_of_ours_stays(each_site: Site) -> None:
    site = each_site
    site.write("a", b"here")
    site.write("b", b"gone")
    site.drain()
    evict(site, "b")
    for path in ("a", "b", "c"):
        put_object(site, path, b"of a person")
    site.proxy.forget()
    report = reconcile(site)
    assert report.cases["replaced"] == 2
    assert report.cases["foreign"] == 1
    assert report.outcomes == {"sent again": 1, "lost": 1, "left": 1}
    assert list(damaged(site)) == ["b"]
    assert {request.operation for request in site.proxy.operations()} <= {"HEAD", "LIST", "GET"}
    assert dict.fromkeys("abc", b"of a person") == site.objects()


def test_an_object_that_was_sent_again_is_recorded(rclone_site: Site) -> None:
    """rclone has the ETag of the content, so the row is made another one."""
    site = rclone_site
    ino = site.write("a", b"same")
    site.drain()
    evict(site, "a")
    site.rows(f"UPDATE object SET etag = 'another' WHERE ino = {ino} RETURNING 1")
    report = reconcile(site)
    assert report.cases["changed"] == 1
    assert report.outcomes == {"recorded again": 1}
    assert readable(site) == {"a": b"same"}
    assert_at_rest(site)


def test_an_interrupted_move_stays_as_it_is_recorded(each_site: Site) -> None:
    site = each_site
    ino = site.write("a", b"once")
    site.drain()
    copy_object(site, "a", "copy")
    report = reconcile(site)
    assert report.cases["second copy"] == 1
    assert report.changes == 0
    assert tree(site) == {"a": ino}
    assert_at_rest(site)


def test_what_a_tombstone_covers_is_no_file(each_site: Site) -> None:
    site = each_site
    site.write("a", b"deleted")
    site.write("b", b"deleted, and written since")
    site.drain()
    newer = {**site.metadata("b"), "content-version": "9"}
    site.unlink("a")
    site.unlink("b")
    put_object(site, "b", b"newer", **newer)
    report = reconcile(site)
    assert report.cases["garbage"] == 1
    assert report.outcomes == {"came back": 1}
    assert site.rows("SELECT key FROM tombstone") == [(key_of("a"),)]
    assert readable(site) == {"b": b"newer"}
    assert_at_rest(site, sends=True)
    assert site.objects() == {"b": b"newer"}


def test_an_object_that_waits_for_its_name_is_found(each_site: Site) -> None:
    site = each_site
    ino = site.write("a", b"waits")
    site.drain()
    evict(site, "a")
    copy_object(site, "a", f".spillway/staging/{ino}")
    put_object(site, ".spillway/staging/4711", b"lost name", **made_by(site, 4711, 2))
    put_object(site, "a", b"of the other", **made_by(site, 600, 1))
    report = reconcile(site)
    assert report.outcomes == {
        "recorded again": 1,
        "in lost+found": 1,
        "came back": 1,
        "renamed": 1,
    }
    contents = readable(site)
    beside = next(path for path, number in tree(site).items() if number == ino)
    assert beside.startswith("a.before-")
    assert contents[beside] == b"waits"
    assert contents["a"] == b"of the other"
    assert contents["lost+found/#4711"] == b"lost name"
    assert_at_rest(site, sends=True)
    assert site.objects() == {
        beside: b"waits",
        "a": b"of the other",
        "lost+found/#4711": b"lost name",
    }


def test_a_directory_and_a_file_of_one_name_both_stay(rclone_site: Site) -> None:
    """A store may have objects at both keys for a moment. rclone keeps them as files."""
    site = rclone_site
    file = site.write("a", b"file")
    site.directory("d")
    put_object(site, "d", b"object", **made_by(site, 700, 1))
    put_object(site, "a/b", b"below", **made_by(site, 701, 1))
    reconcile(site)
    contents = readable(site)
    names = {ino: path for path, ino in tree(site).items()}
    assert names[file].startswith("a.before-")
    assert names[700].startswith("d.before-")
    assert contents == {names[file]: b"file", names[700]: b"object", "a/b": b"below"}
    assert_at_rest(site, sends=True)


def test_a_shortened_key_has_the_rest_of_its_path_in_the_metadata(each_site: Site) -> None:
    site = each_site
    restore = backup_of(site)
    path = "/".join(["d" * 200] * 5 + ["deep", "file"])
    site.write(path, b"far below")
    site.drain()
    restore()
    assert reconcile(site).outcomes == {"came back": 1}
    assert readable(site) == {path: b"far below"}
    assert_at_rest(site)


def test_the_bucket_alone_makes_an_empty_namespace_again(each_site: Site) -> None:
    site = each_site
    contents = {"run/step 1/a": b"one", "run/step 1/b%": b"two", "c": b"", "ü/d": b"four"}
    attrs = {}
    for path, data in contents.items():
        site.write(path, data)
    site.link("c", "linked")
    site.drain()
    for path in contents:
        attrs[path] = site.attr(path)
    forget_names(site)
    assert tree(site) == {}
    report = reconcile(site)
    assert report.outcomes == {"came back": len(contents)}
    assert report.not_back is not None
    assert readable(site) == contents
    for path, before in attrs.items():
        after = site.attr(path)
        for name in ("ino", "generation", "mode", "uid", "gid", "size", "mtime_ns"):
            assert getattr(after, name) == getattr(before, name), (path, name)
    assert_at_rest(site)
    assert reconcile(site).changes == 0


def test_objects_of_another_namespace_are_foreign_unless_they_are_asked_for(
    rclone_site: Site,
) -> None:
    site = rclone_site
    other = "ab" * 16
    put_object(site, "a", b"theirs", **{**made_by(site, 900, 4), "volume": other})
    report = reconcile(site)
    assert (report.cases["foreign"], report.changes) == (1, 0)
    report = reconcile(site, other)
    assert report.outcomes == {"came back": 1}
    assert readable(site) == {"a": b"theirs"}
    assert_at_rest(site)
    assert reconcile(site).changes == 0


def test_an_object_that_is_refused_is_foreign_but_never_lost(rclone_site: Site) -> None:
    site = rclone_site
    ino = site.write("ours", b"one")
    site.drain()
    put_object(site, "sealed", b"with a key that we may not use")
    site.proxy.inject(
        lambda r: r.method == "HEAD" and r.key.endswith(("sealed", "ours")),
        Act.FAIL,
        1e9,
        403,
        "AccessDenied",
    )
    assert reconcile(site).cases == {"foreign": 1, "own": 1, "same": 1}
    site.rows(f"UPDATE object SET etag = 'another' WHERE ino = {ino} RETURNING 1")
    with pytest.raises(ObjectRefused):
        reconcile(site)
    assert damaged(site) == {}


def test_keys_of_the_gateway_are_no_files(rclone_site: Site) -> None:
    site = rclone_site
    for name in ("probe/x", "foreign/y", "promoted/best.json", "names/base"):
        put_object(site, f".spillway/{name}", b"own", **made_by(site, 950, 1))
    put_object(site, ".spillway/promoted/best/f", b"copy", **made_by(site, 951, 1))
    report = reconcile(site)
    assert report.cases == {"own": 5, "promoted copy": 1}
    assert (report.changes, tree(site)) == (0, {})
    assert key_of("x") == f"{PREFIX}/x"
