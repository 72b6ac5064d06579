"""The admin API's own database: its tables, its mode, its trouble, what is deleted by age."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from admin_api import dashboard
from admin_api.store import DAY_NS, VERSIONS, AdminBase, open_store, prune
from gateway.common import clock
from gateway.common.errors import SchemaError, UserError
from gateway.config.settings import Settings
from gateway.db import upgrade
from gateway.db.engine import Database
from tests.support.volumes import make_settings

TABLES = ("token", "session", "audit", "idempotency", "job", "sample")


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    """Settings that keep history for 30 days and the audit for 365."""
    (tmp_path / "data").mkdir()
    return make_settings(tmp_path / "data")


def add(store: Database, table: str, **values: Any) -> None:
    names = ", ".join(values)
    places = ", ".join(f":{name}" for name in values)
    with store.reader() as connection:
        connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", values)


def add_each(store: Database, at_ns: int) -> None:
    """Add to each table a row of one moment, whose work ended in that moment."""
    name = str(at_ns)
    token = {"id": name, "name": "t", "role": "admin", "hash": "h", "created_by": "b"}
    add(store, "token", **token, created_ns=at_ns, revoked_ns=at_ns)
    live = f"live-{name}"
    add(store, "token", **{**token, "id": live}, created_ns=at_ns)
    add(store, "session", id=name, token_id=live, created_ns=at_ns, expires_ns=at_ns)
    call = {"who": "t", "address": "a", "request_id": "r", "method": "PUT", "path": "/"}
    add(store, "audit", at_ns=at_ns, **call)
    key = {"token_id": live, "key": "k", "fingerprint": "f", "request_id": "r"}
    add(store, "idempotency", **key, created_ns=at_ns)
    job = {"id": name, "kind": "k", "arguments": "{}", "done": 0, "text": "", "asked_by": "t"}
    job |= {"token_id": live, "request_id": "r", "cancel_asked": 0}
    times = {"created_ns": at_ns, "updated_ns": at_ns}
    add(store, "job", **job, **times, state="done", ended_ns=at_ns)
    add(store, "job", **{**job, "id": live}, **times, state="running")
    add(store, "sample", at_ns=at_ns, dirty_bytes=1)


def counted(store: Database) -> dict[str, int]:
    with store.reader() as connection:
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in TABLES
        }


def test_migrations_make_the_models_in_a_private_file(own: Settings) -> None:
    store = open_store(own)
    with store.engine().connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), AdminBase.metadata) == []
    with store.reader() as connection:
        made = "\n".join(
            sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master") if sql
        )
    checks = [
        str(constraint.name)
        for table in AdminBase.metadata.tables.values()
        for constraint in table.constraints
        if str(constraint.name).startswith("ck_")
    ]
    assert len(checks) == 4
    assert [one for one in checks if one not in made] == []
    own.admin_db.chmod(0o644)
    open_store(own)
    files = own.data_dir.glob("admin.db*")
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_the_samples_of_an_earlier_version_are_kept(own: Settings) -> None:
    open_store(own).close()
    own.admin_db.unlink()
    store = Database(f"sqlite:///{own.admin_db}")
    command.upgrade(upgrade.script_config(store, VERSIONS, AdminBase.metadata), "0001")
    figures = {"dirty_bytes": 2**53 + 1, "written_bytes_per_second": 1.5, "headroom_bytes": None}
    add(store, "sample", at_ns=60 * clock.NS, figures=json.dumps(figures))
    store.close()
    with open_store(own).reading() as session:
        [kept] = dashboard.steps(session, 0, 100 * clock.NS, 60 * clock.NS)
    assert kept == dashboard.Sample(60 * clock.NS, 2**53 + 1, 1.5, None)


def test_a_damaged_file_and_a_newer_one_are_named(own: Settings) -> None:
    store = open_store(own)
    with store.reader() as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match="newer Spillway"):
        open_store(own)
    store.close()
    own.admin_db.write_bytes(b"not a database" * 100)
    with pytest.raises(UserError, match=r"admin\.db.*not a database: .*spillway token create"):
        open_store(own)
    own.admin_db.unlink()
    own.admin_db.mkdir()
    with pytest.raises(UserError, match=r"admin\.db"):
        open_store(own)


def test_old_rows_are_deleted_by_the_time_that_has_passed(
    own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(own)
    now_ns = clock.now_ns()
    prune(store, own)
    for days in (400, 40, 0):
        add_each(store, now_ns - days * DAY_NS)
    add(store, "session", id="s", token_id=f"live-{now_ns}", created_ns=1, expires_ns=2 * now_ns)
    # A clock that jumps ahead by ten years makes nothing old: only what has really aged goes.
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns + 3650 * DAY_NS)
    prune(store, own)
    assert counted(store) == {
        "token": 5,  # only the one that was revoked before 400 days is gone
        "session": 1,
        "audit": 2,
        "idempotency": 1,
        "job": 4,  # each that did not end, and the newest that did
        "sample": 1,
    }
