"""Dirty files with final names become objects, byte for byte, and no others do."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

import pytest

from gateway.common import clock
from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.drain.job import JobOutcome
from gateway.drain.paths import file_of
from gateway.drain.send.upload import upload
from gateway.objectstore.s3 import S3Store
from gateway.service.queue import opened
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t4.naming import files
from tests.support.waiting import until


def test_files_of_every_size_arrive_with_their_metadata(site: Site) -> None:
    contents = {
        "a/small.pt": b"weights",
        "a/empty": b"",
        "a/one-part": os.urandom(5 * MIB),
        "b/parts": os.urandom(11 * MIB + 7),
    }
    inos = {path: site.write(path, data) for path, data in contents.items()}
    site.drain()
    assert site.objects() == contents
    assert site.left() == []
    assert site.multiparts() == 0
    for path, ino in inos.items():
        assert site.metadata(path).items() >= {
            ("mode", "0640"),
            ("uid", "1000"),
            ("gid", "100"),
            ("mtime-ns", "1700000000123456789"),
            ("content-version", "1"),
            ("ino", str(ino)),
        }
    rows = site.rows("SELECT key, content_version, size, checksum FROM object")
    assert {row[0]: row[2] for row in rows} == {
        f"{PREFIX}/{path}": len(data) for path, data in contents.items()
    }
    checksums = {row[0]: row[3] for row in rows}
    assert checksums[f"{PREFIX}/a/small.pt"] == "md5:" + hashlib.md5(b"weights").hexdigest()
    data = contents["b/parts"]
    digests = [hashlib.md5(data[at : at + 5 * MIB]).digest() for at in range(0, len(data), 5 * MIB)]
    expected = f"md5-parts:{5 * MIB}:{hashlib.md5(b''.join(digests)).hexdigest()}"
    assert checksums[f"{PREFIX}/b/parts"] == expected


def test_a_drained_file_is_not_sent_again_until_it_is_written(site: Site) -> None:
    site.write("f", b"one")
    site.drain()
    site.proxy.forget()
    site.drain()
    assert site.proxy.operations("PUT") == []
    site.write("f", b"two")
    site.drain()
    assert site.objects() == {"f": b"two"}
    assert len(site.proxy.operations("PUT")) == 1
    assert site.metadata("f")["content-version"] == "2"
    assert site.left() == []


def test_names_that_are_not_text_get_keys(site: Site) -> None:
    names = [b"\xff\xfe raw", b"100%", b"a%41", "größe ✓".encode(), b"plus+&<>\"'", b"tab\there"]
    for name in names:
        site.write(os.fsdecode(name), name)
    site.write_reserved(b".spillway")
    site.drain()
    assert site.objects() == {
        "%FF%FE raw": names[0],
        "100%": names[1],
        "a%2541": names[2],
        "größe ✓": names[3],
        "plus+&<>\"'": names[4],
        "tab%09here": names[5],
        "%2Espillway": b".spillway",
    }


@pytest.mark.parametrize("path", ["model.pt.tmp", "tmp-step-5/model.pt", "x/.nfs0001/y", "a.tmp.7"])
def test_held_names_never_cause_a_request(rclone_site: Site, path: str) -> None:
    rclone_site.write(path, b"unfinished")
    rclone_site.drain()
    assert {r.operation for r in rclone_site.proxy.operations()} <= {"LIST", "LIST UPLOADS"}
    assert rclone_site.rows("SELECT count(*) FROM upload") == [(0,)]


def test_a_save_that_renames_its_directory_costs_no_copy(site: Site) -> None:
    for number in range(3):
        site.write(f"tmp-step-5/shard-{number}", b"x" * number)
    site.drain()
    site.rename("tmp-step-5", "step-5")
    site.drain()
    assert site.objects() == {f"step-5/shard-{number}": b"x" * number for number in range(3)}
    assert site.proxy.operations("COPY", "PART COPY", "DELETE") == []
    assert site.left() == []


def test_a_file_settles_before_it_is_drained(rclone_site: Site) -> None:
    site = rclone_site
    ino = site.write("f", b"new")
    connection = site.namespace._database.connect()
    settles_ns = clock.now_ns() + 60 * clock.NS
    connection.execute("UPDATE inode SET drain_after_ns = ? WHERE ino = ?", (settles_ns, ino))
    connection.close()
    site.drain()
    assert site.objects() == {}


def test_a_file_that_lost_its_bytes_is_never_uploaded(
    rclone_site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site = rclone_site
    for path, data in (("gone", b"four"), ("short", b"four"), ("long", b"four"), ("fine", b"ok")):
        site.write(path, data)
    site.namespace.files.remove(site.attr("gone").ino, 0)
    site.put_data(site.attr("short"), b"fou")
    site.put_data(site.attr("long"), b"fourx")
    site.drain()
    assert site.objects() == {"fine": b"ok"}
    assert site.rows("SELECT count(*) FROM object") == [(1,)]
    for path in ("gone", "short", "long"):
        assert f"upload of {PREFIX}/{path}: needs a person: data file" in caplog.text
    jobs = {failure["job"] for failure in site.report()["failures"]}
    assert jobs == {f"upload of {PREFIX}/{path}" for path in ("gone", "short", "long")}


def test_an_empty_file_needs_no_data_file(site: Site) -> None:
    ino = site.write("empty", b"")
    site.namespace.files.remove(ino, 0)
    site.drain()
    assert site.objects() == {"empty": b""}


def test_a_file_opened_during_its_upload_is_not_published(site: Site) -> None:
    """The content version is checked again before the object becomes visible."""
    site.write("f", b"a" * 11 * MIB)
    held = site.proxy.inject(lambda r: r.operation == "PART", Act.HOLD)
    with site.draining():
        held.wait()
        attr = site.namespace.open_write(site.attr("f").ino)
        site.put_data(attr, b"b" * 6 * MIB)
        held.release()
        until(lambda: site.rows("SELECT count(*) FROM upload") == [(0,)], "the intent is gone")
        assert site.rows("SELECT count(*) FROM object") == [(0,)]
        assert len(site.proxy.operations("ABORT")) == 1
        assert site.objects() == {}
        assert site.multiparts() == 0
        site.seal(attr.ino, b"b" * 6 * MIB)
        until(site.is_clean, "the new version is drained")
    assert site.objects() == {"f": b"b" * 6 * MIB}
    assert len(site.proxy.operations("COMPLETE")) == 1


@pytest.mark.parametrize("change", ["open", "unlink", "rename", "hold", "damage"])
def test_a_small_file_is_checked_again_after_its_bytes_were_read(
    rclone_site: Site, change: str
) -> None:
    site = rclone_site
    ino = site.write("f", b"old")
    changes: dict[str, Callable[[], object]] = {
        "open": lambda: site.namespace.open_write(ino),
        "unlink": lambda: site.unlink("f"),
        "rename": lambda: site.rename("f", "g"),
        "hold": lambda: site.rename("f", "f.tmp"),
        "damage": lambda: site.namespace.damaged(ino, "fdatasync failed: Input/output error"),
    }

    def on_progress(_key: str, _done_bytes: int, _total_bytes: int) -> None:
        changes[change]()

    database = Database(site.settings.database_url)
    context = Context(site.settings, database, S3Store(site.settings), on_progress=on_progress)
    with context.reading() as view:
        planned = file_of(view.session, ino)
        assert planned is not None
    assert upload(context, planned, f"{PREFIX}/f") == JobOutcome.OUTDATED
    database.close()
    assert site.proxy.operations() == []
    assert site.rows("SELECT count(*) FROM upload") == [(0,)]
    assert site.rows("SELECT count(*) FROM object") == [(0,)]


def test_a_file_renamed_during_its_upload_starts_again_under_its_new_name(site: Site) -> None:
    data = os.urandom(11 * MIB)
    site.write("old", data)
    held = site.proxy.inject(lambda r: r.operation == "PART", Act.HOLD)
    with site.draining():
        held.wait()
        site.rename("old", "new")
        held.release()
        until(site.is_clean, "everything is drained")
    assert site.objects() == {"new": data}
    assert site.multiparts() == 0
    assert site.proxy.operations("COPY") == []


def test_a_file_renamed_after_the_last_check_is_moved(site: Site) -> None:
    site.write("old", b"data")
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD)
    with site.draining():
        held.wait()
        site.rename("old", "new")
        held.release()
        until(site.is_clean, "everything is drained")
    assert site.objects() == {"new": b"data"}


def test_one_object_the_store_chokes_on_does_not_stop_the_others(rclone_site: Site) -> None:
    site = rclone_site
    site.proxy.inject(lambda r: r.method == "PUT" and r.key.endswith("/bad"), Act.FAIL, 1e9, 500)
    for number in range(4):
        site.write(f"good-{number}", b"x")
    site.write("bad", b"x")
    with site.draining():
        until(lambda: len(site.objects()) == 4, "the others arrive")
        until(
            lambda: any("bad" in f["job"] for f in site.report().get("failures", [])),
            "failure is shown",
        )
        assert site.report()["bucket"]["state"] == "reachable"


def test_a_file_that_is_emptied_before_its_bytes_were_sent_is_sent(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"")
    site.drain()
    site.write("f", b"data")
    site.proxy.inject(lambda r: r.operation == "PUT", Act.DROP_ANSWER, 2)
    site.drain()
    site.write("f", b"")
    site.drain()
    assert site.objects() == {"f": b""}


def test_an_upload_that_ends_before_a_request_leaves_nothing(rclone_site: Site) -> None:
    """Otherwise the next drain takes it for one that may reach the store late, and the file counts
    as durable a minute later."""
    site = rclone_site
    ino = site.write("f", b"data")
    with opened(site.settings) as context:
        with context.reading() as view:
            [file] = files(view, ino)
            key = view.paths.key_of(ino) or ""
        context.stop.set()
        assert upload(context, file, key) is JobOutcome.OUTDATED
    assert site.rows("SELECT * FROM upload") == []
    site.drain()
    assert site.objects() == {"f": b"data"}
    assert site.rows("SELECT * FROM indeterminate_write") == []
