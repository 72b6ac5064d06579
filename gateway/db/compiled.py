"""Statements of SQLAlchemy Core, compiled once per engine and executed on the DBAPI.

A call through SQLAlchemy costs ten times the query itself. Compiled statements avoid this cost, and
column names and both dialects still have one source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, String, bindparam, cast, literal_column, select
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.functions import FunctionElement


class Compiled(NamedTuple):
    """A statement for one engine."""

    sql: str
    parameters: Callable[[dict[str, Any]], Any]
    """Returns what the driver takes, for the values that are given by name."""


class Statement:
    """One statement, executed with values that are given by name."""

    def __init__(self, expression: Executable) -> None:
        self.expression = expression
        self._compiled: dict[str, Compiled] = {}

    def compiled(self, dialect: Dialect) -> Compiled:
        try:
            return self._compiled[dialect.name]
        except KeyError:
            result = self._compiled[dialect.name] = self._compile(dialect)
            return result

    def _compile(self, dialect: Dialect) -> Compiled:
        assert isinstance(self.expression, ClauseElement)
        compiled = self.expression.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        fixed = {k: v for k, v in compiled.params.items() if v is not None}
        if compiled.positiontup is None:
            return Compiled(str(compiled), partial(_named, fixed))
        return Compiled(str(compiled), _in_order(compiled.positiontup, fixed))


def _named(fixed: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {**fixed, **given} if fixed else given


def _in_order(names: Sequence[str], fixed: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a function that puts values in the order of the statement's parameters.

    Args:
        names: names in that order.
        fixed: values that are not given.
    """
    if len(names) > 1:
        take = itemgetter(*names)
        return (lambda given: take({**fixed, **given})) if fixed else take
    if names and not fixed:
        # itemgetter makes no tuple of one value.
        [name] = names
        return lambda given: (given[name],)
    return lambda given: [{**fixed, **given}[name] for name in names]


class Session:
    """Executes statements on one DBAPI connection. Rows are plain tuples."""

    __slots__ = ("_connection", "_dialect")

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self._connection = connection
        self._dialect = dialect

    def _execute(self, statement: Statement, params: dict[str, Any]) -> Any:
        sql, parameters = statement.compiled(self._dialect)
        return self._connection.execute(sql, parameters(params))

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
        sql, parameters = statement.compiled(self._dialect)
        if rows:
            self._connection.cursor().executemany(sql, [parameters(row) for row in rows])


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

    Args:
        name: name of the parameter.
        columns: columns of the table, with their types.
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
    # Python writes a list of integers as JSON does, in a fifth of the time of json.dumps.
    return str(list(numbers))


def numbers_in(text: str) -> list[int]:
    """The integers of a text of ``numbers_of``."""
    numbers: list[int] = json.loads(text)
    return numbers


def rows_of(rows: Sequence[Sequence[int | str | None]]) -> str:
    """Return the rows of a ``given`` table as the value of its parameter."""
    return json.dumps(rows)
