"""Text made of bytes that clients choose: one line for people, or a reversible form. Pure.

The reversible form is that of names in object keys, and of paths in requests. Valid UTF-8 stays
readable. Other bytes, control characters, U+FFFE and U+FFFF become %XX.
"""

from __future__ import annotations

import os
import re
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


# A % is escaped only where it would read as an escape, so that 100% stays 100%.
_ESCAPED = re.compile("[\x00-\x1f\x7f\ufffe\uffff\udc80-\udcff]|%(?=[0-9A-Fa-f]{2}|~)")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


def text_of(raw: bytes) -> str:
    """Return bytes as text. ``bytes_of`` is the inverse."""
    return _ESCAPED.sub(_escape, raw.decode("utf-8", "surrogateescape"))


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text of ``text_of``. Raises UnicodeEncodeError if the text has half a
    surrogate pair, which ``text_of`` never gives."""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text.encode())


def encoded(path: str) -> str:
    """Return a path or name of the command line (``os.fsdecode``) in the form that models have."""
    return text_of(os.fsencode(path))


def display(text: str) -> str:
    """Return a path or name of a model as it is shown to people."""
    return printable(bytes_of(text))


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogateescape"))
