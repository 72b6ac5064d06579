"""Mark of a database that a restore makes: a table that no schema has, until the restore has ended.

While it has no rows the names are being loaded, and nothing of the database is used. Then it has a
row for the moment of the names, and one for each file whose last version was only on the lost disk:
the report at the end needs them, also after a kill. No process of the gateway starts before that.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, MetaData, Table, inspect, text

from gateway.db.compiled import Statement
from gateway.db.engine import Database

TABLE = Table(
    "restore_unfinished",
    MetaData(),
    Column("ino", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
)
"""``version`` is the content version that was lost. The row with the number 0 has the time of
the names in its place."""
NAMES = 0
END = Statement(text(f"DROP TABLE IF EXISTS {TABLE.name}"))


def begin(database: Database) -> None:
    """Mark a database whose names are about to be loaded."""
    engine = database.engine()
    TABLE.create(engine, checkfirst=True)
    engine.dispose()


def is_there(database: Database) -> bool:
    """Return whether a database is marked."""
    engine = database.engine()
    try:
        return inspect(engine).has_table(TABLE.name)
    finally:
        engine.dispose()
