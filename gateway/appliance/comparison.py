"""Comparison for ``spillway plan``: the same training without gateways and with them.

Without gateways the bucket keeps every checkpoint, or what the same policy would keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from gateway.appliance import sizing
from gateway.appliance.sizing import CheckpointStock, Inputs, Unit, product


class ComparedWay(StrEnum):
    """How checkpoints get into the bucket, and what deletes them there."""

    DIRECT_ALL = "direct_keep_all"
    DIRECT = "direct_with_policy"
    GATEWAY = "through_gateway"


_STOCKS: dict[ComparedWay, Callable[[Inputs], CheckpointStock]] = {
    ComparedWay.DIRECT_ALL: sizing.direct_all,
    ComparedWay.DIRECT: sizing.direct,
    ComparedWay.GATEWAY: sizing.through_gateway,
}


Values = dict[ComparedWay, float | None]


class ComparisonLine(NamedTuple):
    """What is compared: a value for each way, and how the values come about."""

    name: str
    label: str
    unit: Unit
    values: Values
    formula: str
    needs: tuple[str, ...] = ()
    """The inputs without which a value, or a part of it, is missing."""


def lines(inputs: Inputs) -> Iterator[ComparisonLine]:
    """Yield the lines of the table. Raises UserError as ``cost.figures``."""
    yield ComparisonLine(
        "stall_seconds",
        "stall of a save",
        Unit.SECONDS,
        {way: _stall(inputs, way) for way in ComparedWay},
        f"direct: one checkpoint / rate of a job to the bucket x {inputs.stall_share:.0%} + "
        "latency of a PUT; through the gateway: as above",
        ("direct_bytes_per_second",),
    )
    yield ComparisonLine(
        "stored_bytes",
        "in the bucket",
        Unit.BYTES,
        {way: _STOCKS[way](inputs).total * inputs.size_bytes for way in ComparedWay},
        "direct: all saves, or what is kept and noncurrent versions; through the gateway: as above",
    )
    puts = _puts(inputs)
    yield ComparisonLine(
        "puts_per_month",
        "PUTs a month",
        Unit.COUNT,
        puts,
        "direct: the same without the manifests; through the gateway: as above",
        sizing.files_needed(inputs),
    )
    lost = {way: _lost(inputs, way) for way in ComparedWay}
    yield _money(inputs, puts, lost)
    yield ComparisonLine(
        "lost_gpu_hours_per_month",
        "lost a month",
        Unit.GPU_HOURS,
        lost,
        "jobs x GPUs x stall of a save x saves"
        f"{_given(inputs, 'restarts_per_day', 'lost to restarts')}"
        f"{_given(inputs, 'throttle_events', 'lost to throttling where there is no gateway')}",
        ("gpus", "direct_bytes_per_second", "restarts_per_day", "throttle_events"),
    )


def _stall(inputs: Inputs, way: ComparedWay) -> float | None:
    if way is ComparedWay.GATEWAY:
        return sizing.stall_seconds(inputs)
    return sizing.direct_stall_seconds(inputs)


def _puts(inputs: Inputs) -> Values:
    return {
        way: sizing.puts_per_month(inputs, int(way is ComparedWay.GATEWAY)) for way in ComparedWay
    }


def _lost(inputs: Inputs, way: ComparedWay) -> float | None:
    stalled = sizing.stalled_gpu_hours(inputs, _stall(inputs, way))
    if stalled is None:
        return None
    throttled = None if way is ComparedWay.GATEWAY else sizing.throttled_gpu_hours(inputs)
    return stalled + (sizing.restart_gpu_hours(inputs) or 0) + (throttled or 0)


def _money(inputs: Inputs, puts: Values, lost: Values) -> ComparisonLine:
    """Return the price of a month: the parts that are known for each way, so that the sums can be
    compared."""
    gateways = sizing.gateway_count(inputs)
    parts: dict[str, Values] = {
        "storage": {way: _storage_usd(inputs, way) for way in ComparedWay},
        "requests": {way: product(puts[way], 1 / 1000, inputs.put_usd) for way in ComparedWay},
        "gateways": {
            way: product(gateways if way is ComparedWay.GATEWAY else 0, inputs.gateway_usd)
            for way in ComparedWay
        },
        "lost GPU-hours": {way: product(lost[way], inputs.gpu_usd) for way in ComparedWay},
    }
    known = {
        name: part for name, part in parts.items() if name == "storage" or None not in part.values()
    }
    unknown = ", ".join(name for name in parts if name not in known)
    return ComparisonLine(
        "usd_per_month",
        "cost of a month",
        Unit.USD,
        {way: _sum(part[way] for part in known.values()) for way in ComparedWay},
        " + ".join(known) + (f"; left out: {unknown}" if unknown else ""),
        (
            *(() if inputs.tier_after_days is None else ("tier_usd",)),
            *("put_usd", *sizing.files_needed(inputs), "gateway_usd"),
            *("gpu_usd", "gpus", "direct_bytes_per_second"),
        ),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _storage_usd(inputs: Inputs, way: ComparedWay) -> float | None:
    first, other = sizing.storage_usd(inputs, _STOCKS[way](inputs))
    return None if other is None else first + other


def _given(inputs: Inputs, name: str, text: str) -> str:
    return "" if getattr(inputs, name) is None else f" + {text}"
