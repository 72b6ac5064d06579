"""Says which renames the bucket has not followed yet, for a wait of a person or program.

The drain may never drop the row of a renamed directory: what is held below it, or cannot be moved,
stays where it is. So each object below the directory is judged by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.db.models import ROOT_INO
from gateway.drain import statements as own
from gateway.drain.admission.retries import needs_person
from gateway.drain.below import Below
from gateway.drain.context import Context, View
from gateway.drain.paths import file_of, is_unfinished
from gateway.drain.queue import NEWEST, PAGE, Reasons, page
from gateway.types import Kind


class Renamed(NamedTuple):
    """A file or directory whose rename has not reached the bucket yet."""

    ino: int
    path: tuple[bytes, ...]
    error: str
    is_stuck: bool
    """Whether it needs a person."""


@dataclass
class _Reading:
    """A reading of what is below one renamed directory."""

    name: Sequence[Any]
    """The name under which the directory was found. Each rename gives it another cookie."""
    below: Below
    away: deque[int] = field(default_factory=deque)
    """The files of the last page that are still to be judged."""
    stuck: list[Renamed] = field(default_factory=list)


class Following:
    """The renames that one wait waits for.

    What is below a directory is read up to the first object that the drain can move. The next look
    continues there: otherwise a wait for a large directory would read it at each look.
    """

    def __init__(self) -> None:
        self._readings: dict[int, _Reading] = {}

    def look(self, view: View, top: int = ROOT_INO) -> Iterator[Renamed]:
        """Yield the renames at, above or below an inode that have not reached the bucket.

        What is held is left out. Files that wait for their upload are left out too:
        ``queue.entries`` has them. A directory stands for what can be moved below it.
        """
        reasons, paths = Reasons(view, 0), view.paths
        after = 0
        while rows := view.session.all(own.REKEYS, after=after, most=PAGE):
            for ino, kind, *_ in rows:
                if top == ROOT_INO or paths.is_below(ino, top) or paths.is_below(top, ino):
                    if kind == Kind.DIRECTORY:
                        yield from self._directory(view, ino, reasons)
                    elif (found := _file(view, ino, reasons)) is not None:
                        yield found
            after = rows[-1][0]

    def _directory(self, view: View, ino: int, reasons: Reasons) -> Iterator[Renamed]:
        place = view.paths.place(ino)
        name = view.session.one(own.NAME, ino=ino)
        if place is None or place.held or name is None:
            return
        reading = self._readings.get(ino)
        if reading is None or reading.name != name:
            reading = self._readings[ino] = _Reading(name, Below(ino))
        if _can_move(view, reading, reasons):
            yield Renamed(ino, place.parts, "", is_stuck=False)
        else:
            del self._readings[ino]
        yield from reading.stuck


def is_durable(context: Context, tops: Sequence[int]) -> bool:
    """Return whether the bucket has all that can be waited for, as it is here, at the keys of the
    current paths. The answer is true of one moment. Raises TryAgain."""
    with context.reading() as view:
        for top in tops:
            if any(Following().look(view, top)):
                return False
            after: tuple[int, int] | None = NEWEST
            while after is not None:
                found, after = page(view, after, top, context.settings.drain_ahead_ns)
                if any(entry.is_waited_for for entry in found):
                    return False
    return True


def _can_move(view: View, reading: _Reading, reasons: Reasons) -> bool:
    """Read on, up to an object that can be moved. Returns False if there is none."""
    while True:
        while reading.away:
            one = _file(view, reading.away[0], reasons)
            if one is not None and not one.is_stuck:
                return True
            reading.away.popleft()
            if one is not None:
                reading.stuck.append(one)
        if reading.below.is_read:
            return False
        objects = reading.below.page(view)
        view.paths.read_names(stored.ino for stored in objects)
        for stored in objects:
            if view.paths.key_of(stored.ino) not in (None, stored.key):
                reading.away.append(stored.ino)
        view.paths.forget_names()


def _file(view: View, ino: int, reasons: Reasons) -> Renamed | None:
    """Return a file whose object the drain is to move, or None."""
    file = file_of(view.session, ino)
    place = view.paths.place(ino)
    if file is None or place is None or file.is_dirty:
        return None
    if not is_unfinished(view.session, view.paths, ino):
        return None
    wait = view.precedence.wait_of(file)
    if wait is not None and not wait.is_under_way:
        return None
    failure = reasons.of(ino, view.paths.key_of(ino))
    is_stuck = needs_person(failure.tries, failure.error)
    return Renamed(ino, place.parts, failure.error, is_stuck)
