"""References to checkpoints by symbolic links and trackers, and the metrics of checkpoints.

No policy deletes a checkpoint that a link leads to, or that a tracker names. The directory of each
checkpoint is searched, and those above it up to the directory of its run. Clients mount the export
where they like, so an absolute path counts for a checkpoint if the path ends in, or leads into,
that of the checkpoint. A tracker that cannot be read now, because it is evicted or open, may name
any checkpoint there.

Metrics are read from JSON files of checkpoints.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import literal_column, select

from gateway.catalogue.facts import READ_MAX_BYTES, PlaceEntry, Unread
from gateway.catalogue.statements import ENTRY_COLUMNS
from gateway.catalogue.tree import CatalogueView, entry_of
from gateway.common.text import printable, shown
from gateway.common.types import InodeKind
from gateway.common.units import size
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.models import ROOT_INO
from gateway.db.statements import dirent, inode
from gateway.lifecycle.retention.facts import Measure, PlanCheckpoint
from gateway.lifecycle.retention.policy import Best
from gateway.namespace.lookup import way_up

PAGE = 1024
TRACKERS = (b"latest", b"latest_checkpointed_iteration.txt", b"checkpoint", b"last_checkpoint")
"""The names of trackers, also of frameworks for which there is no rule."""
TRACKER_MAX_BYTES = 1 << 16
"""A larger file is no tracker."""
_BETWEEN = re.compile(rb"[\s\"',:=\[\]{}]+")
"""What stands between the words of a tracker."""
_DIRECTORIES = given_numbers("inos")
CHANGES = Statement(
    select(inode.c.ino, inode.c.change).select_from(
        _DIRECTORIES.join(inode, inode.c.ino == _DIRECTORIES.c.value)
    )
)
LINKS = Statement(
    select(dirent.c.name, inode.c.target)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino))
    .where(
        dirent.c.parent == b("parent"),
        dirent.c.name > b("after"),
        inode.c.kind == literal_column(f"{InodeKind.SYMLINK:d}"),
    )
    .order_by(dirent.c.name)
    .limit(b("most"))
)
NAMED = Statement(
    select(dirent.c.parent, *ENTRY_COLUMNS)
    .select_from(
        _DIRECTORIES.join(dirent, dirent.c.parent == _DIRECTORIES.c.value).join(
            inode, inode.c.ino == dirent.c.ino
        )
    )
    .where(dirent.c.name == b("name"))
)
"""Selects what has a name in directories."""


class _Directory(NamedTuple):
    """A directory that is looked at, and the checkpoints that it is looked at for."""

    path: bytes
    beside: list[PlanCheckpoint]


class _Links(NamedTuple):
    """The links of a directory, while its ``change`` is this."""

    change: int
    links: Sequence[tuple[bytes, bytes]]
    """Names and targets."""


class References:
    """Looks for them. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._links: dict[int, _Links] = {}
        self.wanted: set[int] = set()
        """The evicted trackers that would have to be read."""

    def of(self, view: CatalogueView, checkpoints: Sequence[PlanCheckpoint]) -> Mapping[int, str]:
        """Return why checkpoints stay, by inode. Raises TryAgain.

        Args:
            view: view of the transaction that read the checkpoints.
            checkpoints: checkpoints of which only the directories of the given ones are looked at.
        """
        self.wanted.clear()
        directories = _directories(view.session, checkpoints)
        places = _Places(checkpoints)
        reasons: dict[int, str] = {}
        for ino, links in self._read(view.session, directories.keys()):
            above = directories[ino].path
            for name, target in links:
                for checkpoint in places.led_to(above, target):
                    reasons.setdefault(checkpoint.ino, f"the link {printable(name)} leads to it")
        for name in dict.fromkeys((*TRACKERS, *sorted(view.rules.trackers))):
            rows = view.session.all(NAMED, inos=numbers_of(directories), name=name)
            for row in rows:
                entry = entry_of(row)
                if entry.is_file and entry.size <= TRACKER_MAX_BYTES:
                    self._add(view, places, directories[row[0]], name, entry, reasons)
        return reasons

    def _read(
        self, session: Session, inos: Iterable[int]
    ) -> Iterator[tuple[int, Sequence[tuple[bytes, bytes]]]]:
        """Yield the links of each directory. Those of one that did not change are remembered."""
        kept: dict[int, _Links] = {}
        for ino, change in session.all(CHANGES, inos=numbers_of(inos)):
            known = self._links.get(ino)
            if known is None or known.change != change:
                known = _Links(change, list(_links(session, ino)))
            kept[ino] = known
            yield ino, known.links
        self._links = kept

    def _add(
        self,
        view: CatalogueView,
        places: _Places,
        directory: _Directory,
        name: bytes,
        entry: PlaceEntry,
        reasons: dict[int, str],
    ) -> None:
        """Add what a tracker names."""
        try:
            text = view.file_reader.read(name, entry, 0, TRACKER_MAX_BYTES)
        except Unread as exc:
            if entry.is_absent:
                self.wanted.add(entry.ino)
            for checkpoint in directory.beside:
                reasons.setdefault(checkpoint.ino, f"the tracker beside it may name it: {exc}")
            return
        words = [word for word in _BETWEEN.split(text) if word]
        numbers = {int(word) for word in words if word.isdigit() and len(word) <= 18}
        named = [checkpoint for checkpoint in directory.beside if checkpoint.step in numbers]
        for word in words:
            named += places.led_to(directory.path, word)
        named += [checkpoint for checkpoint in directory.beside if _begins(checkpoint, words)]
        for checkpoint in named:
            reasons.setdefault(checkpoint.ino, f"the tracker {printable(name)} names it")


