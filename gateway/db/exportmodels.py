"""Declares the table of exports.

``Base`` is that of all tables: who needs every table imports it from here.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, String

from gateway.db.declare import Mapped, mapped_column
from gateway.db.retentionmodels import Base

__all__ = ["Base"]


class Export(Base):
    """A version of an export. Rows are only added: the highest version of a name is in force."""

    __tablename__ = "export"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    """The path that clients mount."""
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int]
    """Ganesha's Export_Id. It belongs to one name and one directory for ever."""
    directory: Mapped[int]
    """The inode of its root, which may be gone."""
    document: Mapped[str | None] = mapped_column(String)
    """JSON: clients and squash. NULL: the export was removed."""
    created_ns: Mapped[int]
    author: Mapped[str] = mapped_column(String)

    __table_args__ = (
        CheckConstraint("version >= 1", name="version"),
        CheckConstraint("number >= 2 AND number <= 65535", name="number"),
    )
