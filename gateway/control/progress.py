"""How far long work is, for those who wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.serialize import Model


@dataclass(frozen=True, slots=True)
class Progress(Model):
    """How far long work is."""

    done: int
    """Names, files or bytes, as the text says."""
    total: int | None
    """None: it is not known."""
    text: str
    """One line."""
    in_bytes: bool = False
    """Whether done and total are bytes, so that a rate and the time to go can be told."""


Tell = Callable[[Progress], None]
"""Called now and then by long work. What it raises ends the work."""
