"""After kill -9 of the drain's process in each window, the next start converges."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.waiting import until


@pytest.mark.parametrize("after", ["nothing", "unlink", "rename", "rewrite"])
def test_killed_in_the_middle_of_a_multipart_upload(rclone_site: Site, after: str) -> None:
    site = rclone_site
    data = os.urandom(17 * MIB)
    site.write("f", data)
    held = site.proxy.inject(lambda r: r.query.get("partNumber") == "2", Act.HOLD)
    with site.process() as process:
        held.wait()
        site.kill(process)
    held.discard()
    assert site.multiparts() == 1
    assert [row[0] is not None for row in site.rows("SELECT upload_id FROM upload")] == [True]
    expected = {"f": data}
    if after == "unlink":
        site.unlink("f")
        expected = {}
    elif after == "rename":
        site.rename("f", "g")
        expected = {"g": data}
    elif after == "rewrite":
        site.write("f", b"new")
        expected = {"f": b"new"}
    site.drain()
    assert site.left() == []
    assert site.objects() == expected
    assert site.multiparts() == 0


@pytest.mark.parametrize("after", ["nothing", "unlink", "rename"])
@pytest.mark.parametrize("size", [9, 11 * MIB])
def test_killed_between_the_object_and_its_row(rclone_site: Site, size: int, after: str) -> None:
    site = rclone_site
    data = os.urandom(size)
    site.write("f", data)
    held = site.proxy.inject(lambda r: r.operation in ("PUT", "COMPLETE"), Act.HOLD_ANSWER)
    with site.process() as process:
        held.wait()
        site.kill(process)
    held.discard()
    assert site.objects() == {"f": data}
    assert site.rows("SELECT count(*) FROM object") == [(0,)]
    assert site.rows("SELECT key FROM upload") == [(f"{PREFIX}/f",)]
    expected = {"f": data}
    if after == "unlink":
        site.unlink("f")
        expected = {}
    elif after == "rename":
        site.rename("f", "g")
        expected = {"g": data}
    site.drain()
    assert site.left() == []
    assert site.objects() == expected
    assert site.multiparts() == 0


@pytest.mark.parametrize("after", ["nothing", "unlink"])
def test_killed_before_the_id_of_a_multipart_upload_is_recorded(site: Site, after: str) -> None:
    data = os.urandom(11 * MIB)
    site.write("f", data)
    held = site.proxy.inject(lambda r: r.operation == "CREATE", Act.HOLD_ANSWER)
    with site.process() as process:
        held.wait()
        site.kill(process)
    held.discard()
    assert site.multiparts() == 1
    assert site.rows("SELECT upload_id FROM upload") == [(None,)]
    if after == "unlink":
        site.unlink("f")
    site.drain()
    assert site.left() == []
    assert site.objects() == ({} if after == "unlink" else {"f": data})
    assert site.multiparts() == 0


def test_killed_between_copy_and_row_of_a_move(site: Site) -> None:
    site.write("old", b"data")
    site.drain()
    site.rename("old", "new")
    held = site.proxy.inject(lambda r: r.operation == "COPY", Act.HOLD_ANSWER)
    with site.process() as process:
        held.wait()
        site.kill(process)
    held.discard()
    assert site.objects() == {"old": b"data", "new": b"data"}
    site.rename("new", "newer")
    site.drain()
    assert site.left() == []
    assert site.objects() == {"newer": b"data"}


@pytest.mark.parametrize("size", [9, 11 * MIB])
def test_a_file_whose_bytes_are_lost_keeps_what_an_interrupted_upload_left(
    rclone_site: Site, size: int
) -> None:
    """The object may be the last copy, so a rename of the file must not delete it."""
    site = rclone_site
    data = os.urandom(size)
    ino = site.write("f", data)
    held = site.proxy.inject(lambda r: r.operation in ("PUT", "COMPLETE"), Act.HOLD_ANSWER)
    with site.process() as process:
        held.wait()
        site.kill(process)
    held.discard()
    site.namespace.files.remove(ino, 0)
    site.rename("f", "g")
    site.drain()
    assert site.objects() == {"f": data}


@pytest.mark.parametrize("size", [9, 11 * MIB])
def test_sigterm_stops_quickly_and_safely(rclone_site: Site, size: int) -> None:
    site = rclone_site
    data = os.urandom(size)
    site.write("f", data)
    held = site.proxy.inject(lambda r: r.operation in ("PUT", "PART"), Act.HOLD)
    with site.process() as process:
        held.wait()
        process.send_signal(signal.SIGTERM)
        held.release()
        assert process.wait(30) == 0
    assert site.report()["state"] == "stopped"
    assert site.report()["uploads"] == []
    with site.process():
        until(lambda: not site.left(), "the next run drains the rest")
    assert site.objects() == {"f": data}
    assert site.multiparts() == 0


def test_sigterm_does_not_wait_for_a_request_that_hangs(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"data")
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD)
    with site.process() as process:
        held.wait()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    held.discard()
    site.drain()
    assert site.objects() == {"f": b"data"}
