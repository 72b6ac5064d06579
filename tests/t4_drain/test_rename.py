"""The bucket follows renames of drained files, and the last copy of a content is never lost."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from gateway.common.errors import NotFound
from gateway.drain.context import COPIES
from gateway.drain.tidy.move import MOVES_AT_ONCE
from gateway.objectstore import client
from gateway.objectstore.s3 import S3Store
from tests.support.drain import Drain
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Request
from tests.support.sites import MakeSite
from tests.support.t4.ceph import ON_CEPH
from tests.support.t4.rename import watch
from tests.support.waiting import until


def test_a_rename_copies_and_then_deletes(site: Site) -> None:
    data = {"old": os.urandom(6 * MIB), "small": b"s", "empty": b""}
    for name, body in data.items():
        site.write(f"dir/{name}", body)
    site.drain()
    before = {name: site.metadata(f"dir/{name}") for name in data}
    lost = watch(site, set(data.values()))
    for name in data:
        site.rename(f"dir/{name}", f"dir/{name}.final")
    site.drain()
    assert lost == []
    assert site.objects() == {f"dir/{name}.final": body for name, body in data.items()}
    assert len(site.proxy.operations("COPY")) == 3
    deleted = {key for r in site.proxy.operations("DELETE") for key in r.keys}
    assert deleted == {f"{PREFIX}/dir/{name}" for name in data}
    for name in data:
        assert site.metadata(f"dir/{name}.final").items() >= before[name].items()
    assert site.left() == []
    site.proxy.forget()
    site.drain()
    assert {r.operation for r in site.proxy.operations()} == {"LIST", "LIST UPLOADS"}


def test_a_renamed_directory_takes_all_objects_below_it_along(site: Site) -> None:
    for number in range(5):
        site.write(f"a/deep/{number}", b"%d" % number)
    site.write("a/other", b"o")
    site.drain()
    lost = watch(site, {b"%d" % number for number in range(5)} | {b"o"})
    site.rename("a", "b")
    site.rename("b/deep", "b/deeper")
    site.drain()
    assert lost == []
    expected = {f"b/deeper/{number}": b"%d" % number for number in range(5)}
    assert site.objects() == {**expected, "b/other": b"o"}
    assert site.left() == []


def swap(site: Site) -> None:
    site.rename("a", "x.tmp")
    site.rename("b", "a")
    site.rename("x.tmp", "b")


def rotate(site: Site) -> None:
    site.rename("b", "c")
    site.rename("a", "b")


def test_two_swapped_names_swap_their_objects(site: Site) -> None:
    site.write("a", b"first")
    site.write("b", b"second")
    site.drain()
    lost = watch(site, {b"first", b"second"})
    swap(site)
    site.drain()
    assert lost == []
    assert site.objects() == {"a": b"second", "b": b"first"}
    assert site.left() == []


def test_two_dirty_files_with_swapped_names_do_not_wait_for_each_other(site: Site) -> None:
    site.write("a", b"first")
    site.write("b", b"second")
    site.drain()
    swap(site)
    site.write("a", b"second, again")
    site.write("b", b"first, again")
    site.drain()
    assert site.objects() == {"a": b"second, again", "b": b"first, again"}
    assert site.left() == []


def test_a_rotation_needs_one_copy_for_each_file(site: Site) -> None:
    site.write("a", b"newest")
    site.write("b", b"older")
    site.drain()
    lost = watch(site, {b"newest", b"older"})
    rotate(site)
    site.drain()
    assert lost == []
    assert site.objects() == {"b": b"newest", "c": b"older"}
    assert len(site.proxy.operations("COPY")) == 2
    assert site.left() == []


def test_a_rename_over_a_drained_file_replaces_its_object(site: Site) -> None:
    site.write("last", b"old")
    site.write("new.tmp", b"new")
    site.drain()
    site.rename("new.tmp", "last")
    site.drain()
    assert site.objects() == {"last": b"new"}
    assert site.proxy.operations("DELETE", "COPY") == []
    assert site.left() == []


def test_a_rename_of_a_drained_file_over_another(site: Site) -> None:
    site.write("last", b"old")
    site.write("other", b"new")
    site.drain()
    lost = watch(site, {b"new"})
    site.rename("other", "last")
    site.drain()
    assert lost == []
    assert site.objects() == {"last": b"new"}
    assert site.left() == []


def test_a_held_name_waits_and_makes_way(site: Site) -> None:
    site.write("f", b"old")
    site.drain()
    lost = watch(site, {b"old"})
    site.rename("f", "f.tmp")
    site.drain()
    assert site.objects() == {"f": b"old"}
    site.write("f", b"new")
    site.drain()
    staged = f".spillway/staging/{site.attr('f.tmp').ino}"
    assert site.objects() == {"f": b"new", staged: b"old"}
    site.rename("f.tmp", "g")
    site.drain()
    assert lost == []
    assert site.objects() == {"f": b"new", "g": b"old"}
    assert site.left() == []


def test_a_hard_link_keeps_the_object_when_its_first_name_goes(site: Site) -> None:
    site.write("first", b"data")
    site.link("first", "second")
    site.drain()
    assert site.objects() == {"first": b"data"}
    lost = watch(site, {b"data"})
    site.unlink("first")
    site.drain()
    assert lost == []
    assert site.objects() == {"second": b"data"}
    site.unlink("second")
    site.drain()
    assert site.objects() == {}
    assert site.left() == []


def test_a_renamed_and_rewritten_file_leaves_nothing_under_its_old_name(site: Site) -> None:
    site.write("old", b"one")
    site.drain()
    site.rename("old", "new")
    site.write("new", b"two")
    site.drain()
    assert site.objects() == {"new": b"two"}
    assert site.proxy.operations("COPY") == []
    assert site.left() == []


def test_an_object_that_is_not_what_was_recorded_is_neither_moved_nor_deleted(
    rclone_site: Site,
) -> None:
    """After the database was restored, the bucket may have newer bytes than its rows say."""
    site = rclone_site
    site.write("old", b"mine")
    site.drain()
    site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/old", Body=b"newer")
    site.rename("old", "new")
    site.drain()
    assert site.objects() == {"old": b"newer", "new": b"mine"}


def rename_and_rewrite(site: Site) -> None:
    site.rename("a", "c")
    site.write("c", b"anew")


CHANGES: dict[str, Callable[[Site], None]] = {
    "swap": swap,
    "rotate": rotate,
    "rename and rewrite": rename_and_rewrite,
    "rename over": lambda site: site.rename("a", "b"),
    "unlink": lambda site: site.unlink("a"),
}


@pytest.mark.parametrize(
    ("change", "act"),
    [
        ("swap", Act.DROP),
        ("swap", Act.DROP_ANSWER),
        ("rotate", Act.DROP),
        ("rename and rewrite", Act.DROP_ANSWER),
        ("rename over", Act.DROP_ANSWER),
        ("unlink", Act.DROP_ANSWER),
    ],
)
def test_whatever_request_is_the_last_the_bucket_converges(
    rclone_site: Site, change: str, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain is cut off at its n-th request, for each n, and a new one continues."""
    # boto's second try would only wait here.
    monkeypatch.setattr(client, "ATTEMPTS_MAX", 1)
    site = rclone_site
    for cut in itertools.count(1):
        contents = {"a": b"first %d" % cut, "b": b"second %d" % cut}
        for path, data in contents.items():
            site.write(path, data)
        site.drain()
        CHANGES[change](site)
        expected = live(site)
        lost = watch(site, set(expected.values()) & set(contents.values()))
        site.proxy.forget()
        fault = site.proxy.inject(after(site, cut), act, times=1e9)
        drain = Drain(site.settings)
        while drain.cycle():
            pass
        drain.close()
        fault.release()
        was_cut = len(site.proxy.operations()) > cut
        site.drain()
        assert lost == []
        assert site.objects() == expected
        assert site.left() == []
        if not was_cut:
            return
        site.proxy.on_applied = None
        for path in expected:
            site.unlink(path)


