"""Compiles statements of SQLAlchemy Core once per engine, and executes them on the DBAPI.

A call through SQLAlchemy costs ten times the query itself. Compiled statements avoid this cost, and
column names and both dialects still have one source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, String, bindparam, cast, literal_column, select
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Executable
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.functions import FunctionElement


class Statement:
    """One statement, executed with a dict of named parameters."""

    def __init__(self, expression: Executable) -> None:
        self._expression = expression
        self._compiled: dict[str, tuple[str, dict[str, Any]]] = {}

    def compiled(self, dialect: Dialect) -> tuple[str, dict[str, Any]]:
        """Return the SQL text and the parameters that have a fixed value."""
        try:
            return self._compiled[dialect.name]
        except KeyError:
            assert isinstance(self._expression, ClauseElement)
            compiled = self._expression.compile(dialect=dialect)
            fixed = {k: v for k, v in (compiled.params or {}).items() if v is not None}
            result = (str(compiled), fixed)
            self._compiled[dialect.name] = result
            return result


class Session:
    """Executes statements on one DBAPI connection. Rows are plain tuples."""

    __slots__ = ("_connection", "_dialect")

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self._connection = connection
        self._dialect = dialect

    def _execute(self, statement: Statement, params: dict[str, Any]) -> Any:
        sql, fixed = statement.compiled(self._dialect)
        return self._connection.execute(sql, {**fixed, **params} if fixed else params)

    def one(self, statement: Statement, **params: Any) -> Sequence[Any] | None:
        """Return the only row, or None."""
        row: Sequence[Any] | None = self._execute(statement, params).fetchone()
        return row

    def all(self, statement: Statement, **params: Any) -> list[Sequence[Any]]:
        """Return all rows."""
        rows: list[Sequence[Any]] = self._execute(statement, params).fetchall()
        return rows

    def run(self, statement: Statement, **params: Any) -> int:
        """Run a change. Returns the number of changed rows."""
        count: int = self._execute(statement, params).rowcount
        return count

    def run_each(self, statement: Statement, rows: Sequence[dict[str, Any]]) -> None:
        """Once for each row; for what ``given`` cannot hold (bytes)."""
        sql, fixed = statement.compiled(self._dialect)
        if rows:
            self._connection.cursor().executemany(sql, [{**fixed, **row} for row in rows])


def b(name: str) -> Any:
    """Return a parameter whose value is given at execution."""
    return bindparam(name)


class _JsonArray(FunctionElement[Any]):
    """The elements of a JSON array, as a table with the column ``value``."""

    inherit_cache = True


@compiles(_JsonArray, "sqlite")
def _(element: _JsonArray, compiler: Any, **how: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **how)})"


@compiles(_JsonArray, "postgresql")
def _(element: _JsonArray, compiler: Any, **how: Any) -> str:
    return f"json_array_elements(CAST({compiler.process(element.clauses, **how)} AS json))"


def given(name: str, /, **columns: type[int] | type[str]) -> Any:
    """Return a table whose rows are given at execution, so that one statement serves many rows.

    ``rows_of`` makes the value of the parameter.

    Parameters: name of the parameter; columns of the table, with their types.
    """
    value = _JsonArray(bindparam(name, type_=String)).table_valued("value").c.value
    cells = {column: value.op("->>")(literal_column(str(n))) for n, column in enumerate(columns)}
    return select(
        *(
            (cast(cell, BigInteger) if columns[column] is int else cell).label(column)
            for column, cell in cells.items()
        )
    ).subquery(name)


def given_numbers(name: str, /) -> Any:
    """``given`` with one column of integers, ``value``, which costs a third. ``numbers_of`` makes
    the parameter."""
    value = _JsonArray(bindparam(name, type_=String)).table_valued("value").c.value
    return select(cast(cast(value, String), BigInteger).label("value")).subquery(name)


def numbers_of(numbers: Iterable[int]) -> str:
    """Integers as one text, which a statement can take for a table (``given_numbers``)."""
    return json.dumps(list(numbers))


def numbers_in(text: str) -> list[int]:
    """The integers of a text of ``numbers_of``."""
    found: list[int] = json.loads(text)
    return found


def rows_of(rows: Sequence[Sequence[int | str | None]]) -> str:
    """Return the rows of a ``given`` table as the value of its parameter."""
    return json.dumps(rows)
