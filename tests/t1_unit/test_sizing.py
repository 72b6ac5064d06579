"""The figures of `spillway plan`, beside numbers that were computed by hand or by the drain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from gateway.drain.send.checksum import is_whole
from gateway.errors import UserError
from gateway.objectstore.objects import OBJECT_MAX_BYTES, part_bytes_of
from gateway.settings import DrainSettings
from gateway.sizing import capacity, cost
from gateway.sizing.figure import Inputs

B = 10**9
GB = 10**9
TB = 10**12
MIB = 1 << 20
MINUTE = 60
HOUR = 3600
DAY = 86_400

BASE = Inputs(
    parameters=None,
    bytes_per_parameter=14,
    checkpoint_bytes=350 * GB,
    interval_seconds=HOUR,
    overlap=0.1,
    jobs=1,
    jobs_together=None,
    gpus=None,
    files=None,
    network_bytes_per_second=12.5 * GB,
    disk_bytes_per_second=5 * GB,
    bucket_bytes_per_second=1.25 * GB,
    outage_seconds=8 * HOUR,
    put_seconds=0.035,
    throttle_events=None,
    throttle_seconds=2,
    run_days=30,
    keep_days=None,
    keep_newest=None,
    keep_every=None,
    tier_after_days=None,
    storage_usd=23,
    tier_usd=None,
    put_usd=None,
    part_bytes=16 * MIB,
)


def results(**changes: Any) -> dict[str, Any]:
    """Return the value of each figure, from the base with changes."""
    inputs = replace(BASE, **changes)
    return {one.name: one.value for one in (*capacity.figures(inputs), *cost.figures(inputs))}


@pytest.mark.parametrize(
    ("parameters", "interval_seconds", "gb_per_second", "tb"),
    [(405 * B, 15 * MINUTE, 63, 5.67), (1000 * B, 5 * MINUTE, 467, 14)],
)
def test_write_rate(parameters: int, interval_seconds: int, gb_per_second: int, tb: float) -> None:
    found = results(parameters=parameters, checkpoint_bytes=None, interval_seconds=interval_seconds)
    assert round(found["write_bytes_per_second"] / GB) == gb_per_second
    assert found["checkpoint_bytes"] == pytest.approx(tb * TB)


def test_gpu_hours_that_are_lost_without_a_gateway() -> None:
    found = results(jobs=200, gpus=64, interval_seconds=10 * MINUTE, throttle_events=2)
    assert found["checkpoints_per_day"] == 144
    assert found["put_gpu_hours_per_day"] == pytest.approx(17.92)
    assert found["throttle_gpu_hours_per_day"] == pytest.approx(14.22, abs=0.01)


def test_a_week_of_hourly_checkpoints() -> None:
    found = results(parameters=70 * B, bytes_per_parameter=5, checkpoint_bytes=None, keep_days=7)
    assert found["checkpoint_bytes"] == 350 * GB
    assert found["kept_checkpoints"] == 168
    assert found["stored_bytes"] == 58.8 * TB
    assert found["storage_usd_per_month"] == pytest.approx(1352.40)


def test_gateways_take_the_saves_of_jobs_that_save_at_the_same_moment() -> None:
    # 63 GB/s for each job.
    changes = {"checkpoint_bytes": 5670 * GB, "interval_seconds": 15 * MINUTE}
    fast = {"bucket_bytes_per_second": 100 * GB, "disk_bytes_per_second": 7 * GB}
    assert results(**changes, **fast)["gateways"] == 9
    assert results(**changes, **fast, jobs=10)["gateways"] == 90
    assert results(**changes, **fast, jobs=10, jobs_together=2)["gateways"] == 18
    slower = results(**changes, **fast | {"network_bytes_per_second": 6.25 * GB})
    assert (slower["gateway_bytes_per_second"], slower["gateways"]) == (6.25 * GB, 11)
    assert slower["save_seconds"] == pytest.approx(907.2)


def test_gateways_keep_up_with_the_drain() -> None:
    found = results(checkpoint_bytes=5670 * GB, interval_seconds=15 * MINUTE, overlap=1)
    assert found["drain_bytes_per_second"] == 6.3 * GB
    assert found["gateways"] == 6  # 6.3 GB/s / 1.25 GB/s; the saves need 2
    assert found["drain_seconds"] == 4536


def test_the_smallest_training_needs_a_gateway() -> None:
    assert results(checkpoint_bytes=1)["gateways"] == 1


@pytest.mark.parametrize(
    ("outage_seconds", "waiting"), [(0, 1), (1, 2), (HOUR, 2), (HOUR + 1, 3), (8 * HOUR, 9)]
)
def test_room_for_an_outage(outage_seconds: int, waiting: int) -> None:
    found = results(outage_seconds=outage_seconds, jobs=20)
    assert found["waiting_checkpoints"] == 20 * waiting
    assert found["waiting_bytes"] == 20 * waiting * 350 * GB
    assert found["gateways"] == 4
    assert found["gateway_disk_bytes"] == pytest.approx(20 * waiting * 350 * GB / 4 / 0.9)


def kept_one_by_one(made: int, days: int | None, n: int | None, k: int | None) -> list[int]:
    """Return the steps 1 to made that are kept, of a job that makes one step a day."""
    return [
        step
        for step in range(1, made + 1)
        if step == made
        or days is n is k is None
        or (days is not None and step > made - days)
        or (n is not None and step > made - n)
        or (k is not None and step % k == 0)
    ]


def test_the_policy_keeps_what_one_of_its_rules_keeps() -> None:
    some = (None, 1, 3, 20)
    for made, days, n, k in product((1, 2, 11, 12), some, some, (None, 1, 2, 3, 20)):
        inputs = replace(
            BASE, interval_seconds=DAY, run_days=made, keep_days=days, keep_newest=n, keep_every=k
        )
        steps = kept_one_by_one(made, days, n, k)
        assert cost.kept(inputs) == len(steps), inputs
        for newest in range(made + 2):
            young = [step for step in steps if step > made - newest]
            assert cost.kept(inputs, newest) == len(young), (newest, inputs)


@pytest.mark.parametrize("interval_seconds", [0.1, 0.3, 0.7, 700 / 3])
def test_no_checkpoint_is_lost_in_a_division(interval_seconds: float) -> None:
    days = interval_seconds * 6000 / DAY
    assert results(interval_seconds=interval_seconds, run_days=days)["kept_checkpoints"] == 6000


def test_a_second_storage_class() -> None:
    found = results(keep_days=7, tier_after_days=2, tier_usd=4, jobs=3)
    assert found["storage_usd_per_month"] == pytest.approx(3 * 48 * 0.35 * 23)
    assert found["tier_usd_per_month"] == pytest.approx(3 * 120 * 0.35 * 4)
    assert results(keep_days=7, tier_after_days=9, tier_usd=4)["tier_usd_per_month"] == 0
    assert "tier_usd_per_month" not in results(keep_days=7)


@pytest.mark.parametrize("part_bytes", [5 * MIB, 16 * MIB, 64 * MIB])
def test_puts_are_those_of_the_drain(part_bytes: int) -> None:
    drain = DrainSettings(part_bytes=part_bytes)
    edges = (1, 5 * MIB, 16 * MIB, 64 * MIB, 50_000 * MIB, 160_000 * MIB, TB, OBJECT_MAX_BYTES)
    for size in (edge + more for edge in edges for more in (-1, 0, 1)):
        if size > OBJECT_MAX_BYTES:
            with pytest.raises(UserError, match="more than an object can have"):
                cost.puts(size, part_bytes)
        elif is_whole(drain, size):
            assert cost.puts(size, part_bytes) == 1
        else:
            parts = -(-size // part_bytes_of(size, part_bytes))
            assert cost.puts(size, part_bytes) == parts + 2, size


def test_requests_of_a_month() -> None:
    found = results(checkpoint_bytes=160 * MIB, files=10, gpus=5, jobs=2, put_usd=0.01)
    assert found["puts_per_checkpoint"] == 10
    assert found["puts_per_month"] == 10 * 2 * 24 * 30
    assert found["put_usd_per_month"] == pytest.approx(0.144)
    assert results(checkpoint_bytes=160 * MIB, gpus=5)["puts_per_checkpoint"] == 5 * (2 + 2)


def test_what_is_not_known_is_left_out() -> None:
    found = results(tier_after_days=1)
    assert {name for name, value in found.items() if value is None} == {
        "put_gpu_hours_per_day",
        "throttle_gpu_hours_per_day",
        "tier_usd_per_month",
        "puts_per_checkpoint",
        "puts_per_month",
        "put_usd_per_month",
    }
