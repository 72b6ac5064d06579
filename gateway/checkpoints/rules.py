"""Decides which places are checkpoints and whether they are complete. Pure.

The first rule that recognises a place decides: first those of the configuration, then those of
frameworks. Whatever a rule says, a checkpoint is not complete while a member is open for writing or
has a name that the drain holds, or while a marker beside it says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from gateway.checkpoints.facts import Found, Members, Place, Verdict
from gateway.holds import Holds
from gateway.text import printable

UNFINISHED = b"-unfinished"
"""What NeMo adds to the name of a checkpoint that it writes or deletes."""
TEMPORARY = b".orbax-checkpoint-tmp"
"""What Orbax has in the name of a directory until it is complete."""
_ENDS = (b".nemo", b".ckpt", b"-EMA")
"""What a name may have that its marker lacks, in the order in which NeMo takes it off."""


class Rule(Protocol):
    """Knows the layout of one framework, or of one user."""

    @property
    def name(self) -> str: ...

    @property
    def patterns(self) -> Sequence[str]:
        """Shell patterns of members' paths. ``Members.unmatched`` has those without a member."""

    @property
    def leftovers(self) -> re.Pattern[bytes] | None:
        """Whole names of files that a killed save leaves, and that no later save renames or
        removes. Closed, they are no members."""

    @property
    def tracker(self) -> bytes | None:
        """The name of the file beside checkpoints that says which of them are complete."""

    @property
    def quiet_seconds(self) -> float:
        """Nothing may have changed for so long."""

    def recognise(self, place: Place) -> Found | None:
        """Return what a place is, or None if it is no checkpoint of this rule."""

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        """Return why a checkpoint is not complete, by its members, or None. Raises Unread."""

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        """Return why it is not complete, by what is beside it, or None. Raises Unread."""


class Rules:
    """The rules of one gateway, in order.

    Parameters: rules; holds, the patterns of names that are not final.
    """

    def __init__(self, rules: Sequence[Rule], holds: Holds) -> None:
        self._rules = rules
        self._named = {rule.name: rule for rule in rules}
        self.holds = holds
        self.trackers = frozenset(rule.tracker for rule in rules if rule.tracker is not None)

    def recognise(self, place: Place) -> Found | None:
        """Return what a place is, or None if it is no checkpoint."""
        if any(TEMPORARY in name for name in place.parts):
            return None
        for rule in self._rules:
            if (found := rule.recognise(place)) is not None:
                return found
        return None

    def patterns(self, found: Found) -> Sequence[str]:
        """Return the patterns that members of a checkpoint are matched with."""
        return self._named[found.rule].patterns

    def leaves(self, rule: str, name: bytes) -> bool:
        """Return whether a closed file of this name, in a checkpoint of a rule, is what a killed
        save has left."""
        # The catalogue may have been made with a rule that is not in the configuration any more.
        found = self._named.get(rule)
        leftovers = None if found is None else found.leftovers
        return leftovers is not None and leftovers.fullmatch(name) is not None

    def verdict(self, place: Place, found: Found, members: Members, now_ns: int) -> Verdict:
        """Return whether a checkpoint is complete. Raises Unread."""
        rule = self._named[found.rule]
        held = next((name for n, name in enumerate(place.parts) if self._holds(place, n)), None)
        if (name := members.held if held is None else held) is not None:
            return Verdict(f"{printable(name)} is a temporary name")
        if members.open_files:
            is_one = members.open_files == 1
            count = "1 file is" if is_one else f"{members.open_files} files are"
            return Verdict(f"{count} open for writing")
        if not members.files:
            return Verdict("it has no files")
        reason = rule.lacks(place, found, members)
        if reason is None:
            reason = self.lacks_beside(place, found.rule, found.step)
        if reason is not None or not rule.quiet_seconds:
            return Verdict(reason)
        due_ns = members.newest_ns + int(rule.quiet_seconds * 1_000_000_000)
        if now_ns < due_ns:
            return Verdict(f"it has not been quiet for {rule.quiet_seconds:g} s", due_ns)
        return Verdict(None)

    def lacks_beside(self, place: Place, rule: str, step: int | None) -> str | None:
        """Return why a checkpoint is not complete, by what is beside it, or None. Raises Unread."""
        for marker in markers_of(place.parts[-1]):
            if place.beside(marker) is not None:
                return f"{printable(marker)} is there"
        return self._named[rule].lacks_beside(place, step)

    def _holds(self, place: Place, depth: int) -> bool:
        return self.holds.holds(place.parts[:depth], place.parts[depth])


def markers_of(name: bytes) -> list[bytes]:
    """Return the names of markers that say that a checkpoint is not complete."""
    stem = name
    for end in _ENDS:
        stem = stem.removesuffix(end)
    return [one + UNFINISHED for one in dict.fromkeys((name, stem))]