def after(site: Site, count: int) -> Callable[[Request], bool]:
    """Return a predicate that matches the requests after the first ``count``."""
    return lambda _request: len(site.proxy.requests) > count


def live(site: Site) -> dict[str, bytes]:
    """Return the files that clients can read, by path. The bucket must have them at the end."""
    found = {}
    for path in ("a", "b", "c"):
        with suppress(NotFound):
            attr = site.attr(path)
            found[path] = site.namespace.files.path(attr.ino, attr.epoch).read_bytes()
    return found


@pytest.mark.parametrize("kind", ["moto", "rclone"])
def test_objects_too_large_for_one_copy_are_copied_in_parts(
    request: pytest.FixtureRequest, make_site: MakeSite, kind: str
) -> None:
    """rclone answers 200 to a part copy and copies nothing, so it must get one copy request."""
    site = make_site(request.getfixturevalue(kind))
    data = os.urandom(11 * MIB)
    site.write("large", data)
    site.drain()
    metadata = site.metadata("large")
    store = S3Store(site.settings, copy_max_bytes=5 * MIB)
    head = store.head(f"{PREFIX}/large")
    assert head is not None
    assert store.copy(f"{PREFIX}/large", f"{PREFIX}/copy", head, head.metadata).size == len(data)
    assert site.objects()["copy"] == data
    assert site.metadata("copy").items() >= metadata.items()
    assert site.multiparts() == 0
    assert len(site.proxy.operations("PART COPY")) == (3 if kind == "moto" or ON_CEPH else 1)


