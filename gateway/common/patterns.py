"""Patterns of the configuration: of names that are not final (holds), and of paths. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable


class IncompleteNames:
    """The hold patterns.

    A pattern is for one name, or, if it has a slash, for the whole path below the export.

    Args:
        patterns: shell patterns that tell upper from lower case.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = list(patterns)
        self._names = _matcher(pattern for pattern in patterns if "/" not in pattern)
        self._paths = _matcher(pattern.strip("/") for pattern in patterns if "/" in pattern)

    def holds(self, parts: Iterable[bytes], name: bytes) -> bool:
        """Return whether a name in a directory says that what is below it is not finished."""
        if self._names is not None and self._names(text_of(name)) is not None:
            return True
        if self._paths is None:
            return False
        return self._paths(text_of(b"/".join((*parts, name)))) is not None


def _matcher(patterns: Iterable[str]) -> Callable[[str], re.Match[str] | None] | None:
    alternatives = [fnmatch.translate(pattern) for pattern in patterns]
    return re.compile("|".join(alternatives)).match if alternatives else None


def text_of(name: bytes) -> str:
    """Return a name as the text that patterns are matched with."""
    return name.decode("utf-8", "surrogateescape")


_TOKEN = re.compile(r"(\{run\}|\{step\}|\*|\?)")
_GROUPS = {
    "{run}": b"(?P<run>.+?)",
    "{step}": b"(?P<step>[0-9]{1,18})",
    "*": b"[^/]*",
    "?": b"[^/]",
}


def expression_of(pattern: str) -> bytes:
    """Return the expression of a pattern, for re.DOTALL.

    Args:
        pattern: pattern of a path below the export: * and ? stay within one name, {step} is a
            number, {run} is anything, also over several names.
    """
    return b"".join(
        _GROUPS.get(token) or re.escape(token.encode()) for token in _TOKEN.split(pattern)
    )
