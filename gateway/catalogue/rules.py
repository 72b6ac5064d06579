"""Checkpoint rules: which paths are checkpoints, whether they are complete, and the evidence. Pure.

The first rule that recognises a place decides: first those of the configuration
(``[[checkpoints.rule]]``), then those of frameworks. Whatever a rule says, a checkpoint is not
complete while a member is open for writing or has a name that is not final, or while a marker
beside it says so. The evidence that it is complete, from the strongest to the weakest
(``facts.Grade``):

- its index: every member that it names is there, and as long as it says;
- the complete checkpoints before it in its run: it has the members that they have;
- the last step of its save, and that nothing changed for a while since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.catalogue import indexes
from gateway.catalogue.content import cut_off, has_own_index
from gateway.catalogue.facts import Completeness, Grade, Members, Place, Recognised
from gateway.catalogue.indexes import Listing, Wrong, series_of
from gateway.catalogue.record import Neighbour, lacking, names_of, shape_of, shrunk
from gateway.common import clock
from gateway.common.patterns import IncompleteNames, expression_of
from gateway.common.text import printable
from gateway.common.types import Extent, InodeKind
from gateway.namespace.trackers import is_half_save

UNFINISHED = b"-unfinished"
"""What NeMo adds to the name of a checkpoint that it writes or deletes."""
TEMPORARY = b".orbax-checkpoint-tmp"
"""What Orbax has in the name of a directory until it is complete."""
_ENDS = (b".nemo", b".ckpt", b"-EMA")
"""What a name may have that its marker lacks, in the order in which NeMo takes it off."""


class Rule(Protocol):
    """Layout of the checkpoints of one framework, or of one user."""

    @property
    def name(self) -> str: ...

    @property
    def patterns(self) -> Sequence[str]:
        """Shell patterns of members' paths. ``Members.unmatched`` has those without a member."""

    @property
    def abandoned(self) -> re.Pattern[bytes] | None:
        """Whole names of files that a killed save leaves, and that no later save renames or
        removes. Closed, they are no members."""

    @property
    def tracker(self) -> bytes | None:
        """The name of the file beside checkpoints that says which of them are complete."""

    @property
    def quiet_seconds(self) -> float:
        """Nothing may have changed for so long."""

    @property
    def is_by_name(self) -> bool:
        """Whether a place is a checkpoint by its name, so that what is in it with the same step is
        a part of it."""

    def recognise(self, place: Place) -> Recognised | None:
        """Return what a place is, or None if it is no checkpoint of this rule."""

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        """Return which step of the save was not done, by its members, or None. Raises Wrong,
        Unread."""

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        """Return why its tracker does not name it, or None. Raises Unread."""

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        """Return what its index names: nothing if the members were counted otherwise. None: it has
        no index. Raises Wrong, Unread."""


_LEFT = re.compile(rb"\.nfs.*|.*\.~tmp~|\._.*|\.DS_Store|.*\.sw[a-p]|.*\.lock", re.DOTALL)
"""What NFS clients, rsync, macOS, vim and locks leave."""
_REMOVED_WHILE_OPEN = b".nfs"
_RSYNC = re.compile(rb"\.(.+)\.[0-9A-Za-z]{6}", re.DOTALL)


def is_removed(name: bytes) -> bool:
    """Return whether a client has removed a file that it still has open. It goes when the client
    closes it."""
    return name.startswith(_REMOVED_WHILE_OPEN)


def copied_to(name: bytes) -> bytes | None:
    """Return the name to which rsync renames a file of this name when it is whole, or None."""
    match = _RSYNC.fullmatch(name)
    return None if match is None else match[1]


LATE_SECONDS = 3600.0
"""A checkpoint that lacks members which others of its run have may be of fewer ranks. It is
complete, with the weakest grade, when nothing has changed for so long."""


