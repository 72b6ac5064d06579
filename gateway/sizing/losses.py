"""What training loses to its saves and restarts, and the energy that a save takes."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.sizing import capacity
from gateway.sizing.figure import (
    HOUR_SECONDS,
    MONTH_DAYS,
    Figure,
    Inputs,
    Unit,
    product,
)

_SAVES = f"jobs x checkpoints a day x {MONTH_DAYS}"


def figures(inputs: Inputs) -> Iterator[Figure]:
    """Yield the figures."""
    yield from _restarts(inputs)
    yield from _energy(inputs)


def save_seconds(inputs: Inputs) -> float:
    """Return how long a save takes while all jobs that save together share the gateways."""
    together = inputs.jobs_together or inputs.jobs
    rate = capacity.gateways(inputs) * capacity.gateway_rate(inputs)
    return inputs.size_bytes * together / rate


def stall_seconds(inputs: Inputs) -> float:
    """Return for how long the GPUs of a job wait for a save to the gateways."""
    return save_seconds(inputs) * inputs.stall_share


def direct_stall_seconds(inputs: Inputs) -> float | None:
    """Return for how long they wait for a save to the bucket. None: its rate is not known."""
    if inputs.direct_bytes_per_second is None:
        return None
    seconds = inputs.size_bytes / inputs.direct_bytes_per_second
    return seconds * inputs.stall_share + inputs.put_seconds


def stalled_gpu_hours(inputs: Inputs, seconds: float | None) -> float | None:
    """Return what a stall at each save costs the GPUs of all jobs in a month."""
    saves = inputs.jobs * inputs.checkpoints_per_day * MONTH_DAYS
    return product(inputs.gpus, saves, seconds, 1 / HOUR_SECONDS)


def restart_gpu_hours(inputs: Inputs) -> float | None:
    """Return what restarts cost the GPUs of all jobs in a month."""
    lost = (inputs.good_seconds or inputs.interval_seconds) / 2 / HOUR_SECONDS
    return product(inputs.jobs, inputs.gpus, inputs.restarts_per_day, MONTH_DAYS, lost)


def throttled_gpu_hours(inputs: Inputs) -> float | None:
    """Return what the throttling of a bucket without a gateway costs them in a month."""
    waits = product(inputs.throttle_events, inputs.throttle_seconds / HOUR_SECONDS, MONTH_DAYS)
    return product(inputs.jobs, inputs.gpus, waits)


def _restarts(inputs: Inputs) -> Iterator[Figure]:
    needs = ("gpus", "restarts_per_day")
    interval = "interval" if inputs.good_seconds is None else "interval between good checkpoints"
    yield Figure(
        "restart_gpu_hours_per_month",
        "lost to restarts",
        Unit.GPU_HOURS,
        restart_gpu_hours(inputs),
        f"a month: jobs x GPUs x restarts a day x half the {interval} x {MONTH_DAYS}",
        needs,
    )
    yield Figure(
        "restart_usd_per_month",
        "restarts a month",
        Unit.USD,
        product(restart_gpu_hours(inputs), inputs.gpu_usd),
        "lost to restarts x price of a GPU-hour",
        (*needs, "gpu_usd"),
    )


def _energy(inputs: Inputs) -> Iterator[Figure]:
    yield Figure(
        "stall_seconds",
        "stall of a save",
        Unit.SECONDS,
        stall_seconds(inputs),
        "one checkpoint x jobs that save at the same moment / (gateways x rate of a gateway) x "
        f"{inputs.stall_share:.0%}, for which the GPUs wait (--stall)",
    )
    gpus_kw = product(inputs.gpus, inputs.gpu_kw)
    each = None
    if gpus_kw is not None and inputs.storage_kw is not None:
        waiting = gpus_kw * stall_seconds(inputs)
        each = (inputs.storage_kw * save_seconds(inputs) + waiting) / HOUR_SECONDS
    needs = ("gpus", "storage_kw", "gpu_kw")
    yield Figure(
        "checkpoint_kwh",
        "energy of a save",
        Unit.KWH,
        each,
        "kW of the storage x its save + GPUs x kW of a waiting GPU x stall of a save",
        needs,
    )
    yield Figure(
        "kwh_per_month",
        "energy a month",
        Unit.KWH,
        product(each, inputs.jobs, inputs.checkpoints_per_day, MONTH_DAYS),
        f"energy of a save x {_SAVES}",
        needs,
    )
