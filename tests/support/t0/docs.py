"""Shared by tests of docs: DOCUMENTS."""

from __future__ import annotations

from tests.support.checkout import ROOT

DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "gateway/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)