class Rules:
    """The rules of one gateway, in order.

    Args:
        holds: the patterns of names that are not final.
        quiet_seconds: for which nothing may have changed in a checkpoint that neither an index nor
            others of its run show to be complete.
    """

    def __init__(self, rules: Sequence[Rule], holds: IncompleteNames, quiet_seconds: float) -> None:
        self._rules = rules
        self._named = {rule.name: rule for rule in rules}
        self._quiet_seconds = quiet_seconds
        self.holds = holds
        self.trackers = frozenset(rule.tracker for rule in rules if rule.tracker is not None)

    def recognise(self, place: Place) -> Recognised | None:
        """Return what a place is by itself, or None if it is no checkpoint."""
        if any(TEMPORARY in name for name in place.parts):
            return None
        for rule in self._rules:
            if (recognition := rule.recognise(place)) is not None:
                return recognition
        return None

    def knows(self, rule: str) -> bool:
        """Return whether there is a rule of a name."""
        return rule in self._named

    def is_by_name(self, rule: str) -> bool:
        """Return whether a rule knows its checkpoints by their names."""
        return self._named[rule].is_by_name

    def patterns(self, found: Recognised) -> Sequence[str]:
        """Return the patterns that members of a checkpoint are matched with."""
        return self._named[found.rule].patterns

    def leaves(self, rule: str, name: bytes) -> bool:
        """Return whether a closed file of this name, in a checkpoint of a rule, is what a save, a
        copy or an editor has left, by its name alone."""
        if _LEFT.fullmatch(name):
            return True
        # The catalogue may have been made with a rule that is not in the configuration any more.
        named_rule = self._named.get(rule)
        abandoned = None if named_rule is None else named_rule.abandoned
        return abandoned is not None and abandoned.fullmatch(name) is not None

    def standing(self, place: Place, found: Recognised, members: Members) -> str | None:
        """Return why a checkpoint is being written, whatever it consists of, or None."""
        held = next(
            (part for n, part in enumerate(place.parts) if self._holds(place, found, n)), None
        )
        if (name := members.held if held is None else held) is not None:
            return f"{printable(name)} is a temporary name"
        if members.open_files:
            is_one = members.open_files == 1
            count = "1 file is" if is_one else f"{members.open_files} files are"
            return f"{count} open for writing"
        if not members.files:
            return "it has no files"
        return self.unfinished(place)

    def unfinished(self, place: Place) -> str | None:
        """Return which marker beside a checkpoint says that it is not complete, or None."""
        for marker in markers_of(place.parts[-1]):
            if place.beside(marker) is not None:
                return f"{printable(marker)} is there"
        return None

    def verdict(
        self,
        place: Place,
        found: Recognised,
        members: Members,
        quiet_since_ns: int,
        neighbours: Sequence[Neighbour] = (),
    ) -> Completeness:
        """Return whether a checkpoint is complete, and what shows it. Raises Unread.

        Args:
            quiet_since_ns: the time since which nothing is known to have changed in it.
            neighbours: other complete checkpoints of its run, the newest first.
        """
        rule = self._named[found.rule]
        try:
            reason = self.standing(place, found, members) or rule.lacks(place, found, members)
            listing = None if reason is not None else rule.listing(place, found, members)
            if listing:
                reason = indexes.missing(place, listing)
        except Wrong as exc:
            reason = str(exc)
        if reason is not None or (reason := _cut_off(place, found, members)) is not None:
            return Completeness(reason)
        is_listed = listing is not None or _is_one_file_with_index(place, found)
        verdict = self._graded(place, found, members, is_listed, neighbours)
        return self._when_quiet(verdict, rule.quiet_seconds, quiet_since_ns)

    def _graded(
        self,
        place: Place,
        recognition: Recognised,
        members: Members,
        is_listed: bool,
        neighbours: Sequence[Neighbour],
    ) -> tuple[Completeness, float]:
        """Return the verdict about a checkpoint whose members are all in order, and the time in
        seconds for which it must have been quiet."""
        if is_listed:
            return Completeness(None, grade=Grade.LISTED), 0.0
        beside = self._named[recognition.rule].lacks_beside(place, recognition.step)
        # A file that does not list what is in it is like any other file of its name.
        checkpoint_members = () if recognition.extent is Extent.FILE else members.each or ()
        names = names_of(member.path for member in checkpoint_members)
        shape = shape_of(names)
        alike = [neighbour for neighbour in neighbours if names and neighbour.shape == shape]
        reason = shrunk(checkpoint_members, alike) if alike else lacking(names, neighbours)
        if alike and reason is None:
            # A tracker may name a later one by now.
            return Completeness(None, grade=Grade.ALIKE), self._quiet_seconds if beside else 0.0
        if beside is not None:
            return Completeness(beside), 0.0
        if reason is not None:
            # No other one is alike to one that may be the half of a save.
            late = Completeness(reason, grade=Grade.MARKED, is_pattern=False)
            return late, max(LATE_SECONDS, self._quiet_seconds)
        return Completeness(None, grade=Grade.MARKED), self._quiet_seconds

    def _when_quiet(
        self, graded: tuple[Completeness, float], least_seconds: float, quiet_since_ns: int
    ) -> Completeness:
        verdict, seconds = graded
        if verdict.grade is None:
            return verdict
        seconds = max(seconds, least_seconds)
        due_ns = quiet_since_ns + int(seconds * clock.NS)
        if clock.now_ns() >= due_ns or not seconds:
            return verdict._replace(reason=None)
        reason = verdict.reason or f"it has not been quiet for {seconds:g} s"
        return Completeness(reason, due_ns)

    def _holds(self, place: Place, recognition: Recognised, depth: int) -> bool:
        """Return whether a name on the way to a checkpoint is not final. A directory that has a
        step is a run, whatever its name, unless that is the name of half a save."""
        name = place.parts[depth]
        if not self.holds.holds(place.parts[:depth], name):
            return False
        is_run = depth < len(place.parts) - 1 and recognition.step is not None
        return not is_run or is_half_save(name)


