"""The output and the requests of `spillway queue` and `spillway drain --wait`."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import time
from typing import Any

import pytest

from gateway.common import clock, logs
from gateway.common.errors import START
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.drain import queue as orders
from gateway.service import queue as control
from tests.support.clisite import DEADLINE_SECONDS, PROGRAM, assert_refused, environ, spillway
from tests.support.drain import Drain
from tests.support.drainsite import MIB, Site
from tests.support.s3proxy import Act
from tests.support.s3server import RcloneServer
from tests.support.sites import MakeSite
from tests.support.waiting import until


@pytest.fixture
def drained(rclone: RcloneServer, make_site: MakeSite) -> Site:
    """Make a gateway with a bucket, without a running drain."""
    return make_site(rclone)


def run(site: Site, *args: str) -> subprocess.CompletedProcess[str]:
    return spillway(*args, "--config", site.settings.source)


def queue(site: Site, *args: str) -> dict[str, Any]:
    result = run(site, "queue", "--json", *args)
    assert (result.returncode, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def states(site: Site, *args: str) -> dict[str, str]:
    return {
        f["path"].removeprefix("/checkpoints/"): f["state"] for f in queue(site, *args)["files"]
    }


def test_the_queue_says_what_each_file_waits_for(drained: Site) -> None:
    site = drained
    assert run(site, "queue").stdout == "nothing waits for the bucket\n"
    site.write("run/a", b"12345")
    site.write("run/b.tmp", b"")
    parent, name = site.split("run/open")
    site.namespace.create(ROOT_CRED, parent, name, SetAttr())
    site.write("lost", b"bytes")
    site.namespace.files.remove(site.attr("lost").ino, 0)
    site.write("gone", b"bytes")
    site.unlink("gone")
    assert states(site) == {"run/a": "waiting", "run/b.tmp": "held", "run/open": "open",
                            "lost": "waiting"}  # fmt: skip
    assert states(site, "list", "run") == {"run/a": "waiting", "run/b.tmp": "held",
                                           "run/open": "open"}  # fmt: skip
    assert states(site, "list", "/checkpoints/run/a") == {"run/a": "waiting"}
    site.drain()
    failing = {f["path"]: f for f in queue(site)["files"]}["/checkpoints/lost"]
    assert failing["state"] == "failing"
    assert failing["tries"] >= 1
    assert "is missing, 5 bytes expected" in failing["error"]
    assert "/checkpoints/lost: " in run(site, "queue").stdout
    assert "... and more: --limit" in run(site, "queue", "--limit", "1").stdout


def test_hold_release_and_bump(drained: Site) -> None:
    site = drained
    for path in ("a/1", "a/2", "b/1", "b/2"):
        site.write(path, path.encode())
    assert run(site, "queue", "hold", "a", "b/1").returncode == 0
    assert states(site) == {"a/1": "held", "a/2": "held", "b/1": "held", "b/2": "waiting"}
    site.drain()
    assert set(site.objects()) == {"b/2"}
    assert run(site, "queue", "release", "/checkpoints/a").stdout == "/checkpoints/a: released\n"
    site.drain()
    assert set(site.objects()) == {"b/2", "a/1", "a/2"}
    run(site, "queue", "bump", "b/1")
    assert queue(site)["orders"] == [{"path": "/checkpoints/b/1", "order": "bump"}]
    site.drain()
    assert len(site.objects()) == 4
    site.unlink("b/1")
    until(lambda: queue(site)["orders"] == [], "the order for a deleted file goes with it")


def test_wrong_paths_are_named(drained: Site) -> None:
    site = drained
    site.write("f", b"")
    site.namespace.symlink(ROOT_CRED, 2, b"link", b"f", SetAttr())
    assert_refused(run(site, "queue", "hold"), "PATH")
    assert_refused(run(site, "queue", "hold", "nothing"), "no file or directory nothing")
    assert_refused(run(site, "queue", "hold", "/elsewhere/f"), "below /checkpoints")
    assert_refused(run(site, "queue", "release", "f"), "there is no order for f")
    assert_refused(run(site, "queue", "hold", "link"), "never drained")
    assert_refused(run(site, "drain"), "spillway drain --wait")
    assert_refused(run(site, "drain", "--wait", "nothing"), "no file or directory")


def test_bumped_files_go_first(drained: Site) -> None:
    site = drained
    # Two workers send two batches at a time.
    site.configure(workers=1)
    for number in range(40):
        site.write(f"new-{number % 4}/{number}", b"x")
        if number == 0:
            site.write("old/urgent", b"x")
    run(site, "queue", "bump", "old")
    site.drain()
    first = site.proxy.operations("PUT")[0]
    assert first.key.endswith("/old/urgent")


def test_wait_until_the_bucket_has_everything(drained: Site) -> None:
    site = drained
    for number in range(3):
        site.write(f"run/{number}", os.urandom(6 * MIB))
    site.write("run/x.tmp", b"held")
    site.write("later/f", b"12345")
    run(site, "queue", "hold", "later")
    with site.process():
        result = run(site, "drain", "--wait")
        assert result.returncode == 0
        [last] = result.stdout.splitlines()
        assert last.startswith("drained: ")
        assert last.endswith("; not waited for: 2 held, 0 open for writing")
        run(site, "queue", "release", "later")
        result = run(site, "drain", "--wait", "--json", "later")
        facts = json.loads(result.stdout)
        assert (facts["drained"], facts["error"], facts["waiting_files"]) == (True, None, 0)
    assert len(site.objects()) == 4


def test_waiting_in_vain_ends_with_a_reason(drained: Site) -> None:
    site = drained
    site.write("f", b"data")
    result = run(site, "drain", "--wait", "--timeout", "0.5")
    assert result.returncode == 1
    assert "not drained within 0.5 s (1 files, 4 B left)" in result.stderr
    site.delete_bucket()
    with site.process():
        result = run(site, "drain", "--wait", "--json")
        assert result.returncode == 1
        assert "create it or correct bucket.name" in json.loads(result.stdout)["error"]
    site.client.create_bucket(Bucket=site.bucket)
    result = run(site, "drain", "--wait")
    assert result.returncode == 1
    assert f"the drain is not running: start it: {START}" in result.stderr


def test_a_terminal_gets_a_bar(drained: Site) -> None:
    site = drained
    site.write("f", os.urandom(3 * MIB))
    ours, theirs = pty.openpty()
    command = [str(PROGRAM), "drain", "--wait", "--config", str(site.settings.source)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environ()) as process:
        os.close(theirs)
        shown = b""
        while b"1 files left" not in shown:
            shown += os.read(ours, 4096)
        assert b"0 %  0 B of 3.0 MiB" in shown
        drain = Drain(site.settings)
        drain.cycle()
        assert process.wait(DEADLINE_SECONDS) == 0
        drain.close()
    while b"drained: 1 files, 3.0 MiB" not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)


def test_a_person_has_a_failed_upload_tried_again_at_once(drained: Site) -> None:
    site = drained
    site.configure(retry_max_seconds=10_000)
    site.write("a", b"data")
    fault = site.proxy.inject(
        lambda r: r.operation == "PUT" and r.key.endswith("/a"), Act.FAIL, 1e9, 400, "Unusual"
    )
    with site.draining():
        until(lambda: site.rows("SELECT * FROM retry WHERE tries >= 1"), "the failure")
        later_ns = clock.now_ns() + 5_000 * clock.NS
    fault.release()
    site.rows(f"UPDATE retry SET next_ns = {later_ns} RETURNING 1")
    with site.draining():
        time.sleep(1)  # twenty polls: the pause is heeded
        assert site.objects() == {}
        assert "is tried again" in run(site, "queue", "retry", "a").stdout
        until(lambda: site.objects() == {"a": b"data"}, "the file is drained")
    assert "nothing of it has failed" in run(site, "queue", "retry", "a").stdout


class Lines(logging.Handler):
    """What a logger says, each line with the request that it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str | None, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((logs.request_id.get(), record.getMessage()))

    def of(self, name: str) -> list[str | None]:
        return [request for request, line in self.said if name in line]


