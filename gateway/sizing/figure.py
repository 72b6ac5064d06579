"""What is known of a training, its gateways and its bucket, and the form of what follows from it.

Sizes, rates and prices are decimal, as networks and stores count: a TB has 10**12 bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Inputs:
    """What the figures are computed from.

    None: not known. Figures that need it have no value then. Durations, rates, sizes and counts
    are above 0, except that a wait, an outage, a price or the throttling may be 0.
    """

    parameters: float | None
    bytes_per_parameter: float
    checkpoint_bytes: float | None
    """None: it follows from the parameters, which are known then."""
    interval_seconds: float
    overlap: float
    """The share of the interval that a save may take, at most 1."""
    jobs: int
    jobs_together: int | None
    """Jobs that save at the same moment. None: all."""
    gpus: int | None
    """The GPUs of one job."""
    files: int | None
    """The files of one checkpoint. None: one for each GPU."""
    network_bytes_per_second: float
    disk_bytes_per_second: float
    bucket_bytes_per_second: float
    """What one gateway sends to the bucket."""
    outage_seconds: float
    put_seconds: float
    throttle_events: int | None
    """Throttlings on one day. All GPUs of all jobs wait for each."""
    throttle_seconds: float
    run_days: float
    keep_days: float | None
    keep_newest: int | None
    keep_every: int | None
    tier_after_days: float | None
    """The age from which on a checkpoint is in another storage class."""
    storage_usd: float
    """The price of a TB for a month."""
    tier_usd: float | None
    """The price of a TB for a month in the other class."""
    put_usd: float | None
    """The price of 1,000 PUT requests."""
    part_bytes: int

    @property
    def size_bytes(self) -> float:
        """The size of one checkpoint."""
        if self.checkpoint_bytes is not None:
            return self.checkpoint_bytes
        assert self.parameters is not None
        return self.parameters * self.bytes_per_parameter

    @property
    def checkpoints_per_day(self) -> float:
        """The checkpoints that one job makes."""
        return DAY_SECONDS / self.interval_seconds


class Unit(Enum):
    """The unit of a figure."""

    COUNT = auto()
    BYTES = auto()
    BYTES_PER_SECOND = auto()
    SECONDS = auto()
    GPU_HOURS = auto()
    USD = auto()


class Figure(NamedTuple):
    """A result, with the formula that it came from, in words."""

    name: str
    label: str
    unit: Unit
    value: float | None
    formula: str
    needs: tuple[str, ...] = ()
    """The inputs without which there is no value."""


def product(*factors: float | None) -> float | None:
    """Return None if one of the factors is not known."""
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def whole_up(value: float) -> int:
    return math.ceil(_even(value))


def whole_down(value: float) -> int:
    return math.floor(_even(value))


def _even(value: float) -> float:
    """Undo the error of a division of floats, which would make a count one too large or small."""
    return round(value, 6)
