"""``spillway fsck --bucket`` and ``spillway reconcile``: what they print, and their exit status."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.clisite import assert_refused, spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t12.reconcile import (
    backup_of,
    compare,
    damaged,
    delete_object,
    evict,
    made_by,
    object_of,
    put_object,
    tree,
)


def run(site: Site, *args: str, status: int = 0) -> str:
    """Run a command on the gateway, which has no NFS server. Returns its output."""
    result = spillway(*args, "--config", site.settings.source)
    assert (result.returncode, result.stderr) == (status, ""), result
    return result.stdout


def stopped(site: Site, *args: str, status: int = 0) -> str:
    """Run a command while the gateway is stopped."""
    site.namespace.close()
    return run(site, *args, status=status)


def test_fsck_names_what_the_bucket_lacks_and_changes_nothing(each_site: Site) -> None:
    site = each_site
    for name in ("same", "missing", "replaced", "newer"):
        site.write(f"run/{name}", name.encode())
    site.drain()
    assert "4 same" in run(site, "fsck", "--bucket")
    evict(site, "run/missing")
    delete_object(site, "run/missing")
    newer = {**site.metadata("run/newer"), "content-version": "5"}
    put_object(site, "run/newer", b"newest", **newer)
    put_object(site, "run/replaced", b"of a person")
    put_object(site, "foreign", b"of a person")
    put_object(site, "unknown", b"ours", **made_by(site, 800, 1))
    rows = site.rows("SELECT * FROM object ORDER BY ino")
    site.proxy.forget()
    text = run(site, "fsck", "--bucket", status=1)
    assert "found: 1 foreign, 1 missing, 1 newer, 1 own, 1 replaced, 1 same, 1 unknown" in text
    assert f"{PREFIX}/run/missing" in text
    assert {request.operation for request in site.proxy.operations()} <= {"HEAD", "LIST", "GET"}
    assert site.rows("SELECT * FROM object ORDER BY ino") == rows
    assert damaged(site) == {}
    document: dict[str, Any] = json.loads(run(site, "fsck", "--bucket", "--json", status=1))
    assert document["is_changed"] is False
    assert document["outcomes"] == {
        "came back": 1,
        "left": 1,
        "lost": 1,
        "sent again": 1,
        "taken from the bucket": 1,
    }


def test_fsck_of_the_bucket_takes_no_other_order(rclone_site: Site) -> None:
    result = spillway("fsck", "--bucket", "--repair", "--config", rclone_site.settings.source)
    assert_refused(result, "--bucket changes and reads nothing else")


def test_a_gateway_at_work_has_no_problems(moto_site: Site) -> None:
    """What is sent, moved and deleted meanwhile is none."""
    site = moto_site
    for number in range(6):
        site.write(f"run/{number}", b"%d" % number)
    with site.draining():
        for turn in range(6):
            for number in range(6):
                site.write(f"run/{number}", b"%d %d" % (number, turn))
            site.write(f"run/new-{turn}", b"new")
            site.rename(f"run/new-{turn}", f"run/moved-{turn}")
            if turn:
                site.unlink(f"run/moved-{turn - 1}")
            report = compare(site)
            assert report.problems == 0, report.keys


def test_a_file_that_is_deleted_meanwhile_is_not_missing(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", b"one")
    site.drain()
    delete_object(site, "a")
    held = site.proxy.inject(lambda r: r.method == "HEAD" and r.key.endswith("/a"), Act.HOLD)
    with ThreadPoolExecutor(1) as pool:
        comparing = pool.submit(compare, site)
        held.wait()
        site.unlink("a")
        held.release()
        report = comparing.result()
    assert report.cases == {"own": 1, "under way": 1}


def test_reconcile_shows_what_it_would_do_and_does_it(each_site: Site) -> None:
    site = each_site
    restore = backup_of(site)
    site.write("run/a", b"since")
    site.drain()
    evict(site, "run/a")
    restore()
    text = stopped(site, "reconcile", "--dry-run")
    assert "would change: 1 came back" in text
    assert site.rows("SELECT * FROM object") == []
    text = run(site, "reconcile")
    assert "changed: 1 came back" in text
    assert "hard links" in text
    assert "policies delete nothing before a person has approved it" in text
    assert "nothing to change" in run(site, "reconcile")
    restarted = type(site.namespace)(site.settings)
    site.namespace = restarted
    assert list(tree(site)) == ["run/a"]
    assert object_of(site, "run/a")[0] == "run/a"


def test_reconcile_exits_with_1_when_something_is_lost(rclone_site: Site) -> None:
    site = rclone_site
    site.write("a", b"gone")
    site.drain()
    evict(site, "a")
    delete_object(site, "a")
    text = stopped(site, "reconcile", status=1)
    assert "1 files are damaged: neither the bucket nor the disk has their bytes" in text


def test_reconcile_refuses_what_does_not_belong_together(rclone_site: Site) -> None:
    site = rclone_site
    restore = backup_of(site)
    restore()
    site.namespace.close()
    config = site.settings.source
    assert_refused(spillway("reconcile", "--volume", "x", "--config", config), "namespace id")
    (site.settings.files_dir / "stamp.json").unlink()
    assert_refused(spillway("reconcile", "--config", config), "spillway adopt files")


def test_the_adoption_of_files_ends_with_a_comparison(rclone_site: Site) -> None:
    site = rclone_site
    site.write("run/latest", b"1")
    site.drain()
    evict(site, "run/latest")
    put_object(site, "run/latest", b"22", **{**site.metadata("run/latest"), "content-version": "5"})
    text = stopped(site, "adopt", "files")
    assert "the names follow the bucket: 1 taken from the bucket" in text
    assert site.rows("SELECT max(size) FROM inode WHERE kind = 1 AND reserved = 0") == [(2,)]
