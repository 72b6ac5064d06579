"""Object keys: the path of a file below the export, made UTF-8. Pure.

Two paths never share a key, and a key leads back to its path. What is valid UTF-8 stays readable;
only bytes that are not (and control characters, which XML listings cannot carry) become %XX.
``<prefix>/.spillway/`` is ours: no path of a client maps below it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OURS = ".spillway"
"""First component, below the prefix, of everything in the bucket that is not a client's file."""
_OURS_ESCAPED = "%2Espillway"

# A % is itself escaped only where it would read as an escape, so that 100% stays 100%.
_ESCAPED = re.compile("[\x00-\x1f\x7f\udc80-\udcff]|%(?=[0-9A-Fa-f]{2})")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_INVALID_BYTE = 0xDC00


def key_of(prefix: str, parts: Sequence[bytes]) -> str:
    """The key of a path.

    Parameters: prefix, without slashes at its ends, may be empty; parts, the names below the
    export, at least one, none empty.
    """
    names = [_ESCAPED.sub(_escape, part.decode("utf-8", "surrogateescape")) for part in parts]
    if names[0] == OURS:
        names[0] = _OURS_ESCAPED
    return _below(prefix, "/".join(names))


def parts_of(prefix: str, key: str) -> list[bytes]:
    """The path of a key: the inverse of key_of.

    Raises: ValueError for a key that is not below the prefix, or is one of ours.
    """
    start = _below(prefix, "")
    path = key[len(start) :]
    if not key.startswith(start) or not path or path.split("/", 1)[0] == OURS:
        raise ValueError(f"not the key of a file below {start!r}: {key!r}")
    return [
        _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), name.encode())
        for name in path.split("/")
    ]


def staging_key(prefix: str, ino: int) -> str:
    """Where the object of an inode waits while another file takes its old key."""
    return _below(prefix, f"{OURS}/staging/{ino}")


def _below(prefix: str, path: str) -> str:
    return f"{prefix}/{path}" if prefix else path


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"%{code - _INVALID_BYTE if code >= _INVALID_BYTE else code:02X}"