def test_lines_about_what_a_person_ordered_have_its_request(
    drained: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, lines = drained, Lines()
    # The drain would try the lost file again by itself, at the moment of the order.
    monkeypatch.setattr("gateway.common.retry.FIRST_PAUSE_SECONDS", 3600.0)
    site.configure(retry_max_seconds=10_000)
    for path in ("a/bumped", "b/other", "lost"):
        site.write(path, b"data")
    lost = site.attr("lost").ino
    data = site.namespace.files.path(lost, 0)
    data.rename(data.with_suffix(".away"))
    logger = logging.getLogger("drain")
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        with control.opened(site.settings) as context, logs.of_request("first"):
            orders.say(context, control.find(context, "a"), hold=False)
        with site.draining():
            paths = ("a/bumped", "b/other", "lost")
            until(lambda: all(map(lines.of, paths)), "a line about each file")
            assert lines.of("a/bumped") == ["first"]
            assert lines.of("b/other") == [None]
            assert set(lines.of("lost")) == {None}
            data.with_suffix(".away").rename(data)
            until(lambda: site.rows("SELECT * FROM retry"), "the row of the failure")
            failures = len(lines.of("lost"))
            with control.opened(site.settings) as context, logs.of_request("again"):
                assert orders.retry(context, lost)
            until(lambda: len(site.objects()) == 3, "the lost file is drained")
        assert set(lines.of("lost")[failures:]) == {"again"}
    finally:
        logger.removeHandler(lines)
        logger.setLevel(logging.NOTSET)
