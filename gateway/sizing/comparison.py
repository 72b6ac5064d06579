"""The same training without gateways, which keeps all or what the policy keeps, and with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from gateway.sizing import capacity, cost, losses, stock
from gateway.sizing.figure import Inputs, Unit, product
from gateway.sizing.stock import Stock


class Way(StrEnum):
    """How checkpoints get into the bucket, and what deletes them there."""

    DIRECT_ALL = "direct_keep_all"
    DIRECT = "direct_with_policy"
    GATEWAY = "through_gateway"


_STOCKS: dict[Way, Callable[[Inputs], Stock]] = {
    Way.DIRECT_ALL: stock.direct_all,
    Way.DIRECT: stock.direct,
    Way.GATEWAY: stock.through_gateway,
}


Values = dict[Way, float | None]


class Line(NamedTuple):
    """What is compared: a value for each way, and how the values come about."""

    name: str
    label: str
    unit: Unit
    values: Values
    formula: str
    needs: tuple[str, ...] = ()
    """The inputs without which a value, or a part of it, is missing."""


def lines(inputs: Inputs) -> Iterator[Line]:
    """Yield the lines of the table. Raises UserError as ``cost.figures``."""
    yield Line(
        "stall_seconds",
        "stall of a save",
        Unit.SECONDS,
        {way: _stall(inputs, way) for way in Way},
        f"direct: one checkpoint / rate of a job to the bucket x {inputs.stall_share:.0%} + "
        "latency of a PUT; through the gateway: as above",
        ("direct_bytes_per_second",),
    )
    yield Line(
        "stored_bytes",
        "in the bucket",
        Unit.BYTES,
        {way: _STOCKS[way](inputs).total * inputs.size_bytes for way in Way},
        "direct: all saves, or what is kept and noncurrent versions; through the gateway: as above",
    )
    puts = _puts(inputs)
    yield Line(
        "puts_per_month",
        "PUTs a month",
        Unit.COUNT,
        puts,
        "direct: the same without the manifests; through the gateway: as above",
        cost.files_needed(inputs),
    )
    lost = {way: _lost(inputs, way) for way in Way}
    yield _money(inputs, puts, lost)
    yield Line(
        "lost_gpu_hours_per_month",
        "lost a month",
        Unit.GPU_HOURS,
        lost,
        "jobs x GPUs x stall of a save x saves"
        f"{_given(inputs, 'restarts_per_day', 'lost to restarts')}"
        f"{_given(inputs, 'throttle_events', 'lost to throttling where there is no gateway')}",
        ("gpus", "direct_bytes_per_second", "restarts_per_day", "throttle_events"),
    )


def _stall(inputs: Inputs, way: Way) -> float | None:
    if way is Way.GATEWAY:
        return losses.stall_seconds(inputs)
    return losses.direct_stall_seconds(inputs)


def _puts(inputs: Inputs) -> Values:
    return {way: cost.puts_per_month(inputs, int(way is Way.GATEWAY)) for way in Way}


def _lost(inputs: Inputs, way: Way) -> float | None:
    stalled = losses.stalled_gpu_hours(inputs, _stall(inputs, way))
    if stalled is None:
        return None
    throttled = None if way is Way.GATEWAY else losses.throttled_gpu_hours(inputs)
    return stalled + (losses.restart_gpu_hours(inputs) or 0) + (throttled or 0)


def _money(inputs: Inputs, puts: Values, lost: Values) -> Line:
    """Return the price of a month: the parts that are known for each way, so that the sums can be
    compared."""
    gateways = capacity.gateways(inputs)
    parts: dict[str, Values] = {
        "storage": {way: _storage_usd(inputs, way) for way in Way},
        "requests": {way: product(puts[way], 1 / 1000, inputs.put_usd) for way in Way},
        "gateways": {
            way: product(gateways if way is Way.GATEWAY else 0, inputs.gateway_usd) for way in Way
        },
        "lost GPU-hours": {way: product(lost[way], inputs.gpu_usd) for way in Way},
    }
    known = {
        name: part for name, part in parts.items() if name == "storage" or None not in part.values()
    }
    unknown = ", ".join(name for name in parts if name not in known)
    return Line(
        "usd_per_month",
        "cost of a month",
        Unit.USD,
        {way: _sum(part[way] for part in known.values()) for way in Way},
        " + ".join(known) + (f"; left out: {unknown}" if unknown else ""),
        (
            *(() if inputs.tier_after_days is None else ("tier_usd",)),
            *("put_usd", *cost.files_needed(inputs), "gateway_usd"),
            *("gpu_usd", "gpus", "direct_bytes_per_second"),
        ),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _storage_usd(inputs: Inputs, way: Way) -> float | None:
    first, other = cost.storage_usd(inputs, _STOCKS[way](inputs))
    return None if other is None else first + other


def _given(inputs: Inputs, name: str, text: str) -> str:
    return "" if getattr(inputs, name) is None else f" + {text}"
