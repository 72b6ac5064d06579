"""`spillway status`: its counts, its view of processes and bucket, and its exit status."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from admin_api.metrics import of_status
from gateway.common import clock
from gateway.common.errors import UserError
from gateway.common.models import from_json
from gateway.common.process import start_ticks
from gateway.common.types import ROOT_CRED, Attr, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.compiled import Statement
from gateway.db.models import ROOT_INO
from gateway.db.schema import opened, reading
from gateway.recovery import drill_record
from gateway.recovery.drill_record import DrillReport
from gateway.service import alarms
from gateway.service.alarms import alarms_of
from gateway.service.status import Status
from tests.support.clisite import Site, spillway
from tests.support.disks import small_disk
from tests.support.namespace import Namespace
from tests.support.s3server import ACCESS_KEY, RcloneServer
from tests.support.t5.status import lines_of, status
from tests.support.volumes import status_of

MODE = SetAttr(mode=0o644)
CHILDREN = ("ganesha", "drain", "cache", "checkpoints", "recovery")
HOUR_NS = 3600 * clock.NS
"""A slow machine adds seconds to an age, which hours shown with one digit hide."""


def line(lines: list[tuple[str, str]], label: str) -> str:
    """Return the text beside a label."""
    (found,) = [text for name, text in lines if name == label]
    return found


def pretend_running(settings: Settings, drain_report: dict[str, Any] | None = None) -> None:
    """Write the files in run/ as if this process were `up` and its children."""
    me = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    child = {**me, "phase": "ready", "restarts": 2, "started_ns": clock.now_ns() - 5 * HOUR_NS}
    up = {**me, "state": "running", "children": dict.fromkeys(CHILDREN, child)}
    (settings.run_dir / "up.json").write_text(json.dumps(up))
    report_names(settings, 0)
    if drain_report is not None:
        text = json.dumps({"pid": os.getpid(), **drain_report})
        (settings.run_dir / "drain.json").write_text(text)


def report_names(settings: Settings, age_seconds: float, **facts: Any) -> None:
    """Write the report of the copy of the names."""
    copied_ns = clock.now_ns() - int(age_seconds * clock.NS)
    names = {"copied_ns": copied_ns, "base_ns": clock.now_ns() - HOUR_NS, **facts}
    report = {"pid": os.getpid(), "names": names}
    (settings.run_dir / "recovery.json").write_text(json.dumps(report))


def write(namespace: Namespace, attr: Attr, data: bytes) -> None:
    namespace.files.path(attr.ino, attr.epoch).write_bytes(data)


def seal(namespace: Namespace, attr: Attr, size_bytes: int) -> None:
    namespace.seal(attr.ino, Sealed(size_bytes, size_bytes, clock.now_ns(), 1))


def test_what_is_dirty_is_told_as_json_on_each_engine(settings: Settings) -> None:
    with closing(Namespace(settings)) as namespace:
        seal(namespace, namespace.create(ROOT_CRED, ROOT_INO, b"a", MODE), 3)
    facts = status_of(settings)
    assert json.loads(json.dumps(facts))["dirty"]["bytes"] == 3


def test_an_error_of_the_database_is_told_on_each_engine(settings: Settings) -> None:
    wrong = Statement(sqlalchemy.text("SELECT * FROM a_table_that_is_lost"))
    with (
        opened(settings.database_url) as database,
        pytest.raises(UserError, match=r"cannot use the database.*: check its server"),
        reading(database) as session,
    ):
        session.all(wrong)


def test_a_gateway_that_is_down(site: Site, bucket: RcloneServer) -> None:
    code, facts, lines = status(site)
    assert code == 1
    assert facts["healthy"] is False
    alive = [entry["alive"] for entry in facts["processes"].values()]
    assert alive == [False] * (1 + len(CHILDREN))
    assert facts["bucket"]["reachable"] is True
    assert facts["drain"] is None
    assert facts["dirty"] == {
        "files": 0,
        "bytes": 0,
        "open_for_writing_files": 0,
        "open_for_writing_bytes": 0,
        "oldest": None,
    }
    assert facts["queued"] == {"deletions": 0, "moves": 0}
    disk = facts["disk"]
    assert 0 < disk["free_bytes"] <= disk["total_bytes"]
    assert line(lines, "gateway") == "NEEDS ATTENTION"
    assert line(lines, "why").startswith("The gateway does not run. Clients wait. Start it: ")
    assert line(lines, "ganesha") == "NOT RUNNING"
    assert line(lines, "draining") == "the drain has not reported yet"
    assert line(lines, "not drained") == "0 files, 0 B"
    assert line(lines, "bucket") == f"b at {bucket.url}: reachable"


def test_a_healthy_gateway(site: Site, bucket: RcloneServer) -> None:
    report = {
        "bucket": {"name": "b", "state": "reachable", "error": None, "since_ns": 1},
        "uploads": [{"key": "a", "done_bytes": 1 << 20, "total_bytes": 3 << 30}],
        "failures": [{"job": "upload x\x1b[2J", "tries": 7, "error": "no\nway"}],
    }
    pretend_running(site.settings, report)
    code, facts, lines = status(site)
    assert code == 0
    assert facts["healthy"] is True
    assert facts["processes"]["ganesha"]["restarts"] == 2
    assert facts["drain"]["uploads"] == report["uploads"]
    assert line(lines, "gateway") == "healthy"
    assert line(lines, "ganesha") == f"ready, pid {os.getpid()}, for 5.0 h, restarted 2 times"
    assert "why" not in dict(lines)
    assert line(lines, "draining") == "1 upload, 3.0 GiB, 1.0 MiB sent"
    assert line(lines, "failing") == r"upload x\x1b[2J, 7 tries: no\nway"


def test_a_name_that_is_held_for_long(site: Site, bucket: RcloneServer) -> None:
    with closing(Namespace(site.settings)) as namespace:
        attr = namespace.create(ROOT_CRED, ROOT_INO, b"a.tmp", MODE)
    since_ns = clock.now_ns() - 2 * HOUR_NS
    first = [{"ino": attr.ino, "sealed_ns": since_ns, "bytes": 3}]
    held = {"files": 1, "bytes": 3, "first": first}
    pretend_running(site.settings, {"bucket": {"state": "reachable"}, "held": held})
    code, facts, lines = status(site)
    assert (code, facts["healthy"]) == (1, False)
    assert line(lines, "held") == (
        "1 file, 3 B HELD by drain.incomplete_patterns for over an hour, "
        "as /checkpoints/a.tmp (2.0 h)"
    )
    pretend_running(site.settings, {"bucket": {"state": "reachable"}})
    assert status(site)[0] == 0


def test_names_that_are_not_in_the_bucket(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings, {"bucket": {"state": "reachable"}})
    code, facts, lines = status(site)
    assert (code, facts["names"]["is_late"]) == (0, False)
    assert re.fullmatch(r"in the bucket as of .* ago; base of 1\.0 h ago", line(lines, "names"))
    report_names(site.settings, 7200, waiting=1234, error="no\nroute")
    code, facts, lines = status(site)
    assert (code, facts["healthy"], facts["names"]["waiting"]) == (1, False, 1234)
    assert line(lines, "names") == (
        "in the bucket as of 2.0 h ago, 1,234 changes wait; base of 1.0 h ago; "
        r"NOT COPIED: no\nroute (LATE)"
    )
    assert line(lines, "why").startswith("The bucket has the names as they were 2.0 h ago: no")
    assert alarms.of(from_json(Status, facts))[alarms.NAMES_LATE] == 1
    # It makes its first base for hours, and has none that a restore could use.
    report_names(site.settings, 0, base_ns=0, copied_ns=0, base_inodes=5000)
    code, _facts, lines = status(site)
    assert code == 1
    assert line(lines, "names") == (
        "none in the bucket yet; a base is made: 5,000 inodes so far (LATE)"
    )
    assert line(lines, "why").startswith("The bucket has no names. What was made since")


def test_a_clock_that_was_set_back_makes_no_names_young(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings, {"bucket": {"state": "reachable"}})
    report_names(site.settings, -7200)
    code, facts, lines = status(site)
    assert (code, facts["names"]["is_late"]) == (1, True)
    assert line(lines, "names").endswith("(LATE)")
    report_names(site.settings, -1)
    assert status(site)[1]["names"]["is_late"] is False


def test_a_drill_that_failed_or_is_late(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings, {"bucket": {"state": "reachable"}})
    now_ns = clock.now_ns()
    found = DrillReport(
        began_ns=now_ns - 60 * clock.NS,
        ended_ns=now_ns - 30 * clock.NS,
        is_ok=True,
        as_of_ns=now_ns - 60 * clock.NS,
        files=1234,
        changed=0,
        differing=0,
        first=[],
        objects=100,
        problems=[],
        compare_seconds=1.0,
        restore_seconds=20.0,
    )
    drill_record.ended(site.settings, found)
    code, facts, lines = status(site)
    assert (code, facts["drill"]["is_late"], facts["drill"]["last"]["files"]) == (0, False, 1234)
    assert line(lines, "drill").startswith("everything came back, 1,234 files compared; 3")
    metrics = {metric.name: metric.samples for metric in of_status(from_json(Status, facts))}
    assert metrics["spillway_drill_ok"][0].value == 1
    assert metrics["spillway_drill_age_seconds"][0].value >= 30
    drill_record.ended(site.settings, replace(found, is_ok=False, problems=["a segment is bad"]))
    code, facts, lines = status(site)
    assert (code, facts["healthy"]) == (1, False)
    assert line(lines, "drill").startswith("NOT EVERYTHING CAME BACK: a segment is bad")
    assert "does not bring everything back: a segment is bad" in line(lines, "why")
    assert alarms.of(from_json(Status, facts))[alarms.DRILL_FAILED] == 1
    # It was long ago, or the clock was set back since.
    for age_days in (15, -1):
        ended_ns = now_ns - age_days * 86_400 * clock.NS
        drill_record.ended(site.settings, replace(found, ended_ns=ended_ns))
        code, facts, lines = status(site)
        assert (code, facts["drill"]["is_late"]) == (0, True)
        assert line(lines, "drill").endswith("(LATE)")
        [alarm] = alarms_of(from_json(Status, facts))
        assert "No drill" in alarm.text and not alarm.is_bad
    site.edit("recovery", "drill_days", "0")
    assert status(site)[1]["drill"]["is_late"] is False


def test_names_that_a_person_keeps_out_of_the_bucket(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings, {"bucket": {"state": "reachable"}})
    report_names(site.settings, 7200)
    site.edit("recovery", "names_in_bucket", "false")
    code, facts, lines = status(site)
    assert (code, facts["names"]["is_late"]) == (0, False)
    assert line(lines, "names") == "not copied into the bucket (recovery.names_in_bucket)"


@pytest.mark.parametrize(
    ("level", "code", "text"),
    [
        ("room", 0, "2.0 GiB until nothing more is accepted; dirty limit 4.0 GiB"),
        ("slow", 0, "SLOWED for 2.0 h: 2.0 GiB until nothing more is accepted; dirty limit"),
        ("full", 1, "FULL for 2.0 h: 2.0 GiB until nothing more is accepted; dirty limit"),
    ],
)
def test_room_for_writers(
    site: Site, bucket: RcloneServer, level: str, code: int, text: str
) -> None:
    pretend_running(site.settings)
    report = {
        "level": level,
        "since_ns": clock.now_ns() - 2 * HOUR_NS,
        "headroom_bytes": 2 << 30,
        "dirty_limit_bytes": 4 << 30,
    }
    (site.settings.run_dir / "space.json").write_text(json.dumps(report))
    found, facts, lines = status(site)
    assert found == code
    assert facts["space"]["level"] == level
    assert line(lines, "space").startswith(text)
    # The report of a server that is down does not count.
    (site.settings.run_dir / "up.json").unlink()
    _code, facts, _lines = status(site)
    assert facts["space"] is None


def test_a_remedy_names_no_limit_that_is_not_set(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings)
    report = {"level": "full", "since_ns": clock.now_ns(), "headroom_bytes": 0}
    for limit_bytes, remedy in ((0, "delete files, or add disk"), (1, "raise space.dirty_limit_b")):
        text = json.dumps({**report, "dirty_limit_bytes": limit_bytes})
        (site.settings.run_dir / "space.json").write_text(text)
        _code, facts, lines = status(site)
        assert remedy in line(lines, "space")
        assert any(remedy in alarm.remedy.lower() for alarm in alarms_of(from_json(Status, facts)))


def test_a_look_that_is_overdue_waits_for_the_bucket(site: Site, bucket: RcloneServer) -> None:
    _code, facts, _lines = status(site)
    facts["unsettled"] = {"objects": 2, "last_seconds": 0.0}
    told = line(lines_of(facts), "unsettled")
    assert (
        told == "2 objects: a request got no answer; looked at again as soon as the bucket answers"
    )


def test_bytes_that_no_file_has_are_told(site: Site, bucket: RcloneServer) -> None:
    _code, facts, _lines = status(site)
    assert facts["disk"]["other_bytes"] == facts["disk"]["used_bytes"]
    with closing(Namespace(site.settings)) as namespace:
        written = namespace.create(ROOT_CRED, ROOT_INO, b"written", MODE)
        data = namespace.files.path(written.ino, written.epoch)
        data.write_bytes(bytes(1 << 20))
        _code, facts, _lines = status(site)
    used_bytes = facts["disk"]["used_bytes"]
    assert facts["disk"]["other_bytes"] == used_bytes - (1 << 20), "it is being written"
    facts["disk"] |= {"total_bytes": 100 << 30, "used_bytes": 60 << 30, "other_bytes": 20 << 30}
    told = line(lines_of(facts), "others")
    assert told.startswith("20.0 GiB of the disk are not bytes of files") and "du -xhd 1" in told
    facts["disk"]["other_bytes"] = 1 << 30
    assert "others" not in dict(lines_of(facts))


def test_the_disk_is_that_of_the_data_files(
    site: Site, bucket: RcloneServer, tmp_path: Path
) -> None:
    with small_disk(site.settings.files_dir, tmp_path / "image", 16):
        _code, facts, _lines = status(site)
    assert facts["disk"]["path"] == str(site.settings.files_dir)
    assert facts["disk"]["total_bytes"] < 16 << 20
    _code, facts, _lines = status(site)
    assert facts["disk"]["path"] == str(site.settings.data_dir)


def test_the_queue_tells_of_an_outage(site: Site, bucket: RcloneServer) -> None:
    with closing(Namespace(site.settings)) as namespace:
        attr = namespace.create(ROOT_CRED, ROOT_INO, b"f", SetAttr())
        write(namespace, attr, b"12345")
        seal(namespace, attr, 5)
    away = {"state": "unreachable", "error": "Connection refused", "since_ns": clock.now_ns()}
    pretend_running(site.settings, {"bucket": away})
    told = spillway("queue", "--config", site.config)
    assert "the bucket is unreachable: Connection refused: all of these wait" in told.stderr
    pretend_running(site.settings, {"bucket": {**away, "state": "reachable"}})
    assert spillway("queue", "--config", site.config).stderr == ""


def test_room_that_is_not_known_yet(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings)
    report = {"level": "unknown", "since_ns": clock.now_ns(), "headroom_bytes": None}
    text = json.dumps({**report, "dirty_limit_bytes": 4 << 30})
    (site.settings.run_dir / "space.json").write_text(text)
    code, facts, lines = status(site)
    assert code == 0
    assert facts["space"]["headroom_bytes"] is None
    assert line(lines, "space") == "not known yet; dirty limit 4.0 GiB"


def test_the_text_is_aligned(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings)
    result = spillway("status", "--config", site.config)
    assert result.returncode == 0
    assert result.stderr == ""
    shown = result.stdout.splitlines()
    assert shown[0] == "gateway     healthy"
    assert all(text[11] == " " and text[12] != " " for text in shown)


def test_a_bucket_that_refuses_the_drain(site: Site, bucket: RcloneServer) -> None:
    since_ns = clock.now_ns() - 2 * HOUR_NS
    refused = {"state": "refused", "error": "denies put_object", "since_ns": since_ns}
    pretend_running(site.settings, {"bucket": refused, "uploads": [], "failures": []})
    code, facts, lines = status(site)
    assert code == 1
    assert facts["bucket"]["reachable"] is True
    assert "bucket refused for 2.0 h: denies put_object" in line(lines, "draining")
    why = line(lines, "why")
    assert why.startswith("The bucket is refused for 2.0 h: denies put_object. Correct the credent")


@pytest.mark.parametrize("dead", CHILDREN)
def test_a_dead_child(site: Site, bucket: RcloneServer, dead: str) -> None:
    pretend_running(site.settings)
    path = site.settings.run_dir / "up.json"
    up = json.loads(path.read_text())
    up["children"][dead] |= {"pid": None, "phase": "waiting", "last_exit": "exit code 3"}
    path.write_text(json.dumps(up))
    code, facts, lines = status(site)
    assert code == 1
    assert facts["processes"][dead]["phase"] == "waiting"
    assert "NOT RUNNING" in line(lines, dead)
    assert "last end: exit code 3" in line(lines, dead)


def test_a_server_that_does_not_serve_yet(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings)
    path = site.settings.run_dir / "up.json"
    up = json.loads(path.read_text())
    up["children"]["ganesha"]["phase"] = "starting"
    path.write_text(json.dumps(up))
    code, facts, lines = status(site)
    assert code == 1
    assert facts["processes"]["ganesha"]["alive"] is True
    assert line(lines, "ganesha").startswith("starting, pid ")
    [alarm] = alarms_of(from_json(Status, facts))
    assert alarm.text == "The NFS server runs and does not serve"
    assert alarm.remedy.endswith(f"its log says why: {site.settings.log_dir / 'ganesha.log'}")
    path.write_text(json.dumps({**up, "services": True}))
    [alarm] = alarms_of(from_json(Status, status(site)[1]))
    assert alarm.remedy.endswith("its log says why: journalctl -u spillway-nfs")


def test_a_pid_that_is_somebody_else_now(site: Site, bucket: RcloneServer) -> None:
    pretend_running(site.settings)
    path = site.settings.run_dir / "up.json"
    path.write_text(path.read_text().replace(str(start_ticks(os.getpid())), "1"))
    code, facts, _lines = status(site)
    assert code == 1
    up = facts["processes"]["up"]
    assert (up["alive"], up["pid"], up["phase"]) == (False, None, "stopped")


def test_state_files_that_are_broken(site: Site, bucket: RcloneServer) -> None:
    for text in ("", "{", "[]", '{"pid": "x"}', '{"children": 3}'):
        for name in ("up.json", "drain.json"):
            (site.settings.run_dir / name).write_text(text)
        code, facts, _lines = status(site)
        assert code == 1
        assert facts["processes"]["up"]["alive"] is False


def test_what_is_dirty(site: Site, bucket: RcloneServer) -> None:
    namespace = Namespace(site.settings)
    directory = namespace.mkdir(ROOT_CRED, ROOT_INO, b"step 1\n", MODE).ino
    first = namespace.create(ROOT_CRED, directory, b"w\xff.pt", MODE)
    seal(namespace, first, 5 << 20)
    second = namespace.create(ROOT_CRED, directory, b"b.pt", MODE)
    seal(namespace, second, 1 << 20)
    writing = namespace.create(ROOT_CRED, ROOT_INO, b"open", MODE)
    write(namespace, writing, b"x" * 3000)
    namespace.create(ROOT_CRED, ROOT_INO, b"open, nothing written", MODE)
    orphan = namespace.create(ROOT_CRED, ROOT_INO, b"orphan", MODE)
    write(namespace, orphan, b"never counted")
    namespace.remove(ROOT_CRED, ROOT_INO, b"orphan")
    namespace.rename(ROOT_CRED, ROOT_INO, b"step 1\n", ROOT_INO, b"step 2\n")
    namespace.close()
    _code, facts, lines = status(site)
    dirty = facts["dirty"]
    oldest = dirty.pop("oldest")
    assert dirty == {
        "files": 4,
        "bytes": (6 << 20) + 3000,
        "open_for_writing_files": 2,
        "open_for_writing_bytes": 3000,
    }
    assert oldest["path"] == "/checkpoints/step 2%0A/w%FF.pt"
    assert oldest["size_bytes"] == 5 << 20
    assert 0 <= oldest["age_seconds"] < 60
    assert facts["queued"] == {"deletions": 0, "moves": 1}
    assert line(lines, "not drained") == (
        "4 files, 6.0 MiB; of these open for writing: 2 files, 2.9 KiB"
    )
    assert line(lines, "oldest").startswith(r"/checkpoints/step 2\n/w\xff.pt, 5.0 MiB, waiting for")
    sealed = 6 << 20
    for rate, told in ((sealed // 60, "; all sent in 1.0 min at 102.4 KiB/s"), (0, ""), (None, "")):
        pretend_running(site.settings, {"bytes_per_second": rate})
        text = line(status(site)[2], "not drained")
        assert text == f"4 files, 6.0 MiB; of these open for writing: 2 files, 2.9 KiB{told}"


def test_the_oldest_of_files_that_are_all_open(site: Site, bucket: RcloneServer) -> None:
    namespace = Namespace(site.settings)
    attr = namespace.create(ROOT_CRED, ROOT_INO, b"log", MODE)
    write(namespace, attr, b"12345")
    hour_ago_ns = clock.now_ns() - 3600 * clock.NS
    os.utime(namespace.files.path(attr.ino, attr.epoch), ns=(0, hour_ago_ns))
    namespace.close()
    _code, facts, lines = status(site)
    oldest = facts["dirty"]["oldest"]
    assert (oldest["path"], oldest["size_bytes"]) == ("/checkpoints/log", 5)
    assert oldest["age_seconds"] == pytest.approx(3600, abs=60)
    assert line(lines, "oldest") == "/checkpoints/log, 5 B, waiting for 1.0 h"


def test_wrong_credentials(site: Site, bucket: RcloneServer) -> None:
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": "a-wrong-secret"}
    assert spillway("init", "--config", site.config, env=keys).returncode == 0
    pretend_running(site.settings)
    code, facts, lines = status(site)
    assert code == 1
    assert facts["bucket"]["reachable"] is False
    assert line(lines, "why").startswith("The bucket cannot be used: ")
    assert str(site.settings.credentials_file) in facts["bucket"]["error"]
    assert "NOT USABLE: " in line(lines, "bucket")
    assert "a-wrong-secret" not in f"{facts}{lines}"


def test_missing_bucket(site: Site, bucket: RcloneServer) -> None:
    site.edit("bucket", "name", '"other"')
    code, facts, _lines = status(site)
    assert code == 1
    assert "bucket.name" in facts["bucket"]["error"]


def test_unreachable_bucket(site: Site) -> None:
    site.settings.credentials_file.write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    code, facts, lines = status(site)
    assert code == 1
    assert "http://127.0.0.1:9" in facts["bucket"]["error"]
    assert "NOT USABLE: cannot reach" in line(lines, "bucket")


def test_a_bucket_that_says_nothing_is_not_waited_for(site: Site, bucket: RcloneServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        site.edit("bucket", "endpoint_url", f'"http://127.0.0.1:{port}"')
        started = time.monotonic()
        code, facts, _lines = status(site)
        # The command runs twice, for JSON and for text, and each run takes some seconds.
        assert time.monotonic() - started < 30
    assert code == 1
    assert "ReadTimeoutError" in facts["bucket"]["error"]
