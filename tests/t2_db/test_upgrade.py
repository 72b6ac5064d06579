"""A database of every earlier revision can be upgraded and keeps its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from gateway.common.errors import SchemaError
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db import schema, upgrade
from gateway.db.checkpoint_models import Base
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings, query

SCRIPTS = ScriptDirectory.from_config(upgrade.script_config(Database("sqlite:////unused")))
REVISIONS = [script.revision for script in SCRIPTS.walk_revisions()][::-1]

INODE = (
    "INSERT INTO inode (ino, generation, kind, mode, uid, gid, nlink, size, used, atime_ns,"
    " mtime_ns, ctime_ns, btime_ns, change, rdev, target, verifier, parent, content_version,"
    " drained_version, write_open, drain_after_ns, residency, epoch)"
    " VALUES (:ino, 1, :kind, 420, 0, 0, :nlink, :size, 0, 1, 1, 1, 1, 1, 0,"
    " :target, NULL, :parent, 1, :drained, :open, 0, 2, 0)"
)  # fmt: skip
DATA: list[tuple[str, dict[str, object]]] = [
    ("INSERT INTO volume (id, fs_id, boot, next_ino, next_cookie)"
     " VALUES (1, :fs_id, 3, 100, 100)", {"fs_id": b"0123456789abcdef"}),
    (INODE, {"ino": 2, "kind": 7, "nlink": 3, "size": 0, "target": None, "parent": 2,
             "drained": 0, "open": 0}),
    (INODE, {"ino": 16, "kind": 7, "nlink": 2, "size": 0, "target": None, "parent": 2,
             "drained": 0, "open": 0}),
    (INODE, {"ino": 17, "kind": 1, "nlink": 1, "size": 5, "target": None, "parent": None,
             "drained": 1, "open": 0}),
    (INODE, {"ino": 18, "kind": 4, "nlink": 1, "size": 4, "target": b"file", "parent": None,
             "drained": 0, "open": 0}),
    (INODE, {"ino": 19, "kind": 1, "nlink": 1, "size": 0, "target": None, "parent": None,
             "drained": 0, "open": 1}),
    *(("INSERT INTO dirent VALUES (:parent, :name, :ino, :cookie)",
       {"parent": parent, "name": name, "ino": ino, "cookie": ino})
      for parent, name, ino in ((2, b"dir", 16), (16, b"file", 17), (16, b"link", 18),
                                (16, b"open\xff", 19))),
    ("INSERT INTO object (ino, key, content_version, size, etag, checksum, stored_ns)"
     " VALUES (17, 'dir/file', 1, 5, 'e', 'md5:0', 1)", {}),
    ("INSERT INTO rekey VALUES (16, 1)", {}),
]  # fmt: skip
"""Rows that fit into revision 0001 and every later revision."""
OLD_DELETION = "INSERT INTO deletion VALUES ('gone', 1)"
DELETION = (
    "INSERT INTO deletion (key, ino, content_version, etag, deleted_ns)"
    " VALUES ('gone', 17, 1, NULL, 1)"
)
OLD_RETRY = "INSERT INTO retry (job, tries, error, next_ns) VALUES ('upload of f', 3, 'e', 1)"
RETRY = (
    "INSERT INTO retry (work, ino, key, tries, error, next_ns)"
    " VALUES ('uploads', 19, 'dir/open', 3, 'e', 1)"
)
RENAMED: list[tuple[str, dict[str, object], str]] = [
    ("doubt", {"key": "dir/file", "ino": 17, "noted_ns": 5, "look_ns": 6},
     "SELECT key, ino, noted_ns, check_after_ns FROM indeterminate_write"),
    ("elapsed", {"id": 1, "elapsed_ns": 5, "boot": "b", "uptime_ns": 6, "clock_ns": 7},
     "SELECT id, elapsed_ns, boot, uptime_ns, clock_ns FROM elapsed_time"),
    ("override", {"ino": 17, "hold": 1, "set_ns": 5, "request_id": "r"},
     "SELECT ino, hold, set_ns, request_id FROM queue_order"),
    ("presence", {"ino": 17, "epoch": 5, "block_bytes": 6, "blocks": b"\7"},
     "SELECT ino, epoch, block_bytes, blocks FROM present_blocks"),
    ("warming", {"ino": 17, "asked_ns": 5},
     "SELECT ino, asked_ns FROM warm_request"),
    ("manifest", {"key": "m", "ino": 16, "path": b"dir", "change": 5, "evidence": "e",
                  "durable_ns": 6, "written_ns": 7, "look_ns": 8},
     "SELECT key, ino, path, change, evidence, durable_ns, written_ns, check_after_ns"
     " FROM manifest"),
    ("promotion", {"name": "p", "state": "done", "ino": 16, "path": b"dir", "note": "n",
                   "asked_by": "me", "asked_ns": 5, "top": 20, "generation": 6, "files": 1,
                   "size": 7, "legal_hold": 0, "released": "models"},
     "SELECT name, state, ino, path, note, asked_by, asked_ns, top, generation, files, size,"
     " legal_hold, key_prefix FROM promotion"),
]  # fmt: skip
"""Tables that have or had another name than in 0032, or a column that had: a row there, and what
selects it now."""


def at_revision(url: str, revision: str) -> Database:
    database = Database(url)
    command.upgrade(upgrade.script_config(database), revision)
    with database.engine().begin() as connection:
        for statement, values in DATA:
            connection.execute(text(statement), values)
        old = OLD_DELETION if revision < "0004" else DELETION
        table = "deletion" if revision < "0007" else "tombstone"
        connection.execute(text(old.replace("deletion", table)))
        if revision >= "0003":
            connection.execute(text(OLD_RETRY if revision < "0008" else RETRY))
    return database


def test_the_files_of_the_revisions_begin_with_them() -> None:
    assert schema.known() == REVISIONS


def test_another_schema_begins_another_series_of_the_names(database_url: str) -> None:
    """The rows of one log have the same columns: a restore makes the tables of its base."""
    database = at_revision(database_url, REVISIONS[-2])
    row = "INSERT INTO names_copy VALUES (1, '000001-0badcafe', 7, 5, 6, 1, 2, 3, 8)"
    count = "SELECT count(*) FROM names_copy"
    with database.engine().begin() as connection:
        connection.execute(text(row))
    upgrade.upgrade(database)
    with database.engine().begin() as connection:
        assert connection.scalar(text(count)) == 0
        connection.execute(text(row))
    upgrade.upgrade(database)
    with database.engine().begin() as connection:
        assert connection.scalar(text(count)) == 1
    database.close()


@pytest.mark.parametrize("revision", REVISIONS)
def test_data_survives_the_upgrade(revision: str, database_url: str, tmp_path: Path) -> None:
    database = at_revision(database_url, revision)
    upgrade.upgrade(database)
    settings = make_settings(tmp_path / "data", {"namespace": {"url": database_url}})
    files = DataFiles(settings.files_dir)
    files.create()
    files.path(17, 0).write_bytes(b"12345")
    opened = Namespace(settings)
    assert opened.boot.boot == 4
    assert opened.recovered == (1, 0)
    assert opened.lookup(2, b"dir").ino == 16
    assert [entry.name for entry in opened.readdir(16, 0, 10)] == [b"file", b"link", b"open\xff"]
    assert opened.readlink(18) == b"file"
    # New inode numbers differ from the old ones.
    assert opened.create(ROOT_CRED, 16, b"new", SetAttr()).ino >= 100
    opened.close()
    assert query(settings, "SELECT key FROM object") == [("dir/file",)]
    assert query(settings, "SELECT key FROM tombstone") == [("gone",)]
    # Rows of earlier revisions do not tell what their job is about: it is tried again at once.
    kept = [] if revision < "0008" else [("uploads", 19, "dir/open", 3)]
    assert query(settings, "SELECT work, ino, key, tries FROM retry") == kept
    assert fsck.check(Database(database_url), opened.files) == []


def test_renamed_tables_and_columns_keep_their_rows(database_url: str) -> None:
    database = at_revision(database_url, "0032")
    with database.engine().begin() as connection:
        for table, row, _select in RENAMED:
            values = ", ".join(f":{name}" for name in row)
            connection.execute(
                text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"), row
            )
    upgrade.upgrade(database)
    with database.engine().begin() as connection:
        for table, row, select in RENAMED:
            assert [tuple(one) for one in connection.execute(text(select))] == [
                tuple(row.values())
            ], table


def described(database: Database) -> dict[str, object]:
    """Return the tables of a database: columns, keys, indexes, and the names of constraints."""
    inspector = inspect(database.engine())
    # SQLite cannot rename constraints, and the names of its keys mean nothing.
    anonymous: dict[str, Any] = {"name": None} if database.path else {}
    return {
        table: {
            "columns": sorted(
                (column["name"], str(column["type"]), column["nullable"])
                for column in inspector.get_columns(table)
            ),
            "primary key": dict(inspector.get_pk_constraint(table)) | anonymous,
            "foreign keys": sorted(
                (
                    dict(foreign_key) | anonymous
                    for foreign_key in inspector.get_foreign_keys(table)
                ),
                key=str,
            ),
            "checks": sorted(
                str(constraint["name"]) for constraint in inspector.get_check_constraints(table)
            ),
            "unique": sorted(
                str(constraint["name"]) for constraint in inspector.get_unique_constraints(table)
            ),
            "indexes": sorted(
                (str(index["name"]), index["column_names"], index["unique"])
                for index in inspector.get_indexes(table)
            ),
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def test_an_upgraded_database_has_the_tables_and_names_of_a_new_one(database_url: str) -> None:
    """Errors, later migrations and people who look into the database find one set of names."""
    database = Database(database_url)
    Base.metadata.create_all(database.engine())
    new = described(database)
    Base.metadata.drop_all(database.engine())
    upgrade.upgrade(at_revision(database_url, "0032"))
    upgraded = described(database)
    assert upgraded.keys() == new.keys()
    for table, expected in new.items():
        assert upgraded[table] == expected, table


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_an_older_schema_is_not_worked_on(revision: str, database_url: str) -> None:
    database = at_revision(database_url, revision)
    with pytest.raises(SchemaError, match=r"older schema.*run: spillway upgrade"):
        schema.require_current(database)
