"""Tables of the namespace as the copy of the names has them: which rows, by what they are found,
and the form of their values.

Rows that belong to an inode are found by the journal, which names every inode that a transaction
touched. The others, which people and the catalogue write, are few: they are compared with what was
copied last. A test holds that each table is copied in one of these ways, or that it says
why it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import LargeBinary, Table, select

from gateway.db import checkpoint_models, drain_models, models
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.recovery.segments import JsonRow, TableForm

INOS_AT_ONCE = 1024
"""The inodes whose rows one query reads."""

_NO_NAMES = {
    ("volume", "fs_id"),
    ("volume", "gateway"),
    ("inode", "verifier"),
    ("xattr", "value"),
    ("block_digest", "crcs"),
    ("imported_object", "crcs"),
    ("checkpoint_record", "members"),
}
"""The columns of bytes that are neither names nor paths."""


class CopiedTable:
    """A table whose rows are copied.

    Args:
        table: of the namespace.
        ino: the column with the inode that a row belongs to. None: the rows are compared.
    """

    def __init__(self, table: Table, ino: str | None = None) -> None:
        self.name = table.name
        columns = [column.name for column in table.columns]
        of_bytes = [column.name for column in table.columns if isinstance(column.type, LargeBinary)]
        is_name = {column: (self.name, column) not in _NO_NAMES for column in of_bytes}
        key = [column.name for column in table.primary_key.columns]
        self.form = TableForm(
            columns,
            key,
            ino,
            [column for column in of_bytes if is_name[column]],
            [column for column in of_bytes if not is_name[column]],
        )
        self._key_at = [columns.index(column) for column in key]
        rows = select(*table.c)
        self._all = Statement(rows)
        if ino is not None:
            owner = table.c[ino]
            self._of_range = Statement(rows.where(owner > b("after"), owner <= b("last")))
            self._of_inos = Statement(rows.where(owner.in_(select(given_numbers("inos").c.value))))

    def of_range(self, session: Session, after: int, last: int) -> list[JsonRow]:
        """Return the rows of the inodes above one number, up to another one."""
        return self.form.encoded(session.all(self._of_range, after=after, last=last))

    def of_inos(self, session: Session, inos: Iterable[int]) -> list[JsonRow]:
        """Return the rows of some inodes, of INOS_AT_ONCE at most."""
        return self.form.encoded(session.all(self._of_inos, inos=numbers_of(inos)))

    def all(self, session: Session) -> list[JsonRow]:
        """Return all rows."""
        return self.form.encoded(session.all(self._all))

    def key(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return the primary key of a row."""
        return tuple(row[at] for at in self._key_at)


VOLUME = CopiedTable(models.VolumeTable.__table__)
"""Every segment has its row."""
INODE = CopiedTable(models.InodeTable.__table__, "ino")
BY_INODE = (
    INODE,
    CopiedTable(models.DirentTable.__table__, "ino"),
    CopiedTable(models.XattrTable.__table__, "ino"),
    CopiedTable(drain_models.ObjectTable.__table__, "ino"),
    CopiedTable(drain_models.BlockDigestTable.__table__, "ino"),
    CopiedTable(models.DamageTable.__table__, "ino"),
    CopiedTable(models.ImportedObjectTable.__table__, "ino"),
    CopiedTable(drain_models.QueueOrderTable.__table__, "ino"),
    CopiedTable(drain_models.TombstoneTable.__table__, "ino"),
    CopiedTable(drain_models.RekeyTable.__table__, "ino"),
    CopiedTable(checkpoint_models.PromotionMemberTable.__table__, "copy"),
)
"""In an order in which a row comes after those that it refers to, but for directories."""
COMPARED_OFTEN = tuple(
    CopiedTable(table.__table__)
    for table in (
        models.PinTable,
        models.ImportedPrefixTable,
        checkpoint_models.PolicyTable,
        checkpoint_models.PolicyApprovalTable,
        checkpoint_models.PromotionTable,
        checkpoint_models.ExportTable,
        checkpoint_models.TrashTable,
    )
)
"""What people said: compared before each segment."""
COMPARED_SELDOM = tuple(
    CopiedTable(table.__table__)
    for table in (
        checkpoint_models.CheckpointRecordTable,
        checkpoint_models.ManifestTable,
        checkpoint_models.ActionTable,
    )
)
"""What the catalogue remembers: compared once a minute."""
COMPARED = (*COMPARED_OFTEN, *COMPARED_SELDOM)
COPIED = {table.name: table for table in (VOLUME, *BY_INODE, *COMPARED)}
