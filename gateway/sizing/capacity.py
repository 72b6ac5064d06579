"""The rates and the disks that take the saves, and what training without a gateway loses."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.settings import SpaceSettings
from gateway.sizing.figure import HOUR_SECONDS, Figure, Inputs, Unit, product, whole_up

SLOW_FROM = SpaceSettings.slow_from


def figures(inputs: Inputs) -> Iterator[Figure]:
    """Yield the figures."""
    yield from _saves(inputs)
    yield from _gateways(inputs)
    yield from _outage(inputs)
    yield from _losses(inputs)


def gateways(inputs: Inputs) -> int:
    """Return how many gateways take the saves in time, and keep up with draining them."""
    for_saves = _peak(inputs) / gateway_rate(inputs)
    for_drain = _drain_rate(inputs) / inputs.bucket_bytes_per_second
    return max(1, whole_up(max(for_saves, for_drain)))


def gateway_rate(inputs: Inputs) -> float:
    """Return how many bytes a second one gateway takes."""
    return min(inputs.network_bytes_per_second, inputs.disk_bytes_per_second)


def _saves(inputs: Inputs) -> Iterator[Figure]:
    made_of = "parameters x bytes per parameter"
    yield Figure(
        "checkpoint_bytes",
        "one checkpoint",
        Unit.BYTES,
        inputs.size_bytes,
        made_of if inputs.checkpoint_bytes is None else "as given",
    )
    yield Figure(
        "checkpoints_per_day",
        "checkpoints a day",
        Unit.COUNT,
        inputs.checkpoints_per_day,
        "of one job: 1 day / interval",
    )
    yield Figure(
        "write_bytes_per_second",
        "write rate of a job",
        Unit.BYTES_PER_SECOND,
        _write_rate(inputs),
        "one checkpoint / (interval x overlap)",
    )
    yield Figure(
        "peak_bytes_per_second",
        "write rate of all",
        Unit.BYTES_PER_SECOND,
        _peak(inputs),
        "write rate of a job x jobs that save at the same moment",
    )
    yield Figure(
        "drain_bytes_per_second",
        "steady drain rate",
        Unit.BYTES_PER_SECOND,
        _drain_rate(inputs),
        "one checkpoint x jobs / interval; a slower drain falls behind",
    )


def _gateways(inputs: Inputs) -> Iterator[Figure]:
    yield Figure(
        "gateway_bytes_per_second",
        "rate of a gateway",
        Unit.BYTES_PER_SECOND,
        gateway_rate(inputs),
        "the smaller of its network and its disk",
    )
    yield Figure(
        "gateways",
        "gateways",
        Unit.COUNT,
        gateways(inputs),
        "write rate of all / rate of a gateway, or steady drain rate / uplink of a gateway: "
        "the larger, rounded up",
    )
    yield Figure(
        "save_seconds",
        "save to one gateway",
        Unit.SECONDS,
        inputs.size_bytes / gateway_rate(inputs),
        "one checkpoint / rate of a gateway, which serves nothing else meanwhile",
    )
    yield Figure(
        "drain_seconds",
        "drain by one gateway",
        Unit.SECONDS,
        inputs.size_bytes / inputs.bucket_bytes_per_second,
        "one checkpoint / uplink of a gateway, which drains nothing else meanwhile",
    )


def _outage(inputs: Inputs) -> Iterator[Figure]:
    # The drain of a checkpoint may be unfinished when the outage begins.
    waiting = inputs.jobs * (whole_up(inputs.outage_seconds / inputs.interval_seconds) + 1)
    waiting_bytes = waiting * inputs.size_bytes
    yield Figure(
        "waiting_checkpoints",
        "wait in an outage",
        Unit.COUNT,
        waiting,
        "checkpoints: jobs x (outage / interval, rounded up, + the one that was being drained)",
    )
    yield Figure(
        "waiting_bytes",
        "room for them",
        Unit.BYTES,
        waiting_bytes,
        "on the disks of all gateways: checkpoints that wait x one checkpoint",
    )
    yield Figure(
        "gateway_disk_bytes",
        "disk of a gateway",
        Unit.BYTES,
        waiting_bytes / gateways(inputs) / SLOW_FROM,
        f"room for them / gateways / {SLOW_FROM:g}, the space.slow_from at which writers are "
        "slowed",
    )


def _losses(inputs: Inputs) -> Iterator[Figure]:
    gpus = product(inputs.jobs, inputs.gpus)
    yield Figure(
        "put_gpu_hours_per_day",
        "lost to PUTs",
        Unit.GPU_HOURS,
        product(gpus, inputs.checkpoints_per_day, inputs.put_seconds / HOUR_SECONDS),
        "a day without a gateway: jobs x GPUs x checkpoints a day x latency of a PUT",
        ("gpus",),
    )
    yield Figure(
        "throttle_gpu_hours_per_day",
        "lost to throttling",
        Unit.GPU_HOURS,
        product(gpus, inputs.throttle_events, inputs.throttle_seconds / HOUR_SECONDS),
        "a day without a gateway: jobs x GPUs x throttling events a day x wait of each",
        ("gpus", "throttle_events"),
    )


def _write_rate(inputs: Inputs) -> float:
    return inputs.size_bytes / (inputs.interval_seconds * inputs.overlap)


def _peak(inputs: Inputs) -> float:
    return _write_rate(inputs) * (inputs.jobs_together or inputs.jobs)


def _drain_rate(inputs: Inputs) -> float:
    return inputs.size_bytes * inputs.jobs / inputs.interval_seconds
