"""Where the tests run: the checkout of the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
