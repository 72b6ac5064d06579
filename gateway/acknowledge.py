"""Says at which paths a CLOSE is answered only when the bucket has the file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway import checks
from gateway.declare import key
from gateway.holds import Holds
from gateway.pathpattern import expression_of


@dataclass(frozen=True)
class AcknowledgeSettings:
    rule: tuple[Mapping[str, Any], ...] = key(
        "Files whose close() returns only when the bucket has them. Each rule is a table of its\n"
        'own: [[acknowledge.rule]], path = "{run}/step-{step}", which also means everything below\n'
        'it; every_steps = 10: only steps that 10 divides; acknowledge = "local": an exception.\n'
        "The first rule that fits a path counts. Names that match drain.hold_patterns never wait.",
        (),
        checks.acknowledge_rules,
    )
    wait_seconds: float = key(
        "How long such a CLOSE is answered with NFS4ERR_DELAY before the answer is an error.\n"
        "0: until the bucket has the file. Linux does not tell a program of the error: with\n"
        "a limit, close() returns 0 after it.",
        0.0,
        checks.between(0, 4_000_000),
    )


class _Rule(NamedTuple):
    path: re.Pattern[bytes]
    every_steps: int
    by_bucket: bool


class Acknowledge:
    """The rules.

    Parameters: tables, which ``checks.acknowledge_rules`` has accepted; hold_patterns, of names
    that are not final.
    """

    def __init__(self, tables: Sequence[Mapping[str, Any]], hold_patterns: Iterable[str]) -> None:
        self._holds = Holds(hold_patterns)
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
