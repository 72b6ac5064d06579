"""Tree of names in memory, and the places in it: what rules are told without a database."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.catalogue.facts import (
    CheckpointMember,
    Completeness,
    Members,
    Parts,
    PlaceEntry,
    Recognised,
    Unread,
)
from gateway.catalogue.frameworks import BUILT_IN
from gateway.catalogue.indexes import lone_number
from gateway.catalogue.record import Neighbour
from gateway.catalogue.rules import Configured, Rules
from gateway.common.patterns import IncompleteNames
from gateway.common.types import Extent, InodeKind
from gateway.config.settings import DrainSettings
from tests.support.checkpoints.layouts import Layout, Step


@dataclass
class File:
    """A file or (data is None) a directory."""

    ino: int
    data: bytes | None
    is_open: bool = False
    is_absent: bool = False

    @property
    def entry(self) -> PlaceEntry:
        kind = InodeKind.DIRECTORY if self.data is None else InodeKind.REGULAR
        size = len(self.data or b"")
        return PlaceEntry(self.ino, kind, size, self.is_open, 1, 1, 0, self.is_absent)


class Memory:
    """The names, by path."""

    def __init__(self) -> None:
        self.files: dict[Parts, File] = {}
        self._inos = iter(range(16, 1 << 30))

    def apply(self, step: Step) -> None:
        path = parts(step.path)
        if step.verb == "mkdir":
            self.add(path, None)
        elif step.verb == "open":
            for depth in range(1, len(path)):
                self.add(path[:depth], None)
            self.add(path, b"").is_open = True
        elif step.verb == "close":
            file = self.files[path]
            file.data, file.is_open = step.data, False
        elif step.verb == "remove":
            del self.files[path]
        else:
            to = parts(step.to)
            for old in [one for one in self.files if one[: len(path)] == path]:
                self.files[*to, *old[len(path) :]] = self.files.pop(old)

    def add(self, path: Parts, data: bytes | None) -> File:
        return self.files.setdefault(path, File(next(self._inos), data))

    def below(self, path: Parts) -> Iterator[tuple[Parts, File]]:
        """Yield what is below a path, relative to it."""
        for one, file in self.files.items():
            if one[: len(path)] == path and len(one) > len(path):
                yield one[len(path) :], file


@dataclass
class MemoryPlace:
    """A place in it (``facts.Place``)."""

    memory: Memory
    parts: Parts

    @property
    def entry(self) -> PlaceEntry:
        return self.memory.files[self.parts].entry

    def inside(self, *names: bytes) -> PlaceEntry | None:
        file = self.memory.files.get((*self.parts, *names))
        return None if file is None else file.entry

    def beside(self, name: bytes) -> PlaceEntry | None:
        file = self.memory.files.get((*self.parts[:-1], name))
        return None if file is None else file.entry

    def ending(self, suffix: bytes, most: int) -> Sequence[bytes]:
        names = [path[0] for path, _file in self.memory.below(self.parts) if len(path) == 1]
        return sorted(name for name in names if name.endswith(suffix))[:most]

    def starting(self, prefix: bytes, most: int) -> Sequence[bytes]:
        names = [path[0] for path, _file in self.memory.below(self.parts) if len(path) == 1]
        return sorted(name for name in names if name.startswith(prefix))[:most]

    def is_in_series(self, before: bytes, after: bytes) -> bool:
        above = self.parts[:-1]
        beside = [path[0] for path, _file in self.memory.below(above) if len(path) == 1]
        return any(
            name != self.parts[-1]
            and (lone := lone_number(name)) is not None
            and (lone[0], lone[2]) == (before, after)
            for name in beside
        )

    def read(self, name: bytes, entry: PlaceEntry, start: int, length: int) -> bytes:
        (file,) = [one for one in self.memory.files.values() if one.ino == entry.ino]
        if file.is_open or file.is_absent:
            raise Unread(name, entry)
        return (file.data or b"")[start : start + length]


def parts(path: str) -> Parts:
    return tuple(path.encode().split(b"/"))


def rules_of(layout: Layout, quiet_seconds: float = 0.0) -> Rules:
    incomplete_patterns = DrainSettings().incomplete_patterns
    return Rules(
        [*map(Configured, layout.tables), *BUILT_IN],
        IncompleteNames(incomplete_patterns),
        quiet_seconds,
    )


def judge(
    memory: Memory,
    rules: Rules,
    path: str,
    quiet_since_ns: int = 0,
    neighbours: Sequence[Neighbour] = (),
) -> tuple[Recognised, Completeness] | None:
    """Return what the rules say of a path, or None if nothing is there or it is no checkpoint."""
    if parts(path) not in memory.files:
        return None
    place = MemoryPlace(memory, parts(path))
    recognition = rules.recognise(place)
    if recognition is None:
        return None
    members = [
        (name, file)
        for name, file in memory.below(place.parts)
        if recognition.extent is Extent.TREE or (len(name) == 1 and file.data is not None)
    ]
    if recognition.extent is Extent.FILE:
        members = [(place.parts[-1:], memory.files[place.parts])]
    members = [
        (name, file)
        for name, file in members
        if file.is_open or not rules.leaves(recognition.rule, name[-1])
    ]
    files = [(name, file) for name, file in members if file.data is not None]
    texts = [b"/".join(name).decode() for name, _file in files]
    unmatched = [
        pattern for pattern in rules.patterns(recognition) if not fnmatch.filter(texts, pattern)
    ]
    held = [name[-1] for name, _f in members if rules.holds.holds(place.parts, name[-1])]
    told = Members(
        len(files),
        sum(file.is_open for _name, file in files),
        held[0] if held else None,
        tuple(unmatched),
        0,
        0,
        [CheckpointMember(b"/".join(name), file.entry) for name, file in files],
    )
    try:
        return recognition, rules.verdict(place, recognition, told, quiet_since_ns, neighbours)
    except Unread as exc:
        return recognition, Completeness(str(exc))
