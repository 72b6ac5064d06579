"""Objects that others put below the prefix become files where they are, and stay protected."""

from __future__ import annotations

import pytest

from gateway.common.types import ROOT_CRED, Residency
from gateway.namespace import residency
from gateway.service import alarms
from tests.support.drainsite import PREFIX, Site
from tests.support.t12.reconcile import (
    assert_at_rest,
    delete_object,
    object_of,
    put_object,
    readable,
    reconcile,
    tree,
)
from tests.support.volumes import alarms_in, status_of

THEIRS = {"old/run/a": b"one", "old/run/b": b"two two", "top": b"three", "old/empty": b""}


@pytest.fixture
def taken(each_site: Site) -> Site:
    """A gateway that made the objects of another program its files."""
    each_site.write("mine/a", b"mine")
    each_site.drain()
    for path, body in THEIRS.items():
        put_object(each_site, path, body)
    each_site.proxy.forget()
    report = reconcile(each_site, imports=True)
    assert report.cases["foreign"] == len(THEIRS)
    assert report.outcomes == {"imported": len(THEIRS)}
    return each_site


def overwrite(site: Site, path: str, data: bytes) -> None:
    """Write a file whose bytes are only in the bucket, as a client does that truncates it."""
    ino = site.attr(path).ino
    attr = site.namespace.run(residency.open_emptied, ino)
    assert attr is not None
    site.put_data(attr, data)
    site.seal(ino, data)


def changes(site: Site) -> list[str]:
    return [one.operation for one in site.proxy.operations() if one.method not in ("GET", "HEAD")]


def test_they_are_files_where_they_are(taken: Site) -> None:
    site = taken
    assert changes(site) == []
    assert readable(site) == {**THEIRS, "mine/a": b"mine"}
    attr = site.attr("old/run/a")
    assert (attr.mode, attr.uid, attr.gid, attr.residency) == (0o644, 0, 0, Residency.ABSENT)
    assert not attr.reserved
    assert object_of(site, "old/run/a") == ("old/run/a", 1)
    rows = site.rows("SELECT key FROM object WHERE checksum IS NULL")
    assert sorted(key for (key,) in rows) == sorted(f"{PREFIX}/{path}" for path in THEIRS)
    assert_at_rest(site)
    # Once more changes nothing.
    assert reconcile(site, imports=True).changes == 0


def test_nothing_gives_way_to_them(each_site: Site) -> None:
    site = each_site
    ino = site.write("a", b"mine, not sent")
    site.write("file", b"x")
    for key in ("a", "file/below", "%2Fodd"):
        put_object(site, key, b"theirs")
    report = reconcile(site, imports=True)
    assert report.outcomes == {"left": 3}
    assert tree(site)["a"] == ino
    assert sorted(tree(site)) == ["a", "file"]


def test_they_are_written_renamed_and_deleted_as_all_files(taken: Site) -> None:
    site = taken
    overwrite(site, "old/run/a", b"a newer one")
    site.rename("old/run/b", "old/run/c")
    site.unlink("top")
    site.drain()
    assert site.left() == []
    expected = {**THEIRS, "old/run/a": b"a newer one", "mine/a": b"mine"}
    expected["old/run/c"] = expected.pop("old/run/b")
    del expected["top"]
    assert site.objects() == expected
    # From now on it is the gateway's own.
    [(checksum,)] = site.rows(f"SELECT checksum FROM object WHERE key = '{PREFIX}/old/run/a'")
    assert checksum is not None
    overwrite_again = b"and a third one"
    site.write("old/run/a", overwrite_again)
    site.drain()
    assert site.objects()["old/run/a"] == overwrite_again


@pytest.mark.parametrize("size", [100, 11 << 20])
def test_one_that_changed_is_never_overwritten(taken: Site, size: int) -> None:
    site = taken
    put_object(site, "old/run/a", b"changed by the other program")
    overwrite(site, "old/run/a", b"m" * size)
    for _ in range(3):
        site.drain()
    assert site.objects()["old/run/a"] == b"changed by the other program"
    assert site.multiparts() == 0
    assert alarms_in(status_of(site.settings))[alarms.FILES_STUCK] == 1
    # A person moves it away.
    delete_object(site, "old/run/a")
    site.drain()
    assert site.objects()["old/run/a"] == b"m" * size


def test_one_that_changed_is_never_deleted_or_moved(taken: Site) -> None:
    site = taken
    for path in ("old/run/a", "old/run/b"):
        put_object(site, path, b"changed by the other program")
    site.namespace.remove(ROOT_CRED, *site.split("old/run/a"))
    site.rename("old/run/b", "old/run/c")
    for _ in range(3):
        site.drain()
    found = site.objects()
    assert found["old/run/a"] == found["old/run/b"] == b"changed by the other program"
    assert "old/run/c" not in found
