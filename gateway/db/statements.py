"""SQL of the hot path: SQLAlchemy Core, compiled once per engine, executed on the DBAPI.

Going through SQLAlchemy at every call costs ten times the query itself; compiling here keeps one
source for column names and both dialects without paying for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    String,
    bindparam,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Executable
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.functions import FunctionElement

from gateway.db import models
from gateway.types import Attr


class Statement:
    """One statement, executed with a dict of named parameters."""

    def __init__(self, expression: Executable) -> None:
        self._expression = expression
        self._compiled: dict[str, tuple[str, dict[str, Any]]] = {}

    def compiled(self, dialect: Dialect) -> tuple[str, dict[str, Any]]:
        """SQL text and the parameters that have a fixed value."""
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
        """The only row, or None."""
        row: Sequence[Any] | None = self._execute(statement, params).fetchone()
        return row

    def all(self, statement: Statement, **params: Any) -> list[Sequence[Any]]:
        """All rows."""
        rows: list[Sequence[Any]] = self._execute(statement, params).fetchall()
        return rows

    def run(self, statement: Statement, **params: Any) -> int:
        """Number of rows changed."""
        count: int = self._execute(statement, params).rowcount
        return count


def b(name: str) -> Any:
    """A parameter given at execution."""
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
    """A table whose rows are given at execution, so that one statement serves many rows.
    ``rows_of`` makes the parameter.

    Parameters: name, of the parameter; columns, of the table, with their types.
    """
    value = _JsonArray(bindparam(name, type_=String)).table_valued("value").c.value
    cells = {column: value.op("->>")(literal_column(str(n))) for n, column in enumerate(columns)}
    return select(
        *(
            (cast(cell, BigInteger) if columns[column] is int else cell).label(column)
            for column, cell in cells.items()
        )
    ).subquery(name)


def rows_of(rows: Sequence[Sequence[int | str | None]]) -> str:
    """The rows of a ``given`` table, as its parameter."""
    return json.dumps(rows)


volume: Any = models.Volume.__table__
inode: Any = models.Inode.__table__
dirent: Any = models.Dirent.__table__
xattr: Any = models.Xattr.__table__
object_: Any = models.Object.__table__
digest: Any = models.Digest.__table__
upload: Any = models.Upload.__table__
deletion: Any = models.Deletion.__table__
rekey: Any = models.Rekey.__table__
lease: Any = models.Lease.__table__
claim: Any = models.Claim.__table__
retry: Any = models.Retry.__table__
override: Any = models.Override.__table__
doubt: Any = models.Doubt.__table__
damage: Any = models.Damage.__table__

ATTR = [inode.c[name] for name in Attr._fields]

# volume
VOLUME_INSERT = Statement(insert(volume))
VOLUME = Statement(select(volume.c.fs_id, volume.c.boot))
VOLUME_BOOT = Statement(update(volume).values(boot=volume.c.boot + 1))
IDENTITY = Statement(
    select(volume.c.fs_id, volume.c.gateway, volume.c.mark, volume.c.bucket, volume.c.prefix)
)
MARK = Statement(update(volume).values(gateway=b("gateway"), mark=b("mark")))
BUCKET = Statement(update(volume).values(bucket=b("bucket"), prefix=b("prefix")))
RESERVE = Statement(
    update(volume)
    .values(next_ino=volume.c.next_ino + b("inos"), next_cookie=volume.c.next_cookie + b("cookies"))
    .returning(volume.c.next_ino, volume.c.next_cookie)
)

# inode
GET = Statement(select(*ATTR).where(inode.c.ino == b("ino")))
PARENT = Statement(select(inode.c.parent).where(inode.c.ino == b("ino"), inode.c.kind == 7))
TARGET = Statement(select(inode.c.target, inode.c.kind).where(inode.c.ino == b("ino")))
VERIFIER = Statement(select(inode.c.verifier).where(inode.c.ino == b("ino")))
INODE_INSERT = Statement(insert(inode))
INODE_DELETE = Statement(delete(inode).where(inode.c.ino == b("the_ino"), inode.c.nlink == 0))
SETATTR = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        mode=b("mode"),
        uid=b("uid"),
        gid=b("gid"),
        atime_ns=b("atime_ns"),
        mtime_ns=b("mtime_ns"),
        ctime_ns=b("ctime_ns"),
        change=inode.c.change + 1,
    )
    .returning(*ATTR)
)
NLINK = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(nlink=inode.c.nlink + b("delta"), ctime_ns=b("now_ns"), change=inode.c.change + 1)
    .returning(*ATTR)
)
DIRECTORY_CHANGED = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        nlink=inode.c.nlink + b("delta"),
        mtime_ns=b("now_ns"),
        ctime_ns=b("now_ns"),
        change=inode.c.change + 1,
    )
    .returning(*ATTR)
)
REPARENT = Statement(
    update(inode).where(inode.c.ino == b("the_ino")).values(parent=b("new_parent"))
)
OPEN_WRITE = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"), inode.c.kind == 1)
    .values(
        write_open=1,
        content_version=inode.c.content_version + 1,
        change=inode.c.change + 1,
    )
    .returning(*ATTR)
)
SEAL = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        write_open=0,
        # One that is not open was sealed before, and its version may be in the bucket: these bytes
        # are of another one.
        content_version=inode.c.content_version + 1 - inode.c.write_open,
        size=b("size"),
        used=b("used"),
        mtime_ns=b("mtime_ns"),
        # Clients can set mtime, also into the future; never ctime.
        ctime_ns=case(
            (inode.c.ctime_ns < b("written_ns"), b("written_ns")), else_=inode.c.ctime_ns
        ),
        change=inode.c.change + b("writes"),
        drain_after_ns=b("drain_after_ns"),
    )
    .returning(*ATTR)
)
SEAL_UNCHANGED = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"), inode.c.write_open == 1)
    .values(write_open=0, drain_after_ns=b("drain_after_ns"))
    .returning(inode.c.drained_version, *ATTR)
)
SAME_CONTENT = Statement(
    update(inode)
    .where(
        inode.c.ino == b("the_ino"),
        inode.c.drained_version > 0,
        inode.c.drained_version == inode.c.content_version - 1,
    )
    .values(drained_version=inode.c.content_version)
)
SAME_CONTENT_OBJECT = Statement(
    update(object_)
    .where(object_.c.ino == b("the_ino"))
    .values(
        content_version=select(inode.c.content_version)
        .where(inode.c.ino == b("the_ino"), inode.c.drained_version == inode.c.content_version)
        .scalar_subquery()
    )
)
# Literals, word for word those of the partial indexes: a parameter would not match them.
WRITE_OPEN = Statement(
    select(inode.c.ino, inode.c.epoch, inode.c.size, inode.c.mtime_ns).where(
        inode.c.write_open == literal_column("1"),
        ~exists().where(damage.c.ino == inode.c.ino),
    )
)
"""Those that a start may seal: of a damaged file the data file is not the truth."""
# An orphan that owns an object is a contradiction: fsck reports it, and its bytes are spared.
ORPHANS = Statement(
    select(inode.c.ino, inode.c.epoch).where(
        inode.c.nlink == literal_column("0"),
        ~exists().where(object_.c.ino == inode.c.ino),
    )
)
FILES_WITH_BYTES = Statement(
    select(inode.c.ino, inode.c.epoch)
    .where(
        inode.c.kind == literal_column("1"),
        inode.c.residency == literal_column("2"),
        inode.c.size > 0,
        inode.c.nlink > 0,
        inode.c.ino > 0,
    )
    .order_by(inode.c.ino)
    .limit(b("most"))
)

DIRTY_BYTES = Statement(
    select(func.coalesce(func.sum(inode.c.used), 0)).where(
        inode.c.kind == literal_column("1"), inode.c.content_version > inode.c.drained_version
    )
)

# damage
CONTENT_VERSION = Statement(select(inode.c.content_version).where(inode.c.ino == b("ino")))
DAMAGES = Statement(
    select(damage.c.ino).where(damage.c.ino > b("after")).order_by(damage.c.ino).limit(b("most"))
)
DAMAGE_INSERT = Statement(insert(damage))
DAMAGE_DELETE = Statement(delete(damage).where(damage.c.ino == b("the_ino")))

# dirent
LOOKUP = Statement(
    select(*ATTR)
    .select_from(dirent.join(inode, dirent.c.ino == inode.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.name == b("name"))
)
ENTRY = Statement(
    select(dirent.c.ino).where(dirent.c.parent == b("parent"), dirent.c.name == b("name"))
)
ANY_ENTRY = Statement(select(dirent.c.ino).where(dirent.c.parent == b("parent")).limit(1))
READDIR = Statement(
    select(dirent.c.cookie, dirent.c.name, *ATTR)
    .select_from(dirent.join(inode, dirent.c.ino == inode.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.cookie > b("cookie"))
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
DIRENT_INSERT = Statement(insert(dirent))
DIRENT_DELETE = Statement(
    delete(dirent).where(dirent.c.parent == b("the_parent"), dirent.c.name == b("the_name"))
)
DIRENT_MOVE = Statement(
    update(dirent)
    .where(dirent.c.parent == b("the_parent"), dirent.c.name == b("the_name"))
    .values(parent=b("new_parent"), name=b("new_name"), cookie=b("new_cookie"))
)
DIRENT_REPLACE = Statement(
    update(dirent)
    .where(dirent.c.parent == b("the_parent"), dirent.c.name == b("the_name"))
    .values(ino=b("new_ino"))
)
NAMES = Statement(
    select(dirent.c.parent, dirent.c.name).where(dirent.c.ino == b("ino")).order_by(dirent.c.cookie)
)

# xattr
XATTR = Statement(select(xattr.c.value).where(xattr.c.ino == b("ino"), xattr.c.name == b("name")))
XATTRS = Statement(select(xattr.c.name).where(xattr.c.ino == b("ino")).order_by(xattr.c.name))
XATTR_INSERT = Statement(insert(xattr))
XATTR_UPDATE = Statement(
    update(xattr)
    .where(xattr.c.ino == b("the_ino"), xattr.c.name == b("the_name"))
    .values(value=b("value"))
)
XATTR_DELETE = Statement(
    delete(xattr).where(xattr.c.ino == b("the_ino"), xattr.c.name == b("the_name"))
)

# what the bucket must hear of
ANYTHING_DRAINED = Statement(
    select(literal_column("1")).where(
        or_(
            exists().where(object_.c.ino > 0),
            exists().where(upload.c.ino > 0),
            exists().where(deletion.c.key > ""),
        )
    )
)
OBJECT_KEY = Statement(
    select(object_.c.key, object_.c.content_version, object_.c.etag).where(
        object_.c.ino == b("ino")
    )
)
OBJECT_DELETE = Statement(delete(object_).where(object_.c.ino == b("the_ino")))


class Licence(NamedTuple):
    """A row of ``deletion``: what this inode had at the key up to this version is garbage."""

    key: str
    ino: int
    content_version: int
    etag: str | None
    generation: int
    """Of the inode; 0: not known."""

    def with_earlier(self, before: Licence) -> Licence:
        """This licence, and what an earlier one for the same inode and key allows."""
        if 0 not in (before.generation, self.generation) and before.generation != self.generation:
            # The number was given again: it is another file, whose object was replaced.
            return self
        generation = self.generation or before.generation
        # An interrupted upload of a later version may be what is there.
        newest = before if before.content_version > self.content_version else self
        return newest._replace(generation=generation)


LICENCE = Statement(
    select(*[deletion.c[name] for name in Licence._fields]).where(
        deletion.c.key == b("key"), deletion.c.ino == b("ino")
    )
)
LICENCE_DELETE = Statement(
    delete(deletion).where(deletion.c.key == b("the_key"), deletion.c.ino == b("the_ino"))
)
DELETION_INSERT = Statement(insert(deletion))
REKEY = Statement(select(rekey.c.ino).where(rekey.c.ino == b("ino")))
REKEY_INSERT = Statement(insert(rekey))
REKEY_DELETE = Statement(delete(rekey).where(rekey.c.ino == b("the_ino")))


def license_deletion(
    session: Session,
    now_ns: int,
    key: str,
    ino: int,
    content_version: int,
    etag: str | None,
    generation: int,
) -> None:
    """Record that what an inode had at a key, up to a version, is garbage.

    Parameters: generation, of the inode; 0: not known.
    """
    licence = Licence(key, ino, content_version, etag, generation)
    if (before := session.one(LICENCE, key=key, ino=ino)) is not None:
        licence = licence.with_earlier(Licence(*before))
    session.run(LICENCE_DELETE, the_key=key, the_ino=ino)
    session.run(DELETION_INSERT, **licence._asdict(), deleted_ns=now_ns)
