"""Removes trees, and lets renames pass, by the laws of deletions.

A tree that a person removes may have checkpoints in it. Those that are complete go into the trash
as ``spillway delete`` puts them there, each recorded as a deletion, and the rest is removed. If a
law keeps one of them, nothing is done unless the person insists. What is pinned stays in any case.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass

from gateway.control import deletion
from gateway.control.names import Names, reason
from gateway.control.paths import Place, is_below, names_of, shown
from gateway.control.progress import Progress, Tell
from gateway.db.engine import Database
from gateway.door.door import Door
from gateway.errors import NotPossible, NotThere, TrashRefused
from gateway.escapes import encoded, text_of
from gateway.holds import Holds
from gateway.namespace.browse import Browser
from gateway.retention import statements as own
from gateway.retention.facts import Checkpoint
from gateway.retention.planning import checkpoint_of
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import printable
from gateway.types import Extent, Kind

TREE = "a person removed its tree"
"""The reason that is recorded."""


@dataclass(frozen=True, slots=True)
class Removed(Model):
    """What became of a file, or of a directory with everything in it."""

    path: str
    was_directory: bool
    """Whether it was one. False too if there was nothing."""
    removed_names: int
    failures: list[str]
    """Why others are left."""
    trashed: dict[str, str]
    """Paths of the checkpoints that are in the trash, below the export, by their ids there."""


def is_a_directory(path: str) -> NotPossible:
    """Return why a directory is not removed. Args: path of the command line."""
    return NotPossible(f"{shown(path)}: it is a directory: spillway rm -r removes all of it")


class Guarded:
    """Removes trees of one namespace. Its method raises NotPossible, UserError, DoorClosed,
    NamespaceError, OSError.

    Parameters: settings; database; browser; names; door.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        browser: Browser,
        names: Names,
        door: Door,
    ) -> None:
        self._settings = settings
        self._database = database
        self._browser = browser
        self._names = names
        self._door = door

    def remove(
        self, path: str, place: Place, progress: Tell, *, author: str, insists: bool
    ) -> Removed:
        """Remove a directory with everything in it. What was done before an error stays done.

        Args:
            path: of the command line.
            place: what it names.
            author: the person.
            insists: whether it is removed although a law keeps a checkpoint in it.
        """
        failures: list[str] = []
        trashed = {}
        removed = 0
        top = below(self._settings, path)
        found = deletion.check_tree(self._settings, self._database, top, insists=insists)
        for one in found:
            if one.extent == Extent.FILES:
                removed += self._empty(one, progress, failures)
            trashed[self._delete(one, author, insists)] = text_of(one.path)
        if place.found().attr.ino not in {one.ino for one in found}:
            removed += self._remove_tree(place, progress, failures)
        return Removed(encoded(path), True, removed, failures, trashed)

    def _empty(self, one: Checkpoint, progress: Tell, failures: list[str]) -> int:
        """Remove the directories beside the files of a checkpoint, which are no part of it. Returns
        the number of names."""
        removed = 0
        above = f"{self._settings.nfs.export}/{os.fsdecode(one.path)}"
        for entry in list(self._browser.entries(one.ino)):
            if entry.attr.kind == Kind.DIRECTORY:
                place = Place(f"{above}/{os.fsdecode(entry.name)}", one.ino, entry.name, entry)
                removed += self._remove_tree(place, progress, failures)
        return removed

    def _remove_tree(self, place: Place, progress: Tell, failures: list[str]) -> int:
        """Remove what no law keeps, and add why names are left. Returns the number of names."""
        removal = self._names.remove_tree(
            place, lambda count: progress(Progress(count, None, f"{count:,} names removed"))
        )
        failures += [f"{shown(place.path)}{at}: {reason(why)}" for at, why in removal.failures]
        return removal.removed

    def _delete(self, one: Checkpoint, author: str, insists: bool) -> str:
        try:
            return deletion.delete(
                self._settings,
                self._database,
                one.ino,
                author=author,
                reason=TREE,
                insists=insists,
                seen=[one.evidence],
                open_door=lambda: nullcontext(self._door),
            )
        except (TrashRefused, NotThere) as exc:
            raise NotPossible(f"{printable(one.path)} stays: {exc}") from None


def require_not_hidden(
    settings: Settings, database: Database, path: str, target: str, *, insists: bool
) -> None:
    """Require that a rename gives no durable checkpoint a name that is held: it would not be sent
    from then on, and no receipt would name it. Raises NotPossible.

    Parameters: path and target, the whole paths before and after; insists, whether it is renamed
    nevertheless.
    """
    names = names_of(settings.nfs.export, target)
    holds = Holds(settings.drain.hold_patterns)
    held = [name for at, name in enumerate(names) if holds.holds(names[:at], name)]
    if insists or not held:
        return
    top = below(settings, path)
    with database.reading() as session:
        checkpoints = [checkpoint_of(row) for row in session.all(own.CHECKPOINTS)]
    for one in checkpoints:
        if one.is_durable and is_below(one.path, top):
            raise NotPossible(
                f"{shown(path)}: {printable(one.path)} is in the bucket, and {printable(held[0])} "
                "is a name that drain.hold_patterns holds: choose another one, or insist: --force"
            )


def below(settings: Settings, path: str) -> bytes:
    """Return a path below the export's root."""
    return b"/".join(names_of(settings.nfs.export, path))
