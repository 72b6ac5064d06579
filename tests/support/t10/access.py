"""Shared by tests of access: bearer."""

from __future__ import annotations


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}
