"""What each run would lose with the gateway: how old its newest durable checkpoint is, and how many
bytes the bucket lacks."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import Any

import pytest

from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.risk import Risk, measure
from gateway.cli import checkpoints
from gateway.common import clock
from gateway.common.models import from_json
from gateway.common.process import start_ticks
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.drain.runner import Rate
from gateway.service.checkpoints import CatalogueStatus, models
from tests.support.volumes import query, status_of

MANY = 10_000
SECONDS = 1.0
HOUR = 3600
INODE = """
INSERT INTO inode (ino, generation, kind, mode, uid, gid, nlink, size, used, atime_ns, mtime_ns,
  ctime_ns, btime_ns, change, rdev, target, verifier, parent, content_version, drained_version,
  write_open, drain_after_ns, epoch, residency)
VALUES
  (:ino, 1, 7, 493, 0, 0, 2, 0, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, 2, 1, 0, 0, 0, 1, 2)
"""
CHECKPOINT = """
INSERT INTO checkpoint (ino, parent, path, run, step, rule, extent, state, reason, files, size,
  dirty_files, dirty_size, complete_ns, durable_ns, due_ns, evidence, dirty_since_ns)
VALUES (:ino, 2, :path, :run, :step, 'dcp', 1, :state, NULL, 4, 400,
  :dirty_files, :dirty_size, :complete_ns, :durable_ns, NULL, '', :since_ns)
