"""No statement of the hot path or the drain scans a table that grows with the namespace."""

from __future__ import annotations

import re

from sqlalchemy import text
from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite_dialect

from gateway.cache import eviction, evictor, rows, warming
from gateway.catalogue import risk
from gateway.catalogue import statements as checkpoint_statements
from gateway.config.settings import Settings
from gateway.db import journal
from gateway.db import statements as namespace_statements
from gateway.db.compiled import Statement, rows_of
from gateway.db.engine import Database
from gateway.drain import paths, precedence, verify
from gateway.drain import statements as drain_statements
from gateway.drain.admission import retries
from gateway.drain.plan import survey
from gateway.drain.send import intent
from gateway.drain.tidy import transition
from gateway.lifecycle.retention import references, transitions
from gateway.lifecycle.retention import store as retention_statements
from gateway.lifecycle.trash import held
from gateway.lifecycle.trash import rows as trash_rows
from gateway.namespace import fingerprint, latest_links, lookup, residency, rotation
from gateway.recovery import import_rows, names_copy, scrub_rows, tables
from gateway.service import checkpoints, status

SMALL = {
    *(
        "volume",
        "lease",
        "retry",
        "queue_order",
        "indeterminate_write",
        "damage",
        "reader",
        "catalogue",
        "names_copy",
        "scrub_pass",
    ),
    *("trash", "elapsed_time", "pin", "promotion", "imported_prefix"),
    *("policy", "policy_approval", "approval", "known_time", "superseded"),
}
"""Tables that stay small: one row, a row for each drain, failing job or reader, or rows made by
people, by errors, or by retention in a week."""
WHOLE_TABLES = {
    "drain.statements.UPLOADS",
    "drain.statements.COMPLETE",
    "cache.eviction.SURVEY",
    "cache.eviction.PARTIAL",
    "cache.eviction.IMPORTED_SURVEY",
    "cache.eviction.IMPORTED_PARTIAL",
    "cache.rows._WARM_REQUESTS",
    "catalogue.statements.DUE",
    "lifecycle.retention.store.CHECKPOINTS",
    "lifecycle.retention.store.OF_RUN",
    "lifecycle.retention.store.TIMES",
    "lifecycle.retention.store.UNFINISHED",
    "lifecycle.retention.transitions.LEFT",
    "lifecycle.retention.transitions.WITHDRAW",
}
"""Statements that run once for each plan (``upload`` has a row for each unfinished upload), once in
a second while files wait (``checkpoint`` has a row for each of thousands of checkpoints), for a
disk that is too full, for the requests of people, of which ``warm_request`` has the rows, for a
start of the catalogue, of what applies policies, or for each removal of a checkpoint from the
trash, or once for each round of retention (``transition`` has the files of at most eight
checkpoints)."""

STATEMENTS = {
    f"{module.__name__.removeprefix('gateway.')}.{name}": value
    for module in (
        *(namespace_statements, lookup, journal, drain_statements),
        *(retries, intent, verify, precedence, paths, survey),
        *(eviction, evictor, rows, warming, residency, checkpoint_statements),
        *(fingerprint, latest_links, rotation, held, trash_rows, transition, transitions),
        *(retention_statements, references, risk, checkpoints, names_copy, scrub_rows, import_rows),
    )
    for name, value in vars(module).items()
    if isinstance(value, Statement) and not name.endswith("_INSERT")
} | {"drain.statements.CLAIM_INSERT": drain_statements.CLAIM_INSERT}
STATEMENTS |= {
    f"recovery.tables.{table.name}.{which}": statement
    for table in tables.BY_INODE
    for which, statement in vars(table).items()
    if which in ("_of_inos", "_of_range")
}
GIVEN = r"json_each\(:(\w+)\)" "|" r"json_array_elements\(CAST\(%\((\w+)\)s"
"""A parameter that is a table of rows."""


def explain(database: Database, statement: Statement) -> list[str]:
    # The statements that run on SQLite have no names of parameters in them.
    dialect = sqlite_dialect(paramstyle="named") if database.path else database.dialect
    sql, parameters = Statement(statement.expression).compiled(dialect)
    fixed = parameters({})
    names = re.findall(r":(\w+)" if database.path else r"%\((\w+)\)s", sql)
    blobs = {name for name in names if "name" in name or name in ("value", "gateway")}
    blobs |= {"after"} if "dirent.name >" in sql else set()
    blobs |= {"path", "run", "new_crcs"} & set(names)
    texts = {name for name in names if "key" in name}
    texts |= {"etag", "checksum", "bucket", "prefix", "reason", "the_work", "the_kind"} & set(names)
    values = {name: fixed.get(name, b"" if name in blobs else 1) for name in names}
    values |= dict.fromkeys(texts, "k")
    values |= {name: rows_of([]) for found in re.findall(GIVEN, sql) for name in found if name}
    with database.reader() as connection:
        if database.path:
            found = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
            return [row[3] for row in found]
        # The planner would rightly scan a table of ten rows. The test is about the indexes that it
        # can use.
        connection.execute("SET enable_seqscan = off")
        return [row[0] for row in connection.execute(f"EXPLAIN {sql}", values)]


def is_scan(step: str) -> bool:
    step = step.strip()
    if "VIRTUAL TABLE" in step:
        return False  # json_each, over the rows in a parameter
    if match := re.match(r"SCAN (\w+)(?! USING (?:COVERING )?INDEX ix_)", step):
        return "USING" not in step and match[1] not in SMALL | {
            "below",
            "newest",
            "here",
            "CONSTANT",
        }
    match = re.search(r"Seq Scan on (\w+)", step)
    return match is not None and match[1] not in SMALL


def test_statements_use_indexes(settings: Settings) -> None:
    database = Database(settings.database_url)
    plans = {name: explain(database, statement) for name, statement in STATEMENTS.items()}
    database.close()
    assert len(plans) > 40
    scans = {
        name: [step for step in plan if is_scan(step)]
        for name, plan in plans.items()
        if name not in WHOLE_TABLES
    }
    assert {name: steps for name, steps in scans.items() if steps} == {}


def test_status_counts_files_without_sorting_them(settings: Settings) -> None:
    database = Database(settings.database_url)
    plan = explain(database, status.COUNTS)
    database.close()
    assert len([step for step in plan if is_scan(step)]) == 1
    assert not [step for step in plan if "TEMP B-TREE" in step or "Sort" in step or "Hash" in step]


def test_a_scan_would_be_seen(settings: Settings) -> None:
    database = Database(settings.database_url)
    by_owner = Statement(text("SELECT ino FROM inode WHERE uid = 5"))
    plan = explain(database, by_owner)
    database.close()
    assert [step for step in plan if is_scan(step)]


def test_postgres_compiles_no_statement(settings: Settings) -> None:
    """A scan of one row is estimated as costly, and compiling it would take a tenth of a second."""
    database = Database(settings.database_url)
    if database.path is None:
        sql, _parameters = namespace_statements.VOLUME.compiled(database.dialect)
        with database.reader() as connection:
            plan = [row[0] for row in connection.execute(f"EXPLAIN ANALYZE {sql}")]
        assert any("Seq Scan" in step for step in plan)
        assert not any("JIT" in step for step in plan)
    database.close()
