"""Says which files wait for others: what names others goes into the bucket after what it names.

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
from typing import NamedTuple

from sqlalchemy import select

from gateway import clock, naming
from gateway.acknowledge import Acknowledge
from gateway.checkpoints.facts import State
from gateway.data.layout import DataFiles
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.models import ROOT_INO
from gateway.db.statements import checkpoint
from gateway.drain.lacking import Asker, Lacking, Missing, Row, place_of
from gateway.drain.paths import Parts, Paths
from gateway.drain.rows import File
from gateway.namespace.lookup import way_up
from gateway.text import printable
from gateway.types import Extent, Kind

COUNTED = 1000
"""Files that are waited for are counted up to this many."""
NAMES_MAX = 4096
"""The names that are looked at where the catalogue knows no checkpoint: such a directory may be
that of all jobs."""
SOON_NS = 300 * clock.NS
"""Where the catalogue knows no checkpoint, what is sealed later than this after a file is not what
the file names."""

_INOS = given_numbers("inos")
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
NOT_DURABLE = Statement(_BESIDE.where(checkpoint.c.state != str(State.DURABLE)))


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

    Parameters: session; paths; files, the data files; acknowledge, the rules about files that
    clients wait for.
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

        Parameters: text, the bytes that would be sent, or None to read them from the disk.
        """
        home = self._paths.home_of(file.ino)
        if home is None:
            return None
        directory, (*names, name) = home
        above = tuple(names)
        if (data := naming.data_of(name)) is not None:
            asker = Asker(file.ino, None)
            return _waits(self._lacking.of_index(directory, above, data, asker))
        rank = naming.rank_of(name)
        if rank is None:
            return None
        way = [directory, *(parent for _ino, parent, _name in way_up(self._session, directory))]
        found = self._checkpoint(way)
        is_tree = found is not None and found.extent == Extent.TREE
        if naming.is_tracker(name) and not is_tree:
            return self._of_tracker(file, directory, (*above, name), text)
        asker = Asker(file.ino, place_of((*above, name), rank))
        if found is None:
            asker = asker._replace(until_ns=_until_ns(file))
            is_deep = directory != ROOT_INO
            return _waits(self._lacking.below(directory, above, asker, is_deep, NAMES_MAX))
        # A client that waits for this file in a CLOSE may be the one that has to write the rest.
        is_half = found.state in (State.WRITING, State.BROKEN)
        if is_half and not self._acknowledge.covers((*above, name)):
            reason = f"its checkpoint is {found.state}: {found.reason}"
            return Wait(reason, found.ino, is_under_way=False)
        top = above[: len(above) - way.index(found.ino)]
        return _waits(self._lacking.below(found.ino, top, asker, is_tree))

    def _checkpoint(self, way: Sequence[int]) -> _Checkpoint | None:
        """Return the checkpoint that the files of a directory belong to. Parameters: way, the
        directory and all above it."""
        rows = self._session.all(CHECKPOINTS, inos=numbers_of(way))
        found = {row[0]: _Checkpoint(*row) for row in rows}
        for ino in way:
            one = found.get(ino)
            if one is not None and (one.extent == Extent.TREE or ino == way[0]):
                return one
        return None

    def _of_tracker(
        self, file: File, directory: int, parts: Parts, text: bytes | None
    ) -> Wait | None:
        if file.size > naming.TRACKER_MAX_BYTES:
            return None
        if text is None and not file.is_resident:
            return self._of_absent(directory)
        if text is None:
            text = self._text(file)
        named = None if text is None else naming.named_by(parts[-1], text)
        if named is None:
            return None
        target = self._target(directory, named)
        if target is not None and target.ino != file.ino:
            return self._of_target(file, directory, parts[:-1], target)
        if target is not None or not named.is_certain:
            return None
        reason = f"it names {printable(named.names[0])}, which is not there"
        return Wait(reason, directory, is_under_way=False)

    def _of_target(self, file: File, directory: int, above: Parts, target: Row) -> Wait | None:
        """Return the wait of a tracker for what it names."""
        asker = Asker(file.ino, None)
        found = self._checkpoint((target.ino,))
        if found is None:
            asker = asker._replace(until_ns=_until_ns(file))
        elif found.state != State.DURABLE:
            reason = f"it names {printable(target.name)}, which is {found.state}"
            is_under_way = found.state in (State.COMPLETE, State.DRAINING)
            return Wait(reason, found.ino, is_under_way)
        # The catalogue follows the namespace: it may not know of a change yet.
        if target.kind != Kind.DIRECTORY:
            return _waits(self._lacking.of_file(directory, above, target, asker))
        is_deep = found is None or found.extent == Extent.TREE
        most = NAMES_MAX if found is None else None
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

    def _target(self, directory: int, named: naming.Named) -> Row | None:
        """Return what a tracker means."""
        for name in named.names:
            found = self._lacking.named(directory, name)
            if found is not None and found.kind in (Kind.DIRECTORY, Kind.REGULAR):
                return found
        row = None
        if named.step is not None:
            row = self._session.one(OF_STEP, parent=directory, step=named.step)
        for parent, name in () if row is None else self._session.all(sql.NAMES, ino=row[0]):
            if parent == directory:
                return self._lacking.named(parent, bytes(name))
        return None


def _until_ns(file: File) -> int:
    return (clock.now_ns() if file.write_open else file.drain_after_ns) + SOON_NS


def _waits(lacking: Iterator[Missing]) -> Wait | None:
    """Return the wait for files."""
    found = list(islice(lacking, COUNTED))
    if not found:
        return None
    # What is sent last is probably the last one: the wait is looked at when the bucket has it.
    sent = [one for one in found if not one.why]
    shown = next((one for one in found if one.why), found[-1])
    path = printable(b"/".join(shown.path)) + (f" ({shown.why})" if shown.why else "")
    if len(found) == 1:
        reason = f"it waits for a file that it names: {path}"
    else:
        count = f"{COUNTED} or more" if len(found) == COUNTED else str(len(found))
        reason = f"it waits for {count} files that it names, as {path}"
    return Wait(reason, (sent or found)[-1].ino, bool(sent))
