"""The audit log goes elsewhere: each entry at least once, in order, and no call waits for it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from admin_api import audit, audit_export, store
from admin_api.audit import CallOrigin, CallOutcome
from admin_api.audit_export import (
    PATIENCE_SECONDS,
    AuditExport,
    FileReceiver,
    SyslogReceiver,
    keep_exporting,
    receiver_of,
)
from gateway.common import clock
from gateway.config.settings import Settings
from gateway.db.compiled import Statement
from gateway.db.engine import Database
from tests.support.t8.evicting import tmpfs
from tests.support.volumes import make_settings

ROWS: Any = store.AuditTable.__table__


class Log:
    """An audit log that calls are added to, and the file that it is exported to."""

    def __init__(self, directory: Path, settings: Settings, database: Database) -> None:
        self.file = directory / "audit.jsonl"
        admin = replace(settings.admin, audit_export=str(self.file))
        self.settings = replace(settings, admin=admin)
        self.store = database
        self.export = self.started()

    def started(self, receiver: Any = None) -> AuditExport:
        """Return the export as a process that starts has it."""
        return AuditExport(self.settings, self.store, receiver or receiver_of(self.settings))

    def add(self, *paths: str) -> None:
        with self.store.writing() as session:
            for path in paths:
                audit.add(session, _origin(path), CallOutcome(200, after='{"a": 1}'))

    def begin(self, path: str) -> int:
        with self.store.writing() as session:
            return audit.begin_row(session, _origin(path))

    def end(self, entry: int) -> None:
        with self.store.writing() as session:
            audit.complete(session, entry, CallOutcome(200))

    def lines(self, path: Path | None = None) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (path or self.file).read_text().splitlines()]

    def paths(self, path: Path | None = None) -> list[str]:
        return [line["path"] for line in self.lines(path)]


def _origin(path: str) -> CallOrigin:
    return CallOrigin("ci", "0123456789ab", "10.0.0.7", "r", "POST", path, '{"b": 2}')


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a database of the admin API, which the tests copy."""
    settings = make_settings(tmp_path_factory.mktemp("made"))
    settings.data_dir.mkdir(exist_ok=True)
    store.open_store(settings).close()
    return settings.admin_db


@pytest.fixture
def log(tmp_path: Path, made: Path) -> Iterator[Log]:
    settings = make_settings(tmp_path / "data")
    settings.run_dir.mkdir(parents=True)
    shutil.copy(made, settings.admin_db)
    with closing(store.open_store(settings)) as database:
        yield Log(tmp_path, settings, database)


def test_each_entry_is_a_line_in_order(log: Log) -> None:
    log.add("/1", "/2")
    assert log.export.step() == 2
    log.add("/3")
    assert (log.export.step(), log.export.step()) == (1, 0)
    assert log.paths() == ["/1", "/2", "/3"]
    [first, *_] = log.lines()
    assert (first["id"], first["who"], first["status"]) == (1, "ci", 200)
    assert (first["asked"], first["after"], first["at"][-1]) == ({"b": 2}, {"a": 1}, "Z")
    assert log.file.stat().st_mode & 0o007 == 0


def test_more_than_a_batch_is_delivered(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_export, "BATCH", 2)
    log.add(*(f"/{number}" for number in range(5)))
    assert [log.export.step() for _ in range(4)] == [2, 2, 1, 0]
    assert log.paths() == [f"/{number}" for number in range(5)]


def test_a_restart_continues_and_a_crash_loses_none(log: Log) -> None:
    log.add("/1")
    log.export.step()
    kept = (log.settings.run_dir / audit_export.STATE).read_text()
    log.add("/2")
    assert log.started().step() == 1
    assert log.paths() == ["/1", "/2"]
    # The process was killed when the file had the line, and the position was not stored.
    (log.settings.run_dir / audit_export.STATE).write_text(kept)
    assert log.started().step() == 1
    assert log.paths() == ["/1", "/2", "/2"]


def test_logrotate_needs_no_signal(log: Log) -> None:
    log.add("/1")
    log.export.step()
    rotated = log.file.rename(log.file.with_suffix(".1"))
    log.add("/2")
    log.export.step()
    assert (log.paths(rotated), log.paths()) == (["/1"], ["/2"])
    log.file.unlink()
    log.add("/3")
    log.export.step()
    assert log.paths() == ["/3"]


