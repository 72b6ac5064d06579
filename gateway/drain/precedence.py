"""Precedence of uploads: files that name others go into the bucket after what they name.

- **In a checkpoint** a file that names others (``.metadata``, an index, ``trainer_state.json``)
  waits while the checkpoint is being written, and while another file of it is not in the bucket as
  it is here, at its key. Of those that name others the inner ones go first, in one total order, so
  no two wait for each other. Where the catalogue knows no checkpoint, its directory counts, for
  what was sealed before it or soon after: a directory that is always written to ends no wait.
- **A tracker** beside checkpoints waits until the checkpoint that it names is durable.

What a killed save has left, and what a pattern holds, is waited for while it is open only. A file
that is open, damaged or held by a person is waited for: the bucket would name what is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import or_, select

from gateway.catalogue.facts import CheckpointState
from gateway.common import clock
from gateway.common.text import printable
from gateway.common.types import Extent, InodeKind
from gateway.config.acknowledge import Acknowledge
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.models import ROOT_INO
from gateway.db.statements import IS_REGULAR, checkpoint, damage, dirent, inode, object_, rekey
from gateway.drain.paths import Parts, Paths
from gateway.drain.rows import File
from gateway.namespace import trackers
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import way_up

PAGE = 1024
COUNTED = 1000
"""The files of an index of which so many are looked at."""
_REMOVED = b".nfs"
"""What the name of a file begins with that was removed while a client had it open."""

_INOS = given_numbers("inos")
RENAMED = Statement(
    select(rekey.c.ino).select_from(_INOS.join(rekey, rekey.c.ino == _INOS.c.value))
)
"""Selects those of some inodes whose rename has not reached the bucket."""
_ROWS = select(
    dirent.c.cookie,
    dirent.c.name,
    inode.c.ino,
    inode.c.kind,
    inode.c.content_version,
    inode.c.drained_version,
    inode.c.write_open,
    inode.c.drain_after_ns,
    object_.c.key,
    rekey.c.ino,
    damage.c.ino,
).select_from(
    dirent.join(inode, inode.c.ino == dirent.c.ino)
    .outerjoin(object_, object_.c.ino == inode.c.ino)
    .outerjoin(rekey, rekey.c.ino == inode.c.ino)
    .outerjoin(damage, damage.c.ino == inode.c.ino)
)
_CHILDREN = (
    _ROWS.where(dirent.c.parent == b("parent"), dirent.c.cookie > b("cookie"))
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
CHILDREN = Statement(_CHILDREN)
UNFINISHED = Statement(
    _CHILDREN.where(
        or_(
            inode.c.kind == int(InodeKind.DIRECTORY),
            inode.c.content_version > inode.c.drained_version,
            rekey.c.ino.is_not(None),
        )
    )
)
"""Selects the directories in a directory, and the files that the bucket may lack."""
NAMED = Statement(_ROWS.where(dirent.c.parent == b("parent"), dirent.c.name == b("name")))
DATA = Statement(
    _CHILDREN.where(IS_REGULAR, dirent.c.name > b("first_name"), dirent.c.name < b("end_name"))
)
"""Selects the files of an index."""


class NameRow(NamedTuple):
    """A name in a directory, with what is known of its inode."""

    cookie: int
    name: bytes
    ino: int
    kind: int
    content_version: int
    drained_version: int
    write_open: int
    drain_after_ns: int
    key: str | None
    renamed: int | None
    damaged: int | None


class DependentFile(NamedTuple):
    """The file that waits for others."""

    ino: int
    place: tuple[int, int, Parts] | None
    """Its place among the files that name others. None: it waits for those too."""
    until_ns: int | None = None
    """What was sealed later is not waited for. None: everything is."""


class MissingFile(NamedTuple):
    """A file that the bucket does not have as it is here."""

    ino: int
    path: Parts
    why: str
    """Why the drain does not send it. Empty: it does."""


class Lacking:
    """"""

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def named(self, directory: int, name: bytes) -> NameRow | None:
        """Return what a name in a directory leads to."""
        row = self._session.one(NAMED, parent=directory, name=name)
        return None if row is None else _row(row)

    def of_file(
        self, directory: int, above: Parts, target: NameRow, asker: DependentFile
    ) -> Iterator[MissingFile]:
        """Yield a file that the bucket lacks, and those of which it is the index.

        Args:
            above: the path of the directory.
        """
        moves = self._moves(directory)
        if (file := self._assess(target, (*above, target.name), asker, moves)) is not None:
            yield file
        if (data := trackers.data_of(target.name)) is not None:
            yield from self.of_index(directory, above, data, asker)

    def of_index(
        self, directory: int, above: Parts, data: bytes, asker: DependentFile
    ) -> Iterator[MissingFile]:
        """Yield the files of an index that the bucket lacks.

        Args:
            above: the path of the directory.
            data: what their names begin with.
        """
        moves = self._moves(directory)
        given = {"parent": directory, "cookie": 0, "first_name": data, "end_name": data + b"\xff"}
        for row in map(_row, self._session.all(DATA, **given, most=COUNTED)):
            if (file := self._assess(row, (*above, row.name), asker, moves)) is not None:
                yield file

    def below(
        self, top: int, above: Parts, asker: DependentFile, is_deep: bool, most: int | None = None
    ) -> Iterator[MissingFile]:
        """Yield the files in a directory that the bucket lacks and that an asker waits for.

        Args:
            above: the path of the directory.
            is_deep: whether those further below count.
            most: names that are looked at.
        """
        waiting, left = [(top, above, self._moves(top))], most
        while waiting:
            directory, path, moves = waiting.pop()
            statement = UNFINISHED if most is None and not moves else CHILDREN
            cookie = 0
            while left is None or left > 0:
                page = PAGE if left is None else min(PAGE, left)
                rows = self._session.all(statement, parent=directory, cookie=cookie, most=page)
                left = None if left is None else left - len(rows) - 1
                if moves:
                    self._paths.read_names(cells[2] for cells in rows)
                for row in map(_row, rows):
                    cookie, inner = row.cookie, (*path, row.name)
                    if row.kind == InodeKind.DIRECTORY and is_deep:
                        waiting.append((row.ino, inner, moves or row.renamed is not None))
                    elif (file := self._assess(row, inner, asker, moves)) is not None:
                        yield file
                if len(rows) < page:
                    break

    def _moves(self, directory: int) -> bool:
        """Return whether a rename of a directory, or of one above, has not reached the bucket."""
        way = [directory, *(parent for _ino, parent, _name in way_up(self._session, directory))]
        return bool(self._session.all(RENAMED, inos=numbers_of(way)))

    def _assess(
        self, row: NameRow, path: Parts, asker: DependentFile, moves: bool
    ) -> MissingFile | None:
        """Return a file that the bucket lacks and that an asker waits for, or None.

        Args:
            moves: whether its object may have the key of another path.
        """
        if row.kind != InodeKind.REGULAR or row.ino == asker.ino or row.name.startswith(_REMOVED):
            return None
        rank = trackers.rank_of(row.name)
        if rank is not None and asker.place is not None and place_of(path, rank) > asker.place:
            return None
        is_dirty = row.content_version > row.drained_version
        if not is_dirty:
            if row.key is None or not (moves or row.renamed is not None):
                return None
            key = self._paths.key_of(row.ino)
            return None if key in (None, row.key) else MissingFile(row.ino, path, "")
        since_ns = clock.now_ns() if row.write_open else row.drain_after_ns
        if asker.until_ns is not None and since_ns > asker.until_ns:
            return None
        why = "open" if row.write_open else "damaged" if row.damaged is not None else ""
        if self._paths.key_of(row.ino) is None:
            # What a pattern holds and no client writes is no part of what is named.
            if not row.write_open and not self._paths.is_held_by_order(row.ino):
                return None
            why = why or "held"
        return MissingFile(row.ino, path, why)


def place_of(parts: Parts, rank: int) -> tuple[int, int, Parts]:
    """Return the place of a file among those that name others: inner ones go first."""
    return -len(parts), rank, parts


def _row(cells: Sequence[Any]) -> NameRow:
    cookie, name, *others = cells
    return NameRow(cookie, bytes(name), *others)


"""Files that are waited for are counted up to this many."""
NAMES_MAX = 4096
"""The names that are looked at where the catalogue knows no checkpoint: such a directory may be
that of all jobs."""
SOON_NS = 300 * clock.NS
"""Where the catalogue knows no checkpoint, what is sealed later than this after a file is not what
the file names."""

CHECKPOINTS = Statement(
    select(
        checkpoint.c.ino, checkpoint.c.extent, checkpoint.c.state, checkpoint.c.reason
    ).select_from(_INOS.join(checkpoint, checkpoint.c.ino == _INOS.c.value))
)
"""Selects those of some inodes that are checkpoints."""
_BESIDE = (
    select(checkpoint.c.ino)
    .where(checkpoint.c.parent == b("parent"))
    .order_by(checkpoint.c.ino.desc())
    .limit(1)
)
OF_STEP = Statement(_BESIDE.where(checkpoint.c.step == b("step")))
NOT_DURABLE = Statement(_BESIDE.where(checkpoint.c.state != str(CheckpointState.DURABLE)))


class Wait(NamedTuple):
    """Why a file is not sent yet."""

    reason: str
    on: int
    """The inode that must change before the wait ends."""
    is_under_way: bool
    """Whether the drain itself brings nearer what is waited for."""


class _Checkpoint(NamedTuple):
    ino: int
    extent: int
    state: str
    reason: str | None


class Precedence:
    """The waits of one transaction.

    Args:
        files: the data files.
        acknowledge: the rules about files that clients wait for.
    """

    def __init__(
        self, session: Session, paths: Paths, files: DataFiles, acknowledge: Acknowledge
    ) -> None:
        self._session = session
        self._paths = paths
        self._files = files
        self._acknowledge = acknowledge
        self._lacking = Lacking(session, paths)

    def wait_of(self, file: File, text: bytes | None = None) -> Wait | None:
        """Return what a file waits for, or None if it may be sent.

        Args:
            text: the bytes that would be sent, or None to read them from the disk.
        """
        home = self._paths.home_of(file.ino)
        if home is None:
            return None
        directory, (*names, name) = home
        above = tuple(names)
        if (data := trackers.data_of(name)) is not None:
            asker = DependentFile(file.ino, None)
            return _waits(self._lacking.of_index(directory, above, data, asker))
        rank = trackers.rank_of(name)
        if rank is None:
            return None
        way = [directory, *(parent for _ino, parent, _name in way_up(self._session, directory))]
        own_checkpoint = self._checkpoint(way)
        is_tree = own_checkpoint is not None and own_checkpoint.extent == Extent.TREE
        if trackers.is_tracker(name) and not is_tree:
            return self._of_tracker(file, directory, (*above, name), text)
        asker = DependentFile(file.ino, place_of((*above, name), rank))
        if own_checkpoint is None:
            asker = asker._replace(until_ns=_until_ns(file))
            is_deep = directory != ROOT_INO
            return _waits(self._lacking.below(directory, above, asker, is_deep, NAMES_MAX))
        # A client that waits for this file in a CLOSE may be the one that has to write the rest.
        is_half = own_checkpoint.state in (CheckpointState.WRITING, CheckpointState.BROKEN)
        if is_half and not self._acknowledge.covers((*above, name)):
            reason = f"its checkpoint is {own_checkpoint.state}: {own_checkpoint.reason}"
            return Wait(reason, own_checkpoint.ino, is_under_way=False)
        top = above[: len(above) - way.index(own_checkpoint.ino)]
        return _waits(self._lacking.below(own_checkpoint.ino, top, asker, is_tree))

    def _checkpoint(self, way: Sequence[int]) -> _Checkpoint | None:
        """Return the checkpoint that the files of a directory belong to.

        Args:
            way: the directory and all above it.
        """
        rows = self._session.all(CHECKPOINTS, inos=numbers_of(way))
        checkpoints = {row[0]: _Checkpoint(*row) for row in rows}
        for ino in way:
            known_checkpoint = checkpoints.get(ino)
            if known_checkpoint is not None and (
                known_checkpoint.extent == Extent.TREE or ino == way[0]
            ):
                return known_checkpoint
        return None

    def _of_tracker(
        self, file: File, directory: int, parts: Parts, text: bytes | None
    ) -> Wait | None:
        if file.size > trackers.TRACKER_MAX_BYTES:
            return None
        if text is None and not file.is_resident:
            return self._of_absent(directory)
        if text is None:
            text = self._text(file)
        named = None if text is None else trackers.named_by(parts[-1], text)
        if named is None:
            return None
        target = self._target(directory, named)
        if target is not None and target.ino != file.ino:
            return self._of_target(file, directory, parts[:-1], target)
        if target is not None or not named.is_certain:
            return None
        reason = f"it names {printable(named.names[0])}, which is not there"
        return Wait(reason, directory, is_under_way=False)

    def _of_target(self, file: File, directory: int, above: Parts, target: NameRow) -> Wait | None:
        """Return the wait of a tracker for what it names."""
        asker = DependentFile(file.ino, None)
        target_checkpoint = self._checkpoint((target.ino,))
        if target_checkpoint is None:
            asker = asker._replace(until_ns=_until_ns(file))
        elif target_checkpoint.state != CheckpointState.DURABLE:
            reason = f"it names {printable(target.name)}, which is {target_checkpoint.state}"
            is_under_way = target_checkpoint.state in (
                CheckpointState.COMPLETE,
                CheckpointState.DRAINING,
            )
            return Wait(reason, target_checkpoint.ino, is_under_way)
        # The catalogue follows the namespace: it may not know of a change yet.
        if target.kind != InodeKind.DIRECTORY:
            return _waits(self._lacking.of_file(directory, above, target, asker))
        is_deep = target_checkpoint is None or target_checkpoint.extent == Extent.TREE
        most = NAMES_MAX if target_checkpoint is None else None
        inside = (*above, target.name)
        return _waits(self._lacking.below(target.ino, inside, asker, is_deep, most))

    def _of_absent(self, directory: int) -> Wait | None:
        """Return the wait of a tracker whose bytes are only in the bucket: it may name any of the
        checkpoints beside it."""
        row = self._session.one(NOT_DURABLE, parent=directory)
        if row is None:
            return None
        reason = "what it names is not known, because its bytes are only in the bucket: bring them "
        return Wait(reason + "to the disk: spillway warm", row[0], is_under_way=False)

    def _text(self, file: File) -> bytes | None:
        """Return what a tracker says, or None if its bytes cannot be read now."""
        if file.write_open:
            return None
        try:
            return self._files.path(file.ino, file.epoch).read_bytes()
        except OSError:
            return None

    def _target(self, directory: int, named: trackers.TrackedName) -> NameRow | None:
        """Return what a tracker means."""
        for name in named.names:
            name_row = self._lacking.named(directory, name)
            if name_row is not None and name_row.kind in (InodeKind.DIRECTORY, InodeKind.REGULAR):
                return name_row
        row = None
        if named.step is not None:
            row = self._session.one(OF_STEP, parent=directory, step=named.step)
        for parent, name in () if row is None else self._session.all(sql.NAMES, ino=row[0]):
            if parent == directory:
                return self._lacking.named(parent, bytes(name))
        return None


def _until_ns(file: File) -> int:
    return (clock.now_ns() if file.write_open else file.drain_after_ns) + SOON_NS


def _waits(lacking: Iterator[MissingFile]) -> Wait | None:
    """Return the wait for files."""
    files = list(islice(lacking, COUNTED))
    if not files:
        return None
    # What is sent last is probably the last one: the wait is looked at when the bucket has it.
    sent = [file for file in files if not file.why]
    shown = next((file for file in files if file.why), files[-1])
    path = printable(b"/".join(shown.path)) + (f" ({shown.why})" if shown.why else "")
    if len(files) == 1:
        reason = f"it waits for a file that it names: {path}"
    else:
        count = f"{COUNTED} or more" if len(files) == COUNTED else str(len(files))
        reason = f"it waits for {count} files that it names, as {path}"
    return Wait(reason, (sent or files)[-1].ino, bool(sent))
