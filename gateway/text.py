"""Makes one line of text of what clients could influence. Pure."""

from __future__ import annotations

from collections.abc import Callable

Text = Callable[[bytes], str]
"""Makes text of a name or path: ``printable`` for people, or another one that can be read back."""


def printable(name: bytes) -> str:
    """Return a name or path that can be shown, for any bytes that a client chose."""
    return shown(name.decode("utf-8", "backslashreplace"))


def shown(text: str) -> str:
    """Escape a text that clients could influence: terminals obey control characters, and line
    breaks would forge lines of a log."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