def _cut_off(place: Place, recognition: Recognised, members: Members) -> str | None:
    """Return which member ends before its kind must, or None. Raises Unread."""
    for path, entry in members.each or ():
        # The bucket has the bytes of an evicted member as they were sealed.
        if not entry.is_file or entry.is_absent:
            continue
        if (reason := cut_off(place, path, entry)) is not None:
            return reason
    return None


def _is_one_file_with_index(place: Place, recognition: Recognised) -> bool:
    if recognition.extent is not Extent.FILE:
        return False
    return has_own_index(place, place.parts[-1], place.entry)


def markers_of(name: bytes) -> list[bytes]:
    """Return the names of markers that say that a checkpoint is not complete."""
    stem = name
    for end in _ENDS:
        stem = stem.removesuffix(end)
    return [base + UNFINISHED for base in dict.fromkeys((name, stem))]


class Configured:
    """A rule of the configuration.

    Args:
        table: ``checks.rules`` has accepted.
    """

    abandoned: re.Pattern[bytes] | None = None
    tracker: bytes | None = None
    is_by_name = True

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.name: str = table["name"]
        files = table.get("files", 1)
        self.patterns: Sequence[str] = () if isinstance(files, int) else tuple(files)
        self._files = files if isinstance(files, int) else 1
        self._is_counted = "files" in table
        self._marker: bytes | None = table["marker"].encode() if "marker" in table else None
        self.quiet_seconds = float(table.get("quiet_seconds", 0.0))
        self._path = re.compile(expression_of(table["path"]), re.DOTALL)

    def recognise(self, place: Place) -> Recognised | None:
        match = self._path.fullmatch(b"/".join(place.parts))
        if match is None or place.entry.kind not in (InodeKind.DIRECTORY, InodeKind.REGULAR):
            return None
        path, step = b"/".join(place.parts), int(match["step"])
        extent = Extent.TREE if place.entry.kind == InodeKind.DIRECTORY else Extent.FILE
        if "run" in match.groupdict():
            # With what is before it: two owners may have runs of one name.
            return Recognised(self.name, path[: match.end("run")], step, extent)
        above, name = place.parts[:-1], place.parts[-1]
        series = (series_of(name, step),) if extent is Extent.FILE else ()
        return Recognised(self.name, b"/".join((*above, *series)), step, extent)

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        if members.files < self._files:
            return f"{members.files} of {self._files} files are there"
        if members.unmatched:
            return f"no file matches {members.unmatched[0]}"
        if self._marker is None:
            return None
        # The marker of a checkpoint that is one file can only be beside it.
        is_tree = found.extent is Extent.TREE
        entry = place.inside(self._marker) if is_tree else place.beside(self._marker)
        return None if entry is not None else f"{self._marker.decode()} is missing"

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        return None

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        # The configuration told the files or their number, and they are there.
        return {} if self._is_counted else None