"""

ROWS: list[tuple[Any, ...]] = [
    # Nothing is newer than what is durable. An older save was cut off.
    (b"at rest", 1, CheckpointState.WRITING, 9000, 7),
    (b"at rest", 2, CheckpointState.DURABLE, 8000, 0),
    # Two are newer.
    (b"behind", 10, CheckpointState.DURABLE, 3000, 0),
    (b"behind", 20, CheckpointState.DRAINING, 2000, 30),
    (b"behind", 30, CheckpointState.COMPLETE, 1000, 400),
    (b"behind", 40, CheckpointState.WRITING, 10, 5),
    # A job that went back to an earlier step, while the clock was behind: its newest is step 50.
    (b"gone back", 100, CheckpointState.DURABLE, 100, 0),
    (b"gone back", 50, CheckpointState.DURABLE, 5000, 0),
    (b"gone back", 60, CheckpointState.WRITING, 4000, 0),
    # A newer one is broken, and an older one is not in the bucket.
    (b"broken", 10, CheckpointState.COMPLETE, 2000, 7),
    (b"broken", 20, CheckpointState.DURABLE, 3000, 0),
    (b"broken", 30, CheckpointState.BROKEN, 1000, 0),
    # None has its place in the run yet.
    (b"fresh", 1, CheckpointState.DURABLE, 50, 0),
    (b"fresh", 2, CheckpointState.DURABLE, 40, 0),
    (b"fresh", 3, CheckpointState.COMPLETE, 30, 9),
    (b"nothing yet", 1, CheckpointState.COMPLETE, 700, 1),
    (b"nothing yet", None, CheckpointState.WRITING, 800, 2),
    # The clock has gone back since.
    (b"ahead", 1, CheckpointState.DURABLE, -90, 0),
    (b"ahead", 2, CheckpointState.COMPLETE, -100, 6),
]


def add(settings: Settings, now_ns: int, rows: list[tuple[Any, ...]]) -> None:
    """Add checkpoints: run, step, state, seconds since they were complete or since their oldest
    data came, bytes that the bucket lacks."""
    for ino, (run, step, state, seconds, dirty) in enumerate(rows, 100):
        at_ns = now_ns - int(seconds * clock.NS)
        query(settings, INODE, ino=ino)
        query(
            settings,
            CHECKPOINT,
            ino=ino,
            path=b"%s/%d" % (run, ino),
            run=run,
            step=step,
            state=state,
            dirty_files=int(dirty > 0),
            dirty_size=dirty,
            complete_ns=None if state == CheckpointState.WRITING else at_ns,
            durable_ns=at_ns if state == CheckpointState.DURABLE else None,
            since_ns=at_ns if dirty else None,
        )

    query(
        settings,
        "INSERT INTO checkpoint_record SELECT ino, run, rule, step, extent, 'listed', ino,"
        " complete_ns, durable_ns, files, size, evidence, '', NULL FROM checkpoint"
        " WHERE complete_ns IS NOT NULL AND run <> :run",
        run=b"fresh",
    )


def measured(settings: Settings) -> dict[bytes, Risk]:
    database = Database(settings.database_url)
    with database.reader() as connection:
        risks = measure(Session(connection, database.dialect))
    database.close()
    assert [risk.run for risk in risks] == sorted(risk.run for risk in risks)
    return {risk.run: risk for risk in risks}


def test_the_risk_of_each_run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = clock.now_ns()
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns)
    add(
        settings,
        now_ns,
        ROWS,
    )
    risks = measured(settings)
    assert {
        name: (
            risk.complete and risk.complete.step,
            risk.durable and risk.durable.step,
            risk.seconds,
            risk.size,
        )
        for name, risk in risks.items()
    } == {
        b"at rest": (2, 2, 0.0, 0),
        b"behind": (30, 10, 3000.0, 435),
        b"gone back": (50, 50, 0.0, 0),
        b"broken": (20, 20, 0.0, 0),
        b"fresh": (3, 2, 40.0, 9),
        b"nothing yet": (1, None, 800.0, 3),
        b"ahead": (2, 1, 0.0, 6),
    }
    # Rows of an older release do not say since when.
    query(settings, "UPDATE checkpoint SET dirty_since_ns = NULL")
    assert measured(settings)[b"nothing yet"].seconds == 0.0
    assert risks[b"behind"].eta_seconds(5.0, 0) == 87.0
    assert risks[b"behind"].eta_seconds(5.0, 500) == 100.0, "others may be sent before it"
    assert risks[b"behind"].eta_seconds(0.0, 500) is None
    assert risks[b"at rest"].eta_seconds(0.0, 500) == 0.0
    report = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "bytes_per_second": 5}
    (settings.run_dir / "drain.json").write_text(json.dumps(report))
    texts = {run.run: checkpoints.text(run) for run in models(settings, list(risks.values()), 500)}
    assert texts == {
        "at rest": "durable: step 2 (2.2 h ago); nothing newer is at risk",
        "behind": "durable: step 10 (50.0 min ago); complete: step 30 (16.7 min ago); "
        "at risk: 50.0 min, 435 B, the whole queue takes 1.7 min",
        "gone back": "durable: step 50 (1.4 h ago); nothing newer is at risk",
        "broken": "durable: step 20 (50.0 min ago); nothing newer is at risk",
        "fresh": "durable: step 2 (40 s ago); complete: step 3 (30 s ago); "
        "at risk: 40 s, 9 B, the whole queue takes 1.7 min",
        "nothing yet": "nothing is durable; complete: step 1 (11.7 min ago); "
        "at risk: 13.3 min, 3 B, the whole queue takes 1.7 min",
        "ahead": "durable: step 1 (0 s ago); complete: step 2 (0 s ago); "
        "at risk: 0 s, 6 B, the whole queue takes 1.7 min",
    }


def test_checkpoints_are_counted_by_the_state_that_is_shown(settings: Settings) -> None:
    add(settings, clock.now_ns(), ROWS)
    query(
        settings,
        "UPDATE checkpoint SET storage_class = 'GLACIER_IR' WHERE run = :run",
        run=b"at rest",
    )
    catalogue = status_of(settings)["catalogue"]
    counts = {"writing": 4, "complete": 5, "draining": 1, "durable": 7, "archived": 1}
    assert (catalogue["checkpoints"], catalogue["runs"]) == ({**counts, "broken": 1}, 7)


def test_thresholds_raise_alarms(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = clock.now_ns()
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns)
    add(settings, now_ns, ROWS)
    alarms = {
        (seconds, size): [
            entry["run"]
            for entry in status_of(
                replace(
                    settings,
                    checkpoints=replace(settings.checkpoints, rpo_seconds=seconds, rpo_bytes=size),
                )
            )["catalogue"]["at_risk"]
            if entry["alarm"] is not None
        ]
        for seconds, size in [(0.0, 0), (HOUR, 0), (900.0, 0), (0.0, 400), (700.0, 400), (0.0, 2)]
    }
    assert alarms == {
        (0.0, 0): [],
        (HOUR, 0): [],
        (900.0, 0): ["behind"],
        (0.0, 400): ["behind"],
        (700.0, 400): ["behind", "nothing yet"],
        (0.0, 2): ["behind", "nothing yet", "fresh", "ahead"],
    }


@pytest.mark.alone
def test_many_checkpoints_are_measured_at_once(settings: Settings) -> None:
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
    inode, checkpoint = INODE.split("VALUES"), CHECKPOINT.split("VALUES")
    columns = inode[1].strip().strip("()").replace(":ino", "i + 100")
    query(settings, f"{inode[0]} {numbers} SELECT {columns} FROM n")
    text = "CAST('run-' || CAST(i / 100 AS VARCHAR) AS {})"
    run = text.format("BYTEA" if "postgres" in settings.database_url else "BLOB")
    values = {
        ":ino": "i + 100",
        ":path": run,
        ":run": run,
        ":step": "i",
        ":state": "CASE i % 100 > 90 WHEN true THEN 'complete' ELSE 'durable' END",
        ":dirty_files": "CASE i % 100 > 90 WHEN true THEN 1 ELSE 0 END",
        ":dirty_size": "100",
        ":complete_ns": "i",
        ":durable_ns": "i",
        ":since_ns": "i",
    }
    columns = checkpoint[1].strip().strip("()")
    for name, value in values.items():
        columns = columns.replace(name, value)
    query(settings, f"{checkpoint[0]} {numbers} SELECT {columns} FROM n")
    query(
        settings,
        "INSERT INTO checkpoint_record SELECT ino, run, rule, step, extent, 'listed', ino,"
        " complete_ns, durable_ns, files, size, evidence, '', NULL FROM checkpoint",
    )
    started = time.process_time(), time.monotonic()
    risks = measured(settings)
    assert len(risks) == MANY // 100 + 1
    assert risks[b"run-3"].size == 900
    seconds = time.monotonic() - started[1]
    print(f"{MANY} checkpoints: {seconds:.3f} s")
    assert seconds < SECONDS


def test_a_rate_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now)
    rate = Rate()
    found = []
    for seconds, total in [(0, 0), (10, 1000), (20, 4000), (70, 4000), (200, 4000)]:
        now = 1000.0 + seconds
        found.append(rate.of(total))
    assert found == [0, 100, 200, 50, 0]


def test_an_alarm_is_shown_in_the_status() -> None:
    at_risk = {"run": "job", "alarm": "too much", "at_risk_seconds": 60.0, "at_risk_bytes": 5}
    at_risk |= {"newest_durable": None, "newest_complete": None, "eta_seconds": None}
    facts = {"runs": 9, "checkpoints": {"complete": 9}, "at_risk": [at_risk] * 7, "alarms": 7}
    facts |= {"unrecognised": None, "is_made": True}
    shown = list(checkpoints.lines(from_json(CatalogueStatus, facts)))
    assert shown[0] == ("catalogue", "9 runs: 9 complete")
    assert shown[1][0] == "AT RISK"
    assert shown[1][1].startswith("job: too much; nothing is durable; at risk: 1.0 min, 5 B, ")
    assert shown[-1] == ("at risk", "and 2 more: spillway checkpoint list")
