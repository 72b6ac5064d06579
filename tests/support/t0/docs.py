"""Documents that the tests of t0_tidy read."""

from __future__ import annotations

from tests.support.checkout import ROOT

DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "gateway/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)
