"""The figures of `spillway plan`, beside numbers that were computed by hand or by the drain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from gateway.appliance import comparison, sizing
from gateway.appliance.comparison import ComparedWay, ComparisonLine
from gateway.appliance.sizing import Inputs
from gateway.common.errors import UserError
from gateway.config.settings import DrainSettings
from gateway.drain.send.checksum import is_whole
from gateway.objectstore.objects import OBJECT_MAX_BYTES, part_bytes_of

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
    direct_bytes_per_second=None,
    stall_share=1,
    restarts_per_day=None,
    good_seconds=None,
    storage_kw=None,
    gpu_kw=None,
    run_days=30,
    keep_days=None,
    keep_newest=None,
    keep_every=None,
    tier_after_days=None,
    trash_days=0,
    trash_max_bytes=None,
    job_keeps=None,
    runs=None,
    rotation_hours=72,
    noncurrent_days=None,
    storage_usd=23,
    tier_usd=None,
    put_usd=None,
    gpu_usd=None,
    gateway_usd=None,
    part_bytes=16 * MIB,
)


def results(**changes: Any) -> dict[str, Any]:
    """Return the value of each figure, from the base with changes."""
    inputs = replace(BASE, **changes)
    parts = (sizing.capacity_figures, sizing.loss_figures, sizing.figures)
    return {figure.name: figure.value for figures in parts for figure in figures(inputs)}


def compared(**changes: Any) -> dict[str, ComparisonLine]:
    """Return the lines of the comparison, from the base with changes."""
    return {line.name: line for line in comparison.lines(replace(BASE, **changes))}


@pytest.mark.parametrize(
    ("parameters", "interval_seconds", "gb_per_second", "tb"),
    [(405 * B, 15 * MINUTE, 63, 5.67), (1000 * B, 5 * MINUTE, 467, 14)],
)
def test_write_rate(parameters: int, interval_seconds: int, gb_per_second: int, tb: float) -> None:
    figures = results(
        parameters=parameters, checkpoint_bytes=None, interval_seconds=interval_seconds
    )
    assert round(figures["write_bytes_per_second"] / GB) == gb_per_second
    assert figures["checkpoint_bytes"] == pytest.approx(tb * TB)


def test_gpu_hours_that_are_lost_without_a_gateway() -> None:
    figures = results(jobs=200, gpus=64, interval_seconds=10 * MINUTE, throttle_events=2)
    assert figures["checkpoints_per_day"] == 144
    assert figures["put_gpu_hours_per_day"] == pytest.approx(17.92)
    assert figures["throttle_gpu_hours_per_day"] == pytest.approx(14.22, abs=0.01)


def test_a_week_of_hourly_checkpoints() -> None:
    figures = results(parameters=70 * B, bytes_per_parameter=5, checkpoint_bytes=None, keep_days=7)
    assert figures["checkpoint_bytes"] == 350 * GB
    assert figures["kept_checkpoints"] == 168
    assert figures["stored_bytes"] == 58.8 * TB
    assert figures["storage_usd_per_month"] == pytest.approx(1352.40)


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
    figures = results(checkpoint_bytes=5670 * GB, interval_seconds=15 * MINUTE, overlap=1)
    assert figures["drain_bytes_per_second"] == 6.3 * GB
    assert figures["gateways"] == 6  # 6.3 GB/s / 1.25 GB/s; the saves need 2
    assert figures["drain_seconds"] == 4536


def test_the_smallest_training_needs_a_gateway() -> None:
    assert results(checkpoint_bytes=1)["gateways"] == 1


@pytest.mark.parametrize(
    ("outage_seconds", "waiting"), [(0, 1), (1, 2), (HOUR, 2), (HOUR + 1, 3), (8 * HOUR, 9)]
)
def test_room_for_an_outage(outage_seconds: int, waiting: int) -> None:
    figures = results(outage_seconds=outage_seconds, jobs=20)
    assert figures["waiting_checkpoints"] == 20 * waiting
    assert figures["waiting_bytes"] == 20 * waiting * 350 * GB
    assert figures["gateways"] == 4
    assert figures["gateway_disk_bytes"] == pytest.approx(20 * waiting * 350 * GB / 4 / 0.9)


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
        assert sizing.kept(inputs) == len(steps), inputs
        for newest in range(made + 2):
            young = [step for step in steps if step > made - newest]
            assert sizing.kept(inputs, newest) == len(young), (newest, inputs)


def test_a_week_of_trash_is_most_of_a_bucket_that_keeps_three() -> None:
    few = {"checkpoint_bytes": TB, "interval_seconds": 30 * MINUTE, "keep_newest": 3}
    figures = results(**few, trash_days=7)
    assert figures["kept_bytes"] == 3 * TB
    assert figures["trash_bytes"] == 7 * 48 * TB
    assert figures["stored_bytes"] == 339 * TB
    assert figures["storage_usd_per_month"] == pytest.approx(7797)
    assert results(**few, trash_days=0)["storage_usd_per_month"] == pytest.approx(69)
    # A run that is younger than the trash has not deleted so many.
    assert results(**few, trash_days=7, run_days=1)["stored_bytes"] == 48 * TB


def test_the_trash_has_a_limit_of_each_gateway_but_what_is_young_stays() -> None:
    few = {"checkpoint_bytes": TB, "interval_seconds": 30 * MINUTE, "keep_newest": 3}
    figures = results(**few, trash_days=7, trash_max_bytes=10 * TB)
    assert figures["gateways"] == 2
    assert figures["trash_bytes"] == 20 * TB
    # Two saves an hour are deleted, and nothing is removed early within an hour.
    assert results(**few, trash_days=7, trash_max_bytes=1)["trash_bytes"] == 2 * TB
    assert results(**few, trash_days=0, trash_max_bytes=1)["trash_bytes"] == 0
    assert results(**few, trash_days=7, trash_max_bytes=10**18)["trash_bytes"] == 336 * TB


def stock_one_by_one(inputs: Inputs) -> tuple[int, int, int, int]:
    """Return what ``stock.through_gateway`` returns, of one job that makes one step a day."""
    end = int(inputs.run_days)
    window = max(1, int(inputs.keep_days or 0), inputs.keep_newest or 0)
    has_rules = (inputs.keep_days, inputs.keep_newest, inputs.keep_every) != (None, None, None)
    by_job: dict[int, int] = {}
    by_policy: dict[int, int] = {}
    for step in range(1, end + 1):
        is_one_in = inputs.keep_every is not None and step % inputs.keep_every == 0
        policy_day = step + window if has_rules and not is_one_in else None
        job_day = step + inputs.job_keeps if inputs.job_keeps is not None else None
        if job_day is not None and (policy_day is None or job_day <= policy_day):
            by_job[step] = job_day
        elif policy_day is not None:
            by_policy[step] = policy_day
    leaves = {step: day + int(inputs.trash_days) for step, day in by_policy.items()}
    for step, day in by_job.items():
        newer = min((other for other in by_job.values() if other > day), default=end + 1000)
        leaves[step] = min(newer, day + int(inputs.rotation_hours / 24))
    deleted = by_job | by_policy
    steps = range(1, end + 1)
    return (
        sum(deleted.get(step, end + 1) > end for step in steps),
        sum(by_policy.get(step, end + 1) <= end < leaves.get(step, 0) for step in steps),
        sum(by_job.get(step, end + 1) <= end < leaves.get(step, 0) for step in steps),
        sum(
            end - (inputs.noncurrent_days or 0) < leaves.get(step, end + 1) <= end for step in steps
        ),
    )


def test_what_is_deleted_stays_in_the_bucket_for_its_time() -> None:
    some = (None, 1, 4)
    rules = product(some, some, (None, 3), (None, 1, 2, 6))
    times = ((0, 0, None), (5, 72, None), (5, 48, 4), (0, 72, 4))
    for days, newest, every, job in rules:
        for (trash, rotation, noncurrent), end in product(times, (1, 3, 17, 18)):
            inputs = replace(
                BASE,
                interval_seconds=DAY,
                run_days=end,
                keep_days=days,
                keep_newest=newest,
                keep_every=every,
                job_keeps=job,
                trash_days=trash,
                rotation_hours=rotation,
                noncurrent_days=noncurrent,
            )
            assert sizing.through_gateway(inputs)[:4] == stock_one_by_one(inputs), inputs


def test_one_checkpoint_of_each_run_is_held_for_a_newer_one() -> None:
    assert results(job_keeps=3, jobs=5)["held_bytes"] == 5 * 350 * GB
    assert results(job_keeps=3, jobs=5, runs=9)["held_bytes"] == 9 * 350 * GB
    assert results(job_keeps=3, jobs=5, rotation_hours=0)["held_bytes"] == 0
    assert results(keep_newest=3, jobs=5)["held_bytes"] == 0


def test_noncurrent_versions_of_a_bucket_with_versions() -> None:
    figures = results(keep_newest=2, jobs=3, trash_days=7, noncurrent_days=1)
    assert figures["noncurrent_bytes"] == 3 * 24 * 350 * GB
    assert figures["stored_bytes"] == 3 * (2 + 7 * 24 + 24) * 350 * GB


@pytest.mark.parametrize("interval_seconds", [0.1, 0.3, 0.7, 700 / 3])
def test_no_checkpoint_is_lost_in_a_division(interval_seconds: float) -> None:
    days = interval_seconds * 6000 / DAY
    assert results(interval_seconds=interval_seconds, run_days=days)["kept_checkpoints"] == 6000


def test_a_second_storage_class() -> None:
    figures = results(keep_days=7, tier_after_days=2, tier_usd=4, jobs=3)
    assert figures["storage_usd_per_month"] == pytest.approx(3 * 48 * 0.35 * 23)
    assert figures["tier_usd_per_month"] == pytest.approx(3 * 120 * 0.35 * 4)
    assert results(keep_days=7, tier_after_days=9, tier_usd=4)["tier_usd_per_month"] == 0
    assert "tier_usd_per_month" not in results(keep_days=7)


def test_what_is_deleted_stays_in_its_storage_class() -> None:
    late = {"trash_days": 1, "noncurrent_days": 2, "tier_usd": 4}
    figures = results(keep_days=7, tier_after_days=2, **late)
    assert figures["storage_usd_per_month"] == pytest.approx(48 * 0.35 * 23)
    assert figures["tier_usd_per_month"] == pytest.approx((120 + 24 + 48) * 0.35 * 4)
    figures = results(keep_days=2, tier_after_days=3, **late)
    assert figures["storage_usd_per_month"] == pytest.approx((48 + 24 + 48) * 0.35 * 23)
    assert figures["tier_usd_per_month"] == 0
    # A job that removes its own leaves nothing for the other class.
    assert results(job_keeps=2, tier_after_days=1, **late)["tier_usd_per_month"] == 0


@pytest.mark.parametrize("part_bytes", [5 * MIB, 16 * MIB, 64 * MIB])
def test_puts_are_those_of_the_drain(part_bytes: int) -> None:
    drain = DrainSettings(part_bytes=part_bytes)
    edges = (1, 5 * MIB, 16 * MIB, 64 * MIB, 50_000 * MIB, 160_000 * MIB, TB, OBJECT_MAX_BYTES)
    for size in (edge + more for edge in edges for more in (-1, 0, 1)):
        if size > OBJECT_MAX_BYTES:
            with pytest.raises(UserError, match="more than an object can have"):
                sizing.puts(size, part_bytes)
        elif is_whole(drain, size):
            assert sizing.puts(size, part_bytes) == 1
        else:
            parts = -(-size // part_bytes_of(size, part_bytes))
            assert sizing.puts(size, part_bytes) == parts + 2, size


def test_requests_of_a_month() -> None:
    figures = results(checkpoint_bytes=160 * MIB, files=10, gpus=5, jobs=2, put_usd=0.01)
    assert figures["puts_per_checkpoint"] == 10 + 1
    assert figures["puts_per_month"] == 11 * 2 * 24 * 30
    assert figures["put_usd_per_month"] == pytest.approx(0.1584)
    assert results(checkpoint_bytes=160 * MIB, gpus=5)["puts_per_checkpoint"] == 5 * (2 + 2) + 1


def test_restarts_lose_half_an_interval_on_each_gpu() -> None:
    lost = {"restarts_per_day": 0.5, "gpus": 512, "jobs": 2}
    figures = results(**lost, gpu_usd=2)
    assert figures["restart_gpu_hours_per_month"] == pytest.approx(0.5 * 30 * 2 * 512 * 0.5)
    assert figures["restart_usd_per_month"] == pytest.approx(2 * 7680)
    assert results(**lost, good_seconds=3 * HOUR)["restart_gpu_hours_per_month"] == 3 * 7680


def test_energy_of_the_storage_and_of_gpus_that_wait() -> None:
    # 350 GB at 5 GB/s take 70 s.
    power = {"storage_kw": 5, "gpu_kw": 0.4, "gpus": 100}
    figures = results(**power)
    assert figures["stall_seconds"] == pytest.approx(70)
    assert figures["checkpoint_kwh"] == pytest.approx((5 + 40) * 70 / 3600)
    assert figures["kwh_per_month"] == pytest.approx(720 * 45 * 70 / 3600)
    figures = results(**power, stall_share=0.1)
    assert figures["stall_seconds"] == pytest.approx(7)
    assert figures["checkpoint_kwh"] == pytest.approx((5 * 70 + 40 * 7) / 3600)
    # Three jobs share one gateway, whose rate limits them.
    shared = results(jobs=3, **power, disk_bytes_per_second=10 * GB)
    assert (shared["gateways"], shared["stall_seconds"]) == (1, pytest.approx(105))
    alone = results(jobs=3, jobs_together=1, **power, disk_bytes_per_second=10 * GB)
    assert alone["stall_seconds"] == pytest.approx(35)


def test_the_ways_are_compared() -> None:
    lines = compared(
        keep_newest=10,
        trash_days=2,
        noncurrent_days=1,
        gpus=100,
        direct_bytes_per_second=GB,
        restarts_per_day=1,
        throttle_events=36,
        put_usd=0.005,
        gpu_usd=2,
        gateway_usd=1000,
    )
    in_order = (ComparedWay.DIRECT_ALL, ComparedWay.DIRECT, ComparedWay.GATEWAY)
    values = {name: [line.values[way] for way in in_order] for name, line in lines.items()}
    assert values["stall_seconds"] == pytest.approx([350.035, 350.035, 70])
    stored = [720, 10 + 24, 10 + 48 + 24]
    assert values["stored_bytes"] == pytest.approx([350 * GB * count for count in stored])
    puts = 100 * (209 + 2)  # 3.5 GB in parts of 16 MiB
    assert values["puts_per_month"] == pytest.approx([720 * (puts + more) for more in (0, 0, 1)])
    restarts, throttled = 30 * 100 * 0.5, 30 * 36 * 100 * 2 / 3600
    lost = [720 * 100 * stall / 3600 + restarts for stall in (350.035, 350.035, 70)]
    lost = [lost[0] + throttled, lost[1] + throttled, lost[2]]
    assert values["lost_gpu_hours_per_month"] == pytest.approx(lost)
    assert values["usd_per_month"] == pytest.approx(
        [
            count * 0.35 * 23 + 720 * (puts + more) / 1000 * 0.005 + 2 * hours + 1000 * more
            for count, hours, more in zip(stored, lost, (0, 0, 1), strict=True)
        ]
    )
    assert lines["usd_per_month"].formula == "storage + requests + gateways + lost GPU-hours"


def test_only_what_is_known_of_each_way_is_compared() -> None:
    # The GPU-hours are known of the gateway alone: its price would be higher by them.
    lines = compared(gpus=64, gpu_usd=2)
    assert lines["lost_gpu_hours_per_month"].values[ComparedWay.GATEWAY] is not None
    assert lines["lost_gpu_hours_per_month"].values[ComparedWay.DIRECT] is None
    money = lines["usd_per_month"]
    assert money.formula == "storage; left out: requests, gateways, lost GPU-hours"
    assert money.values == dict.fromkeys(ComparedWay, pytest.approx(720 * 0.35 * 23))
    # Without the price of the class that most is in, there is no sum.
    assert compared(tier_after_days=1)["usd_per_month"].values == dict.fromkeys(ComparedWay)
    tiered = compared(tier_after_days=1, tier_usd=4, keep_newest=3)["usd_per_month"].values
    assert tiered[ComparedWay.DIRECT_ALL] == pytest.approx((24 * 23 + 696 * 4) * 0.35)
    assert tiered[ComparedWay.DIRECT] == pytest.approx(3 * 23 * 0.35)


def test_what_is_not_known_is_left_out() -> None:
    figures = results(tier_after_days=1)
    assert {name for name, value in figures.items() if value is None} == {
        "put_gpu_hours_per_day",
        "throttle_gpu_hours_per_day",
        "restart_gpu_hours_per_month",
        "restart_usd_per_month",
        "checkpoint_kwh",
        "kwh_per_month",
        "tier_usd_per_month",
        "puts_per_checkpoint",
        "puts_per_month",
        "put_usd_per_month",
    }
