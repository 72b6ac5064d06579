"""SQL of the catalogue, built like gateway.db.statements."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, delete, exists, func, insert, literal_column, select, update

from gateway.db.compiled import Statement, b, given_numbers
from gateway.db.drain_models import HYDRATE
from gateway.db.statements import (
    DIRECTORY_TREE,
    IS_DIRECTORY,
    IS_LISTED,
    catalogue,
    checkpoint,
    checkpoint_record,
    dirent,
    inode,
    object_,
    retry,
)
from gateway.namespace.residency import HAS_CONTENT, IS_CERTAIN, IS_DRAINED

ENTRY_COLUMNS = (
    inode.c.ino,
    inode.c.kind,
    inode.c.size,
    inode.c.write_open,
    inode.c.change,
    inode.c.content_version,
    inode.c.epoch,
    inode.c.residency,
)
"""The columns of a ``facts.Entry``."""
_NAMED = dirent.join(inode, inode.c.ino == dirent.c.ino)
ENTRY = Statement(
    select(*ENTRY_COLUMNS)
    .select_from(_NAMED)
    .where(dirent.c.parent == b("parent"), dirent.c.name == b("name"))
)
_INOS = given_numbers("inos")
NAMES = Statement(
    select(dirent.c.parent, dirent.c.name, *ENTRY_COLUMNS)
    .select_from(
        _INOS.join(inode, inode.c.ino == _INOS.c.value).outerjoin(
            dirent, dirent.c.ino == inode.c.ino
        )
    )
    .where(inode.c.nlink > 0)
    .order_by(inode.c.ino, dirent.c.cookie)
)
"""Selects the names of inodes. The root has none."""
INODE = Statement(select(*ENTRY_COLUMNS).where(inode.c.ino == b("ino"), inode.c.nlink > 0))
ENDING = Statement(
    select(dirent.c.name)
    .where(
        dirent.c.parent == b("parent"),
        func.substr(dirent.c.name, func.length(dirent.c.name) - b("before_end")) == b("name_end"),
    )
    .order_by(dirent.c.name)
    .limit(b("most"))
)
"""Selects the names in a directory that end so. The parameters are parent, name_end, most, and
before_end, the length of the end less one."""
STARTING = Statement(
    select(dirent.c.name)
    .where(dirent.c.parent == b("parent"), dirent.c.name >= b("name_start"))
    .order_by(dirent.c.name)
    .limit(b("most"))
)
"""Selects names in a directory from one on. Those that begin so are the first of them."""
_IS_READABLE = ~exists().where(
    retry.c.work == literal_column(f"'{HYDRATE}'"), retry.c.ino == inode.c.ino
)
"""No fetch of the file has found its object missing or damaged."""
FETCH_FAILED = Statement(
    select(retry.c.error).where(
        retry.c.work == literal_column(f"'{HYDRATE}'"), retry.c.ino == b("ino")
    )
)
"""Selects why a file could not be fetched from the bucket."""
IS_STORED = and_(*IS_DRAINED, *HAS_CONTENT, *IS_CERTAIN, _IS_READABLE)
"""The bucket has the present version of the file, at the key of its object's row, as far as is
known."""
_STORED_COLUMNS = (
    inode.c.ctime_ns,
    IS_STORED.label("is_stored"),
    object_.c.key,
    object_.c.stored_ns,
    object_.c.storage_class,
)
MEMBERS = Statement(
    select(dirent.c.name, *_STORED_COLUMNS, *ENTRY_COLUMNS)
    .select_from(_NAMED.outerjoin(object_, object_.c.ino == inode.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"), IS_LISTED)
    .order_by(dirent.c.name)
    .limit(b("most"))
)
ENTRIES = Statement(
    select(dirent.c.name, *ENTRY_COLUMNS)
    .select_from(_NAMED)
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"), IS_LISTED)
    .order_by(dirent.c.name)
    .limit(b("most"))
)
DIRECTORIES = Statement(
    select(dirent.c.name, *ENTRY_COLUMNS)
    .select_from(_NAMED)
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"), IS_LISTED, IS_DIRECTORY)
    .order_by(dirent.c.name)
    .limit(b("most"))
)
STORED = Statement(
    select(*_STORED_COLUMNS)
    .select_from(inode.outerjoin(object_, object_.c.ino == inode.c.ino))
    .where(inode.c.ino == b("ino"))
)

_COLUMNS = [column.name for column in checkpoint.c]
ROW = Statement(select(checkpoint).where(checkpoint.c.ino == b("ino")))
RULE = Statement(
    select(checkpoint.c.rule, checkpoint.c.extent, checkpoint.c.state).where(
        checkpoint.c.ino == b("ino")
    )
)
ROWS = Statement(
    select(checkpoint)
    .where(checkpoint.c.ino > b("after"))
    .order_by(checkpoint.c.ino)
    .limit(b("most"))
)
ROW_DELETE = Statement(delete(checkpoint).where(checkpoint.c.ino == b("the_ino")))
ROW_INSERT = Statement(
    insert(checkpoint).from_select(
        _COLUMNS,
        select(*(bindparam(name, type_=checkpoint.c[name].type) for name in _COLUMNS)).where(
            exists().where(inode.c.ino == b("the_ino"), inode.c.nlink > 0)
        ),
    )
)
"""Adds a row, unless the inode was removed meanwhile."""
record_columns = [column.name for column in checkpoint_record.c]
RECORD = Statement(select(checkpoint_record).where(checkpoint_record.c.ino == b("ino")))
RECORD_DELETE = Statement(delete(checkpoint_record).where(checkpoint_record.c.ino == b("the_ino")))
RECORD_INSERT = Statement(
    insert(checkpoint_record).from_select(
        record_columns,
        select(
            *(bindparam(name, type_=checkpoint_record.c[name].type) for name in record_columns)
        ).where(exists().where(inode.c.ino == b("the_ino"), inode.c.nlink > 0)),
    )
)
"""Adds a record, unless the inode was removed meanwhile."""
NEIGHBOURS = Statement(
    select(*(checkpoint_record.c[name] for name in ("ino", "step", "shape", "members")))
    .where(checkpoint_record.c.run == b("run"), checkpoint_record.c.ino != b("ino"))
    .order_by(checkpoint_record.c.complete_ns.desc(), checkpoint_record.c.ino.desc())
    .limit(b("most"))
)
"""Selects the newest records of a run, but for one."""
WRITING_OF = Statement(
    select(checkpoint.c.ino)
    .where(checkpoint.c.run == b("run"), checkpoint.c.state == literal_column("'writing'"))
    .order_by(checkpoint.c.ino)
    .limit(b("most"))
)
"""Selects the checkpoints of a run that are not complete."""
NO_PATTERN = Statement(
    update(checkpoint_record)
    .where(checkpoint_record.c.ino == b("the_ino"))
    .values(shape=literal_column("''"))
)
"""Has no other checkpoint be alike to one."""
LAST_COMPLETION = Statement(select(func.max(checkpoint_record.c.completion)))
UNNUMBERED = Statement(
    select(checkpoint_record.c.ino)
    .where(checkpoint_record.c.completion.is_(None))
    .order_by(checkpoint_record.c.complete_ns, checkpoint_record.c.step, checkpoint_record.c.ino)
)
NUMBER = Statement(
    update(checkpoint_record)
    .where(checkpoint_record.c.ino == b("the_ino"))
    .values(completion=b("the_number"))
)
COUNT = Statement(select(func.count()).select_from(checkpoint))
KNOWN = Statement(
    select(checkpoint.c.ino).select_from(_INOS.join(checkpoint, checkpoint.c.ino == _INOS.c.value))
)
"""Selects those of some inodes that are checkpoints."""
BESIDE = Statement(
    select(
        checkpoint.c.path,
        checkpoint.c.step,
        checkpoint.c.state,
        *ENTRY_COLUMNS,
    )
    .select_from(checkpoint.join(inode, inode.c.ino == checkpoint.c.ino))
    .where(checkpoint.c.parent == b("parent"), checkpoint.c.ino > b("after_ino"))
    .order_by(checkpoint.c.ino)
    .limit(b("most"))
)
"""Selects the checkpoints in a directory."""
BELOW = Statement(
    select(checkpoint.c.ino)
    .distinct()
    .select_from(
        DIRECTORY_TREE.join(dirent, dirent.c.parent == DIRECTORY_TREE.c.ino).join(
            checkpoint, checkpoint.c.ino == dirent.c.ino
        )
    )
)
"""Selects the checkpoints below a directory."""
DUE = Statement(
    select(checkpoint.c.ino, checkpoint.c.due_ns).where(checkpoint.c.due_ns.is_not(None))
)

MADE_WITH = Statement(select(catalogue.c.rules).where(catalogue.c.id == literal_column("1")))
MADE_WITH_DELETE = Statement(delete(catalogue))
MADE_WITH_INSERT = Statement(insert(catalogue))
