"""Declares tables as classes, with an attribute for each column, in the words of SQLAlchemy's ORM.

Nothing else of the ORM is used, and its import and its mapping were a fifth of the time that a
command, or a process of ``spillway up``, takes to start.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import Column, Index, MetaData, Table, text
from sqlalchemy.types import TypeEngine

T = TypeVar("T")


class Mapped(Generic[T]):
    """The annotation of a column. It gives the type, and allows NULL if it names None."""


def mapped_column(*arguments: Any, **options: Any) -> Any:
    """Declare more of a column: the arguments and options of ``sqlalchemy.Column``."""
    return arguments, options


def partial_index(name: str, *columns: str, where: str) -> Index:
    """Declare an index of some rows, the same on both engines. SQLite uses it for a statement that
    has the same words as ``where``."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class DeclarativeBase:
    """The base of all tables of one schema. A subclass with a ``__tablename__`` is a table."""

    metadata: ClassVar[MetaData]
    type_annotation_map: ClassVar[dict[type, Any]]
    """The column's type, by the type in its annotation."""
    __tablename__: ClassVar[str]
    __table_args__: ClassVar[tuple[Any, ...]] = ()
    """Constraints and indexes, and at the end perhaps a dict of the table's options."""
    __table__: ClassVar[Table]

    def __init_subclass__(cls) -> None:
        if "__tablename__" not in vars(cls):
            return
        columns = [cls._column(*item) for item in cls.__annotations__.items()]
        rest = list(cls.__table_args__)
        options = rest.pop() if rest and isinstance(rest[-1], dict) else {}
        cls.__table__ = Table(cls.__tablename__, cls.metadata, *columns, *rest, **options)

    @classmethod
    def _column(cls, name: str, annotation: str) -> Column[Any]:
        """Make a column. The annotation is text: ``Mapped[int]``, ``Mapped[str | None]``."""
        arguments, options = vars(cls).get(name, ((), {}))
        kind, _, null = annotation.removeprefix("Mapped[").removesuffix("]").partition(" | ")
        if not any(isinstance(one, (type, TypeEngine)) for one in arguments):
            types = {one.__name__: made for one, made in cls.type_annotation_map.items()}
            arguments = (types[kind], *arguments)
        return Column(name, *arguments, **{"nullable": null == "None", **options})
