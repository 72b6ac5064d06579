"""Says what a call asked for, as the audit log has it: also of a call that was refused."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from gateway.text import shown

BYTES_MAX = 4096
"""The most of a body that the audit log has."""
SECRET = frozenset({"token", "csrf", "secret", "password"})
HIDDEN = "…"


def asked(query: bytes, body: bytes, size_bytes: int, kind: str) -> str | None:
    """Return the parameters of a call as JSON, or None if it had none.

    Parameters: query; body, its first BYTES_MAX bytes; size_bytes, of the whole body; kind, its
    Content-Type.
    """
    found = _pairs(query)
    if size_bytes > len(body):
        found["body"] = f"{size_bytes} bytes"
    elif kind.startswith("application/x-www-form-urlencoded"):
        found.update(_pairs(body))
    elif body:
        try:
            said = json.loads(body)
        except ValueError:
            said = None
        found.update(said if isinstance(said, dict) else {"body": f"{size_bytes} bytes"})
    told = {name: HIDDEN if name in SECRET else value for name, value in found.items()}
    told.pop("csrf", None)
    return json.dumps(told) if told else None


def _pairs(text: bytes) -> dict[str, Any]:
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="replace")
    return {shown(name): shown(value) for name, value in pairs}
