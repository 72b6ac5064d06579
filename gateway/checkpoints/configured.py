"""The rules of the configuration: ``[[checkpoints.rule]]``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.checkpoints.facts import Found, Members, Place
from gateway.checkpoints.indexes import Listing
from gateway.checkpoints.steps import series_of
from gateway.pathpattern import expression_of
from gateway.types import Extent, Kind


class Configured:
    """A rule of the configuration.

    Parameters: table, which ``checks.rules`` has accepted.
    """

    leftovers: re.Pattern[bytes] | None = None
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

    def recognise(self, place: Place) -> Found | None:
        match = self._path.fullmatch(b"/".join(place.parts))
        if match is None or place.entry.kind not in (Kind.DIRECTORY, Kind.REGULAR):
            return None
        path, step = b"/".join(place.parts), int(match["step"])
        extent = Extent.TREE if place.entry.kind == Kind.DIRECTORY else Extent.FILE
        if "run" in match.groupdict():
            # With what is before it: two owners may have runs of one name.
            return Found(self.name, path[: match.end("run")], step, extent)
        above, name = place.parts[:-1], place.parts[-1]
        series = (series_of(name, step),) if extent is Extent.FILE else ()
        return Found(self.name, b"/".join((*above, *series)), step, extent)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
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

    def listing(self, place: Place, found: Found, members: Members) -> Listing | None:
        # The configuration told the files or their number, and they are there.
        return {} if self._is_counted else None