def test_an_entry_that_is_under_way_waits_and_is_told_twice_if_it_takes_long(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = log.begin("/long")
    log.add("/2")
    assert log.export.step() == 0
    later = clock.now_ns() + int((PATIENCE_SECONDS + 1) * clock.NS)
    with monkeypatch.context() as context:
        context.setattr(clock, "now_ns", lambda: later)
        assert log.export.step() == 2
    assert [line["status"] for line in log.lines()] == [None, 200]
    log.end(entry)
    log.add("/3")
    assert log.started().step() == 2
    assert [(line["path"], line["status"]) for line in log.lines()[2:]] == [
        ("/long", 200),
        ("/3", 200),
    ]


def test_a_full_disk_loses_and_repeats_nothing(log: Log) -> None:
    small = log.file.parent / "small"
    with tmpfs(small):
        receiver = FileReceiver(small / "audit.jsonl")
        export = log.started(receiver)
        log.add("/1")
        export.step()
        fills = small / "fills"
        with fills.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * (1 << 20))
        log.add(*(f"/{number}{'x' * 3000}" for number in range(2, 9)))
        with pytest.raises(OSError, match="No space"):
            export.step()
        assert len(export.waiting) == 7
        fills.unlink()
        assert export.step() == 7
        assert [path[:2] for path in log.paths(small / "audit.jsonl")] == [
            f"/{number}" for number in range(1, 9)
        ]


def test_half_a_line_of_a_killed_process_spoils_no_other(log: Log) -> None:
    log.file.write_text('{"id": 1, "pa')
    log.add("/1")
    log.export.step()
    assert json.loads(log.file.read_text().splitlines()[1])["path"] == "/1"


@pytest.mark.parametrize("kind", ["missing", "fifo"])
def test_a_receiver_that_cannot_be_used_is_tried_again(log: Log, kind: str) -> None:
    log.add("/1")
    place = log.file.parent / kind
    file = place / "audit.jsonl"
    if kind == "fifo":
        place.mkdir()
        os.mkfifo(file)
    export = log.started(FileReceiver(file))
    with pytest.raises(OSError, match="no regular file" if kind == "fifo" else "No such file"):
        export.step()
    place.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    assert export.step() == 1


def test_a_database_of_yesterday_is_exported_again(log: Log) -> None:
    log.add("/1", "/2")
    log.export.step()
    with log.store.writing() as session:
        session.run(Statement(delete(ROWS)))
    log.add("/other")
    assert log.export.step() == 1
    assert log.paths()[2:] == ["/other"]
    with log.store.writing() as session:
        session.run(Statement(update(ROWS).values(at_ns=ROWS.c.at_ns + 1)))
    assert log.export.step() == 1


def test_entries_that_were_pruned_are_no_other_database(log: Log) -> None:
    log.add("/1", "/2", "/3")
    log.export.step()
    log.add("/4")
    with log.store.writing() as session:
        session.run(Statement(delete(ROWS).where(ROWS.c.id <= 3)))
    assert log.export.step() == 1
    assert log.paths() == ["/1", "/2", "/3", "/4"]


def test_another_receiver_gets_everything(log: Log) -> None:
    log.add("/1")
    log.export.step()
    other = str(log.file.with_name("other.jsonl"))
    log.settings = replace(log.settings, admin=replace(log.settings.admin, audit_export=other))
    assert log.started().step() == 1


def test_syslog_gets_messages_that_are_json(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "log"
    export = log.started(SyslogReceiver(path))
    log.add("/1")
    with log.store.writing() as session:
        audit.add(session, _origin("/2"), CallOutcome(200, after=json.dumps("x" * 9000)))
    with pytest.raises(OSError):
        export.step()  # there is no syslog yet
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(10)
        assert export.step() == 2
        first, second = receiver.recv(1 << 20), receiver.recv(1 << 20)
    head, _, text = first.partition(b": ")
    assert head.startswith(b"<86>spillway-audit[")
    assert json.loads(text)["path"] == "/1"
    shortened = json.loads(second.partition(b": ")[2])
    assert (shortened["path"], shortened["after"], shortened["shortened"]) == ("/2", None, True)


def test_a_receiver_that_hangs_holds_up_no_call(log: Log) -> None:
    class Hanging:
        reached, goes = threading.Event(), threading.Event()

        def deliver(self, lines: Sequence[bytes]) -> int:
            self.reached.set()
            self.goes.wait(30)
            return len(lines)

    hanging, stop = Hanging(), threading.Event()
    log.add("/1")
    thread = threading.Thread(target=keep_exporting, args=(log.started(hanging), stop))
    thread.start()
    try:
        assert hanging.reached.wait(10)
        began = clock.monotonic_seconds()
        log.add("/2")
        assert clock.monotonic_seconds() - began < 5
    finally:
        stop.set()
        hanging.goes.set()
        thread.join()


def test_columns_are_all_delivered() -> None:
    assert {column.name for column in ROWS.columns} == {*audit.AuditRow._fields}
