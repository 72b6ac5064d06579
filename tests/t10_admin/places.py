"""Every page of the seeded site: its name in pictures, and its address."""

from __future__ import annotations

PLACES = {
    "dashboard": "/",
    "checkpoints": "/checkpoints",
}
