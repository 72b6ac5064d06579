"""After the clock went back, times that were stored before lie far ahead, but delay no work."""

from __future__ import annotations

import json

from gateway.common import clock
from gateway.db.compiled import Session
from gateway.drain.admission.retries import Retries
from gateway.drain.job import JobId, WorkKind
from tests.support.clisite import spillway
from tests.support.drainsite import Site
from tests.support.s3proxy import Act
from tests.support.waiting import until

STEP_NS = 365 * 24 * 3600 * clock.NS


def test_files_that_were_sealed_before_the_step_are_drained(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(checksum_at_seal=True)
    contents = {f"f{n}": b"%d" % n for n in range(3)}
    for path, data in contents.items():
        site.write(path, data)
    site.rows(f"UPDATE inode SET drain_after_ns = drain_after_ns + {STEP_NS} RETURNING 1")
    result = spillway("queue", "--json", "--config", site.settings.source)
    assert {entry["state"] for entry in json.loads(result.stdout)["files"]} == {"waiting"}
    held = site.proxy.inject(lambda r: r.method == "PUT", Act.HOLD, 1e9)
    with site.draining():
        until(
            lambda: site.rows("SELECT count(*) FROM digest") == [(3,)],
            "files of before the step have checksums",
        )
        held.release()
        until(lambda: not site.left(), "files of before the step are drained")
        site.write("later", b"later")
        until(lambda: not site.left(), "files of after the step are drained")
    assert site.objects() == {**contents, "later": b"later"}


def test_a_file_that_settles_is_left_alone(rclone_site: Site) -> None:
    site = rclone_site
    ino = site.write("f", b"data")
    minute_ns = 60 * clock.NS
    site.rows(f"UPDATE inode SET drain_after_ns = {clock.now_ns() + minute_ns} RETURNING 1")
    site.drain()
    assert site.objects() == {}
    assert site.rows(f"SELECT drained_version FROM inode WHERE ino = {ino}") == [(0,)]


def test_a_retry_that_lies_too_far_ahead_is_due(rclone_site: Site) -> None:
    site = rclone_site
    site.rows(
        "INSERT INTO retry (work, ino, key, tries, error, next_ns) "
        f"VALUES ('uploads', 77, 'x', 3, 'e', {clock.now_ns() + STEP_NS}), "
        f"('uploads', 78, 'y', 3, 'e', {clock.now_ns() + 20 * clock.NS}) RETURNING 1"
    )
    retries = Retries(30.0)
    with site.namespace._database.reader() as connection:
        retries.load(Session(connection, site.namespace._database.dialect))
    assert retries.is_due(JobId(WorkKind.UPLOAD, 77, "x"))
    assert retries.is_file_due(77)
    assert not retries.is_due(JobId(WorkKind.UPLOAD, 78, "y"))
    assert not retries.is_file_due(78)


def test_a_lease_that_is_never_renewed_is_taken_over(rclone_site: Site) -> None:
    """The lease is of a drain on another machine, so its death cannot be seen."""
    site = rclone_site
    site.write("f", b"data")
    site.rows(
        "INSERT INTO lease (id, owner, expires_ns) "
        f"VALUES (5, 'elsewhere pid:1 1 1', {clock.now_ns() + STEP_NS}) RETURNING 1"
    )
    (ino,) = site.rows("SELECT ino FROM inode WHERE kind = 1")[0]
    site.rows(f"INSERT INTO claim (name, lease) VALUES ('i{ino}', 5) RETURNING 1")
    with site.draining():
        until(lambda: site.objects() == {"f": b"data"}, "its claims are free")
    assert site.rows("SELECT * FROM lease WHERE id = 5") == []
