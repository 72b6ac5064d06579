"""Remembers which copies in parts have begun, so that an interrupted one is resumed."""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from typing import Protocol

from gateway.objectstore.objects import Begun


class PartCopy(Protocol):
    """What is remembered of one copy from one try to the next."""

    def begun(self) -> Begun | None:
        """Return the upload that an earlier try has begun, of the same bytes to the same key."""

    def record(self, begun: Begun) -> None:
        """Remember an upload, before its first part."""

    def ended(self) -> None:
        """Forget the upload: it has become the object, or was aborted."""

    def is_wanted(self) -> bool:
        """Return whether more parts may be copied. It is asked after each part."""


class InMemory:
    """A copy that only the same process resumes.

    Parameters: all_begun, where the process remembers its copies; what, all that makes this one
    another copy than any other.
    """

    def __init__(self, all_begun: MutableMapping[Hashable, Begun], what: Hashable) -> None:
        self._all, self._what = all_begun, what

    def begun(self) -> Begun | None:
        return self._all.get(self._what)

    def record(self, begun: Begun) -> None:
        self._all[self._what] = begun

    def ended(self) -> None:
        self._all.pop(self._what, None)

    def is_wanted(self) -> bool:
        return True