@pytest.mark.parametrize("then", ["uploaded", "deleted"])
def test_a_version_whose_upload_was_not_answered_does_not_stay_at_the_old_key(
    site: Site, then: str
) -> None:
    """The object's row has the version before."""
    site.write("f", b"one")
    site.drain()
    site.write("f", b"two")
    site.proxy.inject(lambda r: r.operation == "PUT", Act.DROP_ANSWER, times=2)
    site.drain()
    assert site.objects() == {"f": b"two"}
    site.rename("f", "g")
    if then == "deleted":
        site.proxy.inject(lambda r: r.operation == "PUT", Act.DROP, times=2)
        site.drain()
        site.unlink("g")
    site.drain()
    assert site.objects() == ({} if then == "deleted" else {"g": b"two"})
    assert site.left() == []


def test_copies_run_beside_each_other(moto_site: Site) -> None:
    site = moto_site
    data = {f"new/{n}": b"%d" % n for n in range(COPIES + 2)}
    for path, content in data.items():
        site.write("old" + path[3:], content)
    site.drain()
    held = site.proxy.inject(lambda r: r.operation == "COPY", Act.HOLD, times=COPIES)
    with site.draining():
        site.rename("old", "new")
        until(lambda: len(site.proxy.operations("COPY")) == COPIES, "all are under way")
        held.release()
        until(site.is_clean, "all have moved")
    assert site.objects() == data


def test_a_large_directory_of_drained_files(site: Site) -> None:
    """The drain is killed in the middle of its moves. Nothing is lost, and it ends in time."""
    count = int(os.environ.get("SPILLWAY_RENAMED_FILES", "500"))
    limit_seconds = max(120, count / 50)
    site.configure(processes=2, workers=8)
    etags = {f"{n // 250}/{n}": hashlib.md5(b"%d" % n).hexdigest() for n in range(count)}
    for n, path in enumerate(etags):
        site.write("old/" + path, b"%d" % n)
    with site.process():
        until(site.is_clean, "all are drained", limit_seconds)
    site.rename("old", "new")
    began = time.monotonic()
    copies = itertools.count()
    held = site.proxy.inject(
        lambda r: r.operation == "COPY" and next(copies) >= count // 2, Act.HOLD, times=COPIES
    )
    with site.process() as process:
        until(held.arrived.is_set, "half of it", limit_seconds)
        site.kill(process)
    held.discard()
    found = site.etags()
    for path, etag in etags.items():
        assert etag in (found.get("old/" + path), found.get("new/" + path)), path
    with site.process():
        until(site.is_clean, "all have moved", limit_seconds)
    seconds = time.monotonic() - began
    print(f"{count} files moved in {seconds:.1f} s")
    assert site.etags() == {"new/" + path: etag for path, etag in etags.items()}
    assert len(site.proxy.operations("COPY")) <= count + COPIES * MOVES_AT_ONCE
    assert seconds < limit_seconds
