"""Header of a request with a bearer token, for tests of access."""

from __future__ import annotations


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}
