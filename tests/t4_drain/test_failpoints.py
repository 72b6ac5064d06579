"""After kill -9 of the drain at each of its requests and commits, the next start converges.

Before ``create_multipart_upload``, the intent is durable and nothing is sent. After it, the
upload's id is not recorded. A kill between two ``upload_part`` is between two parts. After
``complete_multipart_upload`` or ``put_object``, the object exists without its row, which the next
``commit`` publishes. A move is ``head_object``, ``copy_object`` and the ``commit`` of its row, then
``delete_object`` of the source and the ``commit`` that drops its tombstone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from itertools import count, product
from pathlib import Path

import pytest

import gateway.processes.drain as drain
from gateway.common import failpoints
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from tests.support.drainsite import MIB, Site
from tests.support.s3server import die_with_parent
from tests.support.waiting import until

OPERATIONS = (
    "create_multipart_upload",
    "upload_part",
    "complete_multipart_upload",
    "put_object",
    "copy_object",
    "delete_objects",
)
COMMITS_MAX = 40
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["gateway.processes.drain"])
LARGE = os.urandom(11 * MIB)


def prepare(site: Site, number: int) -> dict[str, bytes]:
    """Make some work of each kind. Returns the objects that the bucket must have at the end."""
    top = f"run-{number}"
    site.write(f"{top}/moved", b"moved %d" % number)
    site.write(f"{top}/deleted", b"deleted %d" % number)
    site.write(f"{top}/rewritten", b"before %d" % number)
    site.drain()
    site.rename(f"{top}/moved", f"{top}/target")
    site.unlink(f"{top}/deleted")
    site.write(f"{top}/rewritten", b"after %d" % number)
    site.write(f"{top}/small", b"small %d" % number)
    site.write(f"{top}/large", LARGE)
    return {
        f"{top}/target": b"moved %d" % number,
        f"{top}/rewritten": b"after %d" % number,
        f"{top}/small": b"small %d" % number,
        f"{top}/large": LARGE,
    }


def killed_at(site: Site, failpoint: str) -> bool:
    """Run the drain until the failpoint kills it. Returns False if it did all work without that."""
    process = context.Process(target=run_drain, args=(site.settings.source, site.output, failpoint))
    process.start()
    try:
        until(
            lambda: process.exitcode is not None or is_done(site),
            f"{failpoint} is passed, or everything is done",
        )
        return process.exitcode == -signal.SIGKILL
    finally:
        process.kill()
        process.join()
        # A multipart upload that is begun so late would be taken for an abandoned upload by the
        # next drain.
        until(
            lambda: all(request.status is not None for request in site.proxy.operations()),
            "the server has answered the requests of the killed drain",
        )


def run_drain(config: Path, output: Path, failpoint: str) -> None:
    """Run the drain's program in this process, which a server with its modules has forked."""
    die_with_parent()
    with output.open("ab", buffering=0) as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.argv = ["drain", "--config", str(config)]
    failpoints.arm(failpoint)
    sys.exit(drain.main())


def is_done(site: Site) -> bool:
    return not site.left() and not site.rows("SELECT * FROM claim")


def converges(site: Site, expected: dict[str, bytes]) -> None:
    site.drain()
    assert site.left() == []
    assert site.objects() == expected
    assert site.multiparts() == 0
    database = Database(site.settings.database_url)
    assert fsck.check(database, DataFiles(site.settings.files_dir)) == []
    database.close()


def forget(site: Site, expected: dict[str, bytes]) -> None:
    for path in expected:
        site.unlink(path)
    site.drain()


@pytest.mark.parametrize(("operation", "when"), list(product(OPERATIONS, ("before", "after"))))
def test_killed_at_a_request(rclone_site: Site, operation: str, when: str) -> None:
    site = rclone_site
    for number in count(1):
        expected = prepare(site, number)
        was_killed = killed_at(site, f"drain.{operation}.{when}.{number}")
        assert was_killed or number > 1, "the place is never passed"
        converges(site, expected)
        if not was_killed:
            return
        forget(site, expected)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_a_commit(rclone_site: Site, when: str) -> None:
    """The drain is killed at its n-th commit. The order of the commits depends on the threads."""
    site = rclone_site
    for number in range(1, COMMITS_MAX):
        expected = prepare(site, number)
        was_killed = killed_at(site, f"drain.commit.{when}.{number}")
        converges(site, expected)
        if not was_killed:
            assert number > 10, "the places are not passed"
            return
        forget(site, expected)
