"""The rules of the configuration: ``[[checkpoints.rule]]``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.checkpoints.facts import Found, Members, Place
from gateway.pathpattern import expression_of
from gateway.types import Extent, Kind


class Configured:
    """A rule of the configuration.

    Parameters: table, which ``checks.rules`` has accepted.
    """

    leftovers: re.Pattern[bytes] | None = None
    tracker: bytes | None = None

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.name: str = table["name"]
        files = table.get("files", 1)
        self.patterns: Sequence[str] = () if isinstance(files, int) else tuple(files)
        self._files = files if isinstance(files, int) else 1
        self._marker: bytes | None = table["marker"].encode() if "marker" in table else None
        self.quiet_seconds = float(table.get("quiet_seconds", 0.0))
        self._path = re.compile(expression_of(table["path"]), re.DOTALL)

    def recognise(self, place: Place) -> Found | None:
        match = self._path.fullmatch(b"/".join(place.parts))
        if match is None or place.entry.kind not in (Kind.DIRECTORY, Kind.REGULAR):
            return None
        run = match.groupdict().get("run", b"/".join(place.parts[:-1]))
        extent = Extent.TREE if place.entry.kind == Kind.DIRECTORY else Extent.FILE
        return Found(self.name, run, int(match["step"]), extent)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        if members.files < self._files:
            return f"{members.files} of {self._files} files are there"
        if members.unmatched:
            return f"no file matches {members.unmatched[0]}"
        if found.extent is Extent.TREE and self._marker is not None:
            entry = place.inside(self._marker)
            return None if entry is not None else f"{self._marker.decode()} is missing"
        return None

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        # The marker of a checkpoint that is one file can only be beside it.
        if self._marker is None or place.entry.kind == Kind.DIRECTORY:
            return None
        found = place.beside(self._marker)
        return None if found is not None else f"{self._marker.decode()} is missing"