class _Places:
    """Checkpoints by path."""

    def __init__(self, checkpoints: Sequence[PlanCheckpoint]) -> None:
        self._by_path: dict[tuple[bytes, ...], list[PlanCheckpoint]] = {}
        for checkpoint in checkpoints:
            self._by_path.setdefault(tuple(checkpoint.path.split(b"/")), []).append(checkpoint)

    def led_to(self, above: bytes, target: bytes) -> list[PlanCheckpoint]:
        """Return the checkpoints that a path leads to or into.

        Args:
            above: the directory that the path is relative to.
        """
        if not target.startswith(b"/"):
            return self._at(_resolved((*above.split(b"/"), *target.split(b"/"))))
        names = _resolved(tuple(target.split(b"/")))
        return [checkpoint for at in range(len(names)) for checkpoint in self._at(names[at:])]

    def _at(self, names: tuple[bytes, ...]) -> list[PlanCheckpoint]:
        """Return the checkpoints at a path and above it."""
        checkpoints: list[PlanCheckpoint] = []
        for count in range(1, len(names) + 1):
            checkpoints += self._by_path.get(names[:count], ())
        return checkpoints


def _resolved(names: Sequence[bytes]) -> tuple[bytes, ...]:
    resolved: list[bytes] = []
    for name in names:
        if name == b"..":
            del resolved[-1:]
        elif name not in (b"", b"."):
            resolved.append(name)
    return tuple(resolved)


def _begins(checkpoint: PlanCheckpoint, words: Sequence[bytes]) -> bool:
    """Return whether a word is the name of a checkpoint without its end: TensorFlow names files so
    that differ in their ends only."""
    name = checkpoint.path.rpartition(b"/")[2]
    return any(name.startswith(word.rpartition(b"/")[2] + b".") for word in words)


def _directories(session: Session, checkpoints: Sequence[PlanCheckpoint]) -> dict[int, _Directory]:
    """Return the directories that are looked at, by inode."""
    directories: dict[int, _Directory] = {}
    ways: dict[int, list[int]] = {}
    for checkpoint in checkpoints:
        names = checkpoint.path.split(b"/")[:-1]
        way = ways.get(checkpoint.parent)
        if way is None:
            way = ways[checkpoint.parent] = [
                ino for ino, _parent, _name in way_up(session, checkpoint.parent)
            ]
        # The way has no root, and it is not that of the path if a rename has not been followed yet.
        inos = [*way, ROOT_INO]
        run = checkpoint.run.split(b"/") if checkpoint.run else []
        least = len(run) if names[: len(run)] == run else len(names)
        for depth in range(len(names), least - 1, -1):
            at = len(names) - depth
            if at < len(inos):
                path = b"/".join(names[:depth])
                directories.setdefault(inos[at], _Directory(path, [])).beside.append(checkpoint)
    return directories


def _links(session: Session, parent: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and targets of the symbolic links of a directory, a page at a time."""
    after = b""
    while rows := session.all(LINKS, parent=parent, after=after, most=PAGE):
        yield from ((bytes(name), bytes(target)) for name, target in rows)
        if len(rows) < PAGE:
            return
        after = rows[-1][0]


class Metrics:
    """The metrics that were read. While the members of a checkpoint are the same, its file is not
    read again: it may be evicted."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, str, str], Measure] = {}
        self.wanted: set[int] = set()
        """The evicted files that would have to be read."""

    def measure(self, view: CatalogueView, one: PlanCheckpoint, best: Best) -> Measure:
        """Return the metric of a checkpoint. Raises TryAgain.

        Args:
            one: a complete checkpoint.
            best: says which file and key.
        """
        measure_key = (one.ino, one.evidence, best.file, best.key)
        measure = self._known.get(measure_key)
        if measure is None:
            measure = self._read(view, one, best)
            if not measure.is_unread:
                self._known[measure_key] = measure
        return measure

    def keep_only(self, evidences: set[str]) -> None:
        """Forget the metrics of checkpoints that are gone or are not as they were."""
        self._known = {
            measure_key: measure
            for measure_key, measure in self._known.items()
            if measure_key[1] in evidences
        }

    def _read(self, view: CatalogueView, checkpoint: PlanCheckpoint, best: Best) -> Measure:
        entry = _entry(view, checkpoint.ino, best.file)
        name = best.file.encode()
        if entry is None or not entry.is_file:
            return Measure(None, f"{shown(best.file)} is missing")
        if entry.size > READ_MAX_BYTES:
            return Measure(None, f"{shown(best.file)} is larger than {size(READ_MAX_BYTES)}")
        try:
            document = json.loads(view.file_reader.read(name, entry, 0, READ_MAX_BYTES))
        except Unread as exc:
            if entry.is_absent:
                self.wanted.add(entry.ino)
            return Measure(None, str(exc), is_unread=True)
        except (ValueError, RecursionError):
            return Measure(None, f"{printable(name)} is no JSON")
        value = _number(_value(document, best.key))
        if value is None:
            return Measure(None, f"{printable(name)} has no number {shown(best.key)}")
        return Measure(value)


def _entry(view: CatalogueView, ino: int, path: str) -> PlaceEntry | None:
    entry: PlaceEntry | None = None
    for name in path.encode().split(b"/"):
        entry = view.entry(ino, name)
        if entry is None:
            return None
        ino = entry.ino
    return entry


def _number(value: Any) -> float | None:
    """Return a value if it is a number that can be compared."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        # JSON has whole numbers of any length.
        return None
    return number if math.isfinite(number) else None


def _value(document: Any, key: str) -> Any:
    """Return what a key leads to. A dot in it leads into an object."""
    if not isinstance(document, Mapping):
        return None
    if key in document:
        return document[key]
    first, dot, rest = key.partition(".")
    return _value(document.get(first), rest) if dot else None
