"""What is known of a training, its gateways and its bucket, and the form of what follows from it.

Sizes, rates and prices are decimal, as networks and stores count: a TB has 10**12 bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

HOUR_SECONDS = 3600
DAY_SECONDS = 86_400
MONTH_DAYS = 30


@dataclass(frozen=True)
class Inputs:
    """What the figures are computed from.

    None: not known. Figures that need it have no value then. Durations, rates, sizes and counts
    are above 0, except that a wait, an outage, a price, a power, the throttling, the restarts, and
    the time for which something stays after its deletion may be 0.
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
    direct_bytes_per_second: float | None
    """What one job writes to the bucket."""
    stall_share: float
    """The share of a save for which the GPUs of its job wait."""
    restarts_per_day: float | None
    """Restarts of one job from its newest good checkpoint."""
    good_seconds: float | None
    """From one good checkpoint to the next. None: each is good."""
    storage_kw: float | None
    """What the storage takes while it is written to."""
    gpu_kw: float | None
    """What one GPU takes while it waits."""
    run_days: float
    keep_days: float | None
    keep_newest: int | None
    keep_every: int | None
    tier_after_days: float | None
    """The age from which on a checkpoint is in another storage class."""
    trash_days: float
    trash_max_bytes: int | None
    """The most that one gateway has in the trash."""
    job_keeps: int | None
    """The job removes all but so many of its newest. None: it removes none."""
    runs: int | None
    """The runs that remove their own at the same time. None: one of each job."""
    rotation_hours: float
    """For so long what a job removed waits for a newer one at most."""
    noncurrent_days: float | None
    """For so long a versioned bucket has what was deleted. None: it has no versions."""
    storage_usd: float
    """The price of a TB for a month."""
    tier_usd: float | None
    """The price of a TB for a month in the other class."""
    put_usd: float | None
    """The price of 1,000 PUT requests."""
    gpu_usd: float | None
    """The price of a GPU for an hour."""
    gateway_usd: float | None
    """The price of a gateway for a month."""
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
    KWH = auto()
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
