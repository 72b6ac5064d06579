"""A backup of two minutes ago: checkpoints were rotated since, and names changed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.common import failpoints
from gateway.config import loader
from gateway.db.engine import Database
from gateway.lifecycle.retention import store as policies
from gateway.lifecycle.retention.policy import of
from gateway.namespace.data_files import DataFiles
from gateway.recovery import bucket_scan
from gateway.recovery import reconcile as recovery
from tests.support.drainsite import Site
from tests.support.forking import context
from tests.support.namespace import Namespace
from tests.support.t12.reconcile import (
    CHANGES,
    assert_at_rest,
    backup_of,
    damaged,
    evict,
    forget_names,
    made_by,
    object_of,
    put_object,
    readable,
    reconcile,
    tree,
)


def save(site: Site, step: int) -> None:
    """Save a checkpoint, and say that it is the latest."""
    for rank in range(3):
        site.write(f"run/step-{step}/rank-{rank}.tmp", b"%d of %d" % (rank, step))
        site.rename(f"run/step-{step}/rank-{rank}.tmp", f"run/step-{step}/rank-{rank}")
    site.write("run/latest", b"step-%d" % step)


def rotated(site: Site, is_evicted: bool) -> tuple[dict[str, bytes], Callable[[], None]]:
    """Make a gateway whose backup is older than its bucket. Returns what the bucket has, by path,
    and a function that puts the backup back."""
    save(site, 1)
    save(site, 2)
    site.write("run/notes", b"old notes")
    site.drain()
    if is_evicted:
        for path in tree(site):
            evict(site, path)
    restore = backup_of(site)
    if is_evicted:
        site.rows("UPDATE inode SET residency = 2 WHERE kind = 1 AND reserved = 0 RETURNING 1")
    for rank in range(3):
        site.unlink(f"run/step-1/rank-{rank}")
    save(site, 3)
    site.rename("run/notes", "run/archive/notes")
    site.rename("run/step-2", "run/best")
    site.write("run/archive/notes", b"new notes")
    site.drain()
    if is_evicted:
        for path in tree(site):
            evict(site, path)
    return site.objects(), restore


def assert_follows(site: Site, there: dict[str, bytes]) -> None:
    """Assert that each file of the bucket can be read, and that each other one is damaged."""
    lost = {f"run/step-1/rank-{rank}" for rank in range(3)}
    assert readable(site) == there
    assert set(damaged(site)) == lost
    assert set(tree(site)) == {*there, *lost}
    for path in there:
        assert object_of(site, path)[0] == path


def test_what_the_bucket_has_is_readable_and_the_rest_is_named(each_site: Site) -> None:
    site = each_site
    there, restore = rotated(site, is_evicted=True)
    restore()
    site.proxy.forget()
    report = reconcile(site)
    assert [r.key for r in site.proxy.operations() if r.operation in CHANGES] == []
    assert report.lost == 3
    assert_follows(site, there)
    assert_at_rest(site)
    assert site.objects() == there
    again = reconcile(site)
    assert (again.lost, again.changes) == (3, 3)
    assert_follows(site, there)


def test_a_gateway_that_kept_its_disk_loses_nothing_of_the_bucket(moto_site: Site) -> None:
    site = moto_site
    there, restore = rotated(site, is_evicted=False)
    restore()
    reconcile(site)
    assert readable(site) == there
    assert_at_rest(site, sends=True)
    assert site.objects() == there


def test_policies_ask_again(each_site: Site) -> None:
    site = each_site
    rules = {"path": "run/*", "keep_newest": 2}
    with site.namespace._database.writing() as session:
        first = policies.put(session, of({"name": "asked", **rules}), "a person")
        automatic = of({"name": "automatic", "approve": "automatic", **rules})
        policies.put(session, automatic, "a person")
        assert first is not None
        policies._approve_versions(session, ["asked v1", "automatic v1"], "a person")
    site.write("run/a", b"one")
    site.drain()
    reconcile(site)
    assert len(site.rows("SELECT * FROM policy_approval")) == 2
    put_object(site, "run/b", b"two", **made_by(site, 900, 1))
    reconcile(site)
    with site.namespace._database.reading() as session:
        current = policies.current(session)
        assert policies.consent(session, current).versions == frozenset()
        assert [str(one) for one in current] == ["asked v1", "automatic v2"]
        assert site.rows("SELECT name FROM reader") == []


def test_a_manifest_without_a_row_is_known_again_if_its_checkpoint_is_there(
    rclone_site: Site,
) -> None:
    site = rclone_site
    site.write("run/step-1/a", b"one")
    site.drain()
    ino = site.attr("run/step-1").ino
    of_checkpoint = made_by(site, ino, 1)
    put_object(site, ".spillway/checkpoints/run/1.json", b"{}", **of_checkpoint)
    put_object(site, ".spillway/checkpoints/run/2.json", b"{}", **made_by(site, 990, 1))
    put_object(site, ".spillway/checkpoints/run/3.json", b"{}")
    report = reconcile(site)
    assert (report.cases["manifest"], report.cases["foreign"]) == (2, 1)
    assert report.outcomes == {"recorded again": 1, "left": 2}
    [(key, path)] = site.rows("SELECT key, path FROM manifest")
    assert key.endswith("/.spillway/checkpoints/run/1.json")
    assert bytes(path) == b"run/step-1"
    assert reconcile(site).changes == 0


def run_reconcile(config: Path, failpoint: str, page: int) -> None:
    """Reconcile in this process, which a failpoint kills."""
    bucket_scan.PAGE = page
    settings = loader.load(config)
    failpoints.arm(failpoint)
    with closing(Database(settings.database_url)) as database:
        recovery.reconcile(settings, database, DataFiles(settings.files_dir))


@pytest.mark.parametrize("is_empty", [False, True], ids=["backup", "bucket-alone"])
def test_a_kill_at_any_step_changes_nothing_of_the_end(
    rclone_site: Site, is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = rclone_site
    there, restore = rotated(site, is_evicted=True)
    if is_empty:
        forget_names(site)
    else:
        restore()
    killed, number = 0, 1
    while True:
        site.namespace.close()
        arguments = (site.settings.source, f"reconcile.{number}", 2)
        process = context.Process(target=run_reconcile, args=arguments)
        process.start()
        process.join()
        site.namespace = Namespace(site.settings)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        killed, number = killed + 1, number * 2
    assert killed > 4
    monkeypatch.setattr(bucket_scan, "PAGE", 3)
    reconcile(site)
    if is_empty:
        assert (readable(site), damaged(site)) == (there, {})
    else:
        assert_follows(site, there)
    assert_at_rest(site)


def test_a_bucket_of_many_pages_is_compared_to_its_end(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = moto_site
    monkeypatch.setattr(bucket_scan, "PAGE", 7)
    for number in range(40):
        site.write(f"run/{number}", b"%d" % number)
    site.drain()
    assert reconcile(site).cases == {"own": 1, "same": 40}
    contents = readable(site)
    forget_names(site)
    report = reconcile(site)
    assert report.outcomes == {"came back": 40}
    assert readable(site) == contents
    assert_at_rest(site)
