"""Makes regular expressions of the patterns of paths in the configuration. Pure."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"(\{run\}|\{step\}|\*|\?)")
_GROUPS = {
    "{run}": b"(?P<run>.+?)",
    "{step}": b"(?P<step>[0-9]{1,18})",
    "*": b"[^/]*",
    "?": b"[^/]",
}


def expression_of(pattern: str) -> bytes:
    """Return the expression of a pattern, for re.DOTALL.

    Parameters: pattern, of a path below the export: * and ? stay within one name, {step} is a
    number, {run} is anything, also over several names.
    """
    return b"".join(_GROUPS.get(one) or re.escape(one.encode()) for one in _TOKEN.split(pattern))
