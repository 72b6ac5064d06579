"""Rules of the files whose CLOSE waits for the bucket (``acknowledge.rule``). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.common.patterns import IncompleteNames, expression_of


class _Rule(NamedTuple):
    path: re.Pattern[bytes]
    every_steps: int
    by_bucket: bool


class Acknowledge:
    """Rules of the paths at which a CLOSE is answered only when the bucket has the file.

    Args:
        tables: what ``checks.acknowledge_rules`` has accepted.
        incomplete_patterns: of names that are not final.
    """

    def __init__(
        self, tables: Sequence[Mapping[str, Any]], incomplete_patterns: Iterable[str]
    ) -> None:
        self._holds = IncompleteNames(incomplete_patterns)
        self._rules = [
            _Rule(
                re.compile(expression_of(table["path"]) + b"(?:/.*)?", re.DOTALL),
                table.get("every_steps", 1),
                table.get("acknowledge", "bucket") == "bucket",
            )
            for table in tables
        ]

    def __bool__(self) -> bool:
        """Return whether any path is acknowledged by the bucket."""
        return any(rule.by_bucket for rule in self._rules)

    def covers(self, parts: Sequence[bytes]) -> bool:
        """Return whether the file at a path is acknowledged by the bucket."""
        path = b"/".join(parts)
        for rule in self._rules:
            match = rule.path.fullmatch(path)
            if match is None:
                continue
            step = match.groupdict().get("step")
            if step is None or int(step) % rule.every_steps == 0:
                return rule.by_bucket and not self._is_held(parts)
        return False

    def _is_held(self, parts: Sequence[bytes]) -> bool:
        return any(self._holds.holds(parts[:at], parts[at]) for at in range(len(parts)))
