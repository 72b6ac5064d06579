"""Load of segments into a database that has a schema and no rows.

Rows of a later segment replace those of an earlier one. What a base has of two moments may
contradict itself until the log is used: two files with one name, or a name in a directory that is
gone. So a row also replaces any other one that has its place, and references are not checked before
the end. Then rows that refer to nothing are counted and deleted: a whole log leaves none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Inspector, inspect

from gateway.common.errors import SchemaError
from gateway.db import schema
from gateway.db.engine import Connection, Database
from gateway.recovery.segments import BadSegment, SegmentHead, SegmentReader, TableForm

INO_MARGIN = 1 << 20
"""Numbers of inodes and cookies that are passed over: the lost gateway may have given them away
since the last segment."""


class _Reference(NamedTuple):
    """A foreign key."""

    table: str
    name: str
    columns: list[str]
    referred_table: str
    referred_columns: list[str]
    on_delete: str | None


@dataclass
class Loaded:
    """What was loaded."""

    segments: int = 0
    rows: int = 0
    """The rows of all segments. A later one may have replaced some."""
    broken: dict[str, int] = field(default_factory=dict)
    """By table, how many rows referred to what is not there. They are gone."""
    head: SegmentHead | None = None
    """The head of the last segment."""


def require_known(revision: str) -> None:
    """Require that this program knows a schema.

    Raises:
        SchemaError: it does not.
    """
    if revision not in schema.known():
        raise SchemaError(
            f"the copy has schema {revision}, which this program does not know: it was written by "
            "a newer Spillway; install that version"
        )


class Loader:
    """A load into one database, which nothing else uses. ``end`` makes it a namespace.

    Args:
        database: with the schema of the segments.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_sqlite = database.dialect.name == "sqlite"
        self._mark = "?" if self._is_sqlite else "%s"
        engine = database.engine()
        try:
            found = inspect(engine)
            self._references = _references(found)
            self._uniques = {name: _uniques(found, name) for name in found.get_table_names()}
        finally:
            engine.dispose()
        self._connection: Connection = database.connect(for_writing=True)
        if self._is_sqlite:
            # A load that is killed is begun again, so nothing need be durable before its end.
            for pragma in ("foreign_keys = OFF", "synchronous = OFF"):
                self._connection.execute(f"PRAGMA {pragma}")
        else:
            for reference in self._references:
                self._run(f"ALTER TABLE {reference.table} DROP CONSTRAINT {reference.name}")
        self.loaded = Loaded()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def use(self, segment: SegmentReader) -> None:
        """Load a segment, in one transaction.

        Raises:
            BadSegment: it is not whole. Nothing of it was loaded.
        """
        head = segment.head
        self._run("BEGIN")
        try:
            for line in segment.lines():
                self._use_line(head, line)
            self._run("COMMIT")
        except BaseException as exc:
            with suppress(*self._database.backend.errors):
                self._run("ROLLBACK")
            if isinstance(exc, (ValueError, KeyError, IndexError, TypeError)):
                raise BadSegment(f"a line cannot be understood: {exc}") from exc
            raise
        self.loaded.segments += 1
        self.loaded.head = head

    def _use_line(self, head: SegmentHead, line: Sequence[Any]) -> None:
        match line:
            case ["gone", inos]:
                for name, form in head.tables.items():
                    if form.ino is not None:
                        self._delete(name, [form.ino], [[ino] for ino in inos])
            case ["drop", name, None]:
                self._run(f"DELETE FROM {self._named(head, name)}")
            case ["drop", name, keys]:
                form = head.tables[name]
                self._delete(self._named(head, name), form.key, form.decoded_keys(keys))
            case ["rows", name, rows]:
                form = head.tables[name]
                self._insert(self._named(head, name), form, form.decoded(rows))
                self.loaded.rows += len(rows)
            case _:
                raise ValueError(f"an unknown line: {line[0]!r}")

    def _named(self, head: SegmentHead, name: str) -> str:
        """Return the name of a table, if a segment may have it."""
        if name not in head.tables or name not in self._uniques:
            raise ValueError(f"an unknown table: {name!r}")
        return name

    def _insert(self, name: str, form: TableForm, rows: Sequence[list[Any]]) -> None:
        columns = ", ".join(form.columns)
        marks = ", ".join([self._mark] * len(form.columns))
        values = f"{name} ({columns}) VALUES ({marks})"
        if self._is_sqlite:
            self._each(f"INSERT OR REPLACE INTO {values}", rows)
            return
        insert = f"INSERT INTO {values}"
        self._run("SAVEPOINT line")
        try:
            self._each(insert, rows)
        except self._database.backend.errors:
            self._run("ROLLBACK TO line")
            for unique in self._uniques[name]:
                at = [form.columns.index(column) for column in unique]
                self._delete(name, unique, [[row[i] for i in at] for row in rows])
            self._each(insert, rows)
        self._run("RELEASE line")

    def _delete(self, name: str, columns: Sequence[str], keys: Sequence[Sequence[Any]]) -> None:
        where = " AND ".join(f"{column} = {self._mark}" for column in columns)
        self._each(f"DELETE FROM {name} WHERE {where}", keys)

    def end(self) -> Loaded:
        """Put the volume row in, and check all references. From then on it is a namespace.

        Returns:
            What was loaded.

        Raises:
            BadSegment: no segment was used.
        """
        head = self.loaded.head
        if head is None:
            raise BadSegment("there is no segment")
        form = head.tables["volume"]
        [volume] = form.decoded([head.volume])
        for column in ("next_ino", "next_cookie"):
            volume[form.columns.index(column)] += INO_MARGIN
        self._run("BEGIN")
        # Rows that are deleted may leave others that referred to them.
        while broken := self._broken():
            for table, count in broken.items():
                self.loaded.broken[table] = self.loaded.broken.get(table, 0) + count
        self._insert("volume", form, [volume])
        if not self._is_sqlite:
            for reference in self._references:
                self._run(_constraint(reference))
        self._run("COMMIT")
        if self._is_sqlite:
            self._run("PRAGMA synchronous = FULL")
            self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.loaded

    def _broken(self) -> dict[str, int]:
        """Delete the rows that refer to nothing. Returns how many, by table."""
        broken: dict[str, int] = {}
        for reference in self._references:
            table, referred = reference.table, reference.referred_table
            pairs = zip(reference.columns, reference.referred_columns, strict=True)
            same = " AND ".join(f"r.{there} = {table}.{here}" for here, there in pairs)
            found = " AND ".join(f"{column} IS NOT NULL" for column in reference.columns)
            count = self._run(
                f"DELETE FROM {table} WHERE {found} "
                f"AND NOT EXISTS (SELECT 1 FROM {referred} r WHERE {same})"
            )
            if count:
                broken[table] = broken.get(table, 0) + count
        return broken

    def _run(self, text: str) -> int:
        count: int = self._connection.execute(text).rowcount
        return count

    def _each(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._connection.cursor().executemany(text, rows)


def _references(found: Inspector) -> list[_Reference]:
    return [
        _Reference(
            table,
            str(key["name"]),
            key["constrained_columns"],
            key["referred_table"],
            key["referred_columns"],
            key.get("options", {}).get("ondelete"),
        )
        for table in found.get_table_names()
        for key in found.get_foreign_keys(table)
    ]


def _uniques(found: Inspector, table: str) -> list[list[str]]:
    """Return the columns of the primary key, and of each unique index."""
    keys = [found.get_pk_constraint(table)["constrained_columns"]]
    keys += [unique["column_names"] for unique in found.get_unique_constraints(table)]
    keys += [
        [str(column) for column in index["column_names"]]
        for index in found.get_indexes(table)
        if index["unique"]
    ]
    return [key for at, key in enumerate(keys) if key and key not in keys[:at]]


def _constraint(reference: _Reference) -> str:
    columns, referred = ", ".join(reference.columns), ", ".join(reference.referred_columns)
    on_delete = f" ON DELETE {reference.on_delete}" if reference.on_delete else ""
    return (
        f"ALTER TABLE {reference.table} ADD CONSTRAINT {reference.name} FOREIGN KEY ({columns}) "
        f"REFERENCES {reference.referred_table} ({referred}){on_delete}"
    )
