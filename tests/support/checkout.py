"""Root of the checkout in which the tests run."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
