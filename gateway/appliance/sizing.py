"""Arithmetic of ``spillway plan``: rates, disks, objects in the bucket, cost, lost training time.

``Inputs`` describes a training, its gateways and its bucket. Each ``Figure`` has the formula that
it came from. ``capacity_figures`` has the rates and disks that take the saves, ``figures`` what the
bucket has at the end of a run and what a month of it costs, ``loss_figures`` what saves and
restarts cost the training.

Sizes, rates and prices are decimal, as networks and stores count: a TB has 10**12 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from gateway.common.errors import UserError
from gateway.config.settings import RetentionSettings, SpaceSettings

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


SLOW_FROM = SpaceSettings.slow_from


def capacity_figures(inputs: Inputs) -> Iterator[Figure]:
    """Yield the figures."""
    yield from _saves(inputs)
    yield from _gateways(inputs)
    yield from _outage(inputs)
    yield from _losses(inputs)


def gateway_count(inputs: Inputs) -> int:
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
        gateway_count(inputs),
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
        waiting_bytes / gateway_count(inputs) / SLOW_FROM,
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


SHORT_DAYS = RetentionSettings.trash_short_seconds / DAY_SECONDS
"""For so long the trash keeps also what is more than its limit."""


class CheckpointStock(NamedTuple):
    """Checkpoints of all jobs, in numbers of whole ones: a limit in bytes leaves a fraction."""

    kept: float
    trash: float = 0.0
    held: float = 0.0
    """What jobs removed themselves, and what stays until a newer one is durable."""
    noncurrent: float = 0.0
    """What was deleted in a bucket that keeps versions."""
    old: float = 0.0
    """How many of these are in the other storage class."""

    @property
    def total(self) -> float:
        return self.kept + self.trash + self.held + self.noncurrent


def through_gateway(inputs: Inputs) -> CheckpointStock:
    """Return what the bucket has behind gateways."""
    days = inputs.run_days
    there = CheckpointStock(
        inputs.jobs * kept(inputs),
        _trash(inputs, days),
        _held(inputs, days),
        _since(inputs, days, inputs.noncurrent_days, _removed),
    )
    return there._replace(old=_old(inputs, there))


def direct(inputs: Inputs) -> CheckpointStock:
    """Return what the bucket has without gateways, if something else deletes by the same rules."""
    days = inputs.run_days
    noncurrent = _since(inputs, days, inputs.noncurrent_days, _deleted)
    there = CheckpointStock(inputs.jobs * kept(inputs), noncurrent=noncurrent)
    return there._replace(old=_old(inputs, there))


def direct_all(inputs: Inputs) -> CheckpointStock:
    """Return what the bucket has without gateways, if nothing is deleted."""
    total = made(inputs, inputs.run_days)
    after = inputs.tier_after_days
    old = 0 if after is None else max(0, total - made(inputs, after))
    return CheckpointStock(inputs.jobs * total, old=inputs.jobs * old)


def kept(inputs: Inputs, newest: int | None = None, days: float | None = None) -> int:
    """Return how many checkpoints of a job stay at the end of the run.

    A checkpoint stays if one of the rules keeps it, and the newest one always. Without rules all
    stay. A job that removes its own keeps nothing else.

    Args:
        newest: to count only among so many of the newest.
        days: for the end of a run of this length.
    """
    total = made(inputs, inputs.run_days if days is None else days)
    limits = (limit for limit in (newest, inputs.job_keeps, total) if limit is not None)
    return _by_rules(inputs, total, min(limits))


def made(inputs: Inputs, days: float) -> int:
    """Return the checkpoints that a job makes in so many days."""
    return whole_down(max(0.0, days) * inputs.checkpoints_per_day)


def _old(inputs: Inputs, there: CheckpointStock) -> float:
    """Return how many of what is there are in the other storage class."""
    if inputs.tier_after_days is None:
        return 0
    young = made(inputs, inputs.tier_after_days)
    old = there.kept - inputs.jobs * kept(inputs, young)
    window = _window(inputs, made(inputs, inputs.run_days))
    # What is deleted stays in the class that it had.
    is_moved_first = min(window, inputs.job_keeps or window) >= young
    return old + there.trash + there.noncurrent if is_moved_first else old


def _window(inputs: Inputs, total: int) -> int:
    """Return how many of the newest the rules keep, of so many that a job made."""
    if inputs.keep_days is inputs.keep_newest is inputs.keep_every is None:
        return total
    recent = 0 if inputs.keep_days is None else made(inputs, inputs.keep_days)
    return max(1, recent, inputs.keep_newest or 0)


def _by_rules(inputs: Inputs, total: int, counted: int) -> int:
    window = _window(inputs, total)
    if inputs.keep_every is None or counted <= window:
        return min(window, counted)
    older, uncounted = total - window, total - counted
    return window + older // inputs.keep_every - uncounted // inputs.keep_every


def _since(
    inputs: Inputs, days: float, last: float | None, until: Callable[[Inputs, float], float]
) -> float:
    """Return by how much a number grew in the last days before then. Without their number: 0."""
    return 0.0 if last is None else until(inputs, days) - until(inputs, days - last)


def _deleted(inputs: Inputs, days: float) -> float:
    """Return what policy and jobs deleted until then. This and the next ones are of all jobs."""
    return inputs.jobs * (made(inputs, days) - kept(inputs, days=days))


def _trashed(inputs: Inputs, days: float) -> float:
    """Return what the policy put into the trash until then."""
    total = made(inputs, days)
    if inputs.job_keeps is not None and _window(inputs, total) >= inputs.job_keeps:
        # The job removes each one before the policy would.
        return 0
    return inputs.jobs * (total - _by_rules(inputs, total, total))


def _trash(inputs: Inputs, days: float) -> float:
    """Return what is in the trash then."""
    there = _since(inputs, days, inputs.trash_days, _trashed)
    if inputs.trash_max_bytes is None:
        return there
    limit = gateway_count(inputs) * inputs.trash_max_bytes / inputs.size_bytes
    young = _since(inputs, days, min(SHORT_DAYS, inputs.trash_days), _trashed)
    return min(there, max(limit, young))


def _rotated(inputs: Inputs, days: float) -> float:
    """Return what the jobs removed themselves until then."""
    return _deleted(inputs, days) - _trashed(inputs, days)


def _held(inputs: Inputs, days: float) -> float:
    """Return what is held for a newer checkpoint then, at most."""
    if inputs.job_keeps is None:
        return 0
    return min(
        inputs.runs or inputs.jobs, _since(inputs, days, inputs.rotation_hours / 24, _rotated)
    )


def _removed(inputs: Inputs, days: float) -> float:
    """Return what was deleted from the bucket until then."""
    return _deleted(inputs, days) - _trash(inputs, days) - _held(inputs, days)


TB = 10**12

# These are the drain's own numbers. Its modules take a tenth of a second to import.
MIB = 1 << 20
WHOLE_BYTES = 16 * MIB
PARTS_MAX = 10_000
OBJECT_MAX_BYTES = PARTS_MAX * 5 * 1024 * MIB


def figures(inputs: Inputs) -> Iterator[Figure]:
    """Yield the figures. Raises UserError if a file is larger than an object can be."""
    yield from _stored(inputs)
    yield from _storage(inputs)
    yield from _requests(inputs)


def puts(file_bytes: int, part_bytes: int) -> int:
    """Return the requests that the drain sends for a file, as the price list counts PUTs.

    Raises: UserError if no object can be so large.
    """
    if file_bytes > OBJECT_MAX_BYTES:
        raise UserError(
            f"a file of {file_bytes} bytes is more than an object can have ({OBJECT_MAX_BYTES}): "
            "a checkpoint needs more files"
        )
    if file_bytes <= min(WHOLE_BYTES, part_bytes):
        return 1
    least_bytes = -(-file_bytes // PARTS_MAX)
    part_bytes = max(part_bytes, -(-least_bytes // MIB) * MIB)
    # The upload is begun and completed by a request of its own each.
    return -(-file_bytes // part_bytes) + 2


def storage_usd(inputs: Inputs, there: CheckpointStock) -> tuple[float, float | None]:
    """Return the price of a month of what is in the bucket's own class, and in the other one, or
    None if the price of that is not known."""
    tb = inputs.size_bytes / TB
    other_usd = 0.0 if inputs.tier_after_days is None else product(there.old * tb, inputs.tier_usd)
    return (there.total - there.old) * tb * inputs.storage_usd, other_usd


def puts_per_month(inputs: Inputs, more: int) -> float | None:
    """Return the requests of all jobs. None: it is not known how many files a checkpoint has.

    Args:
        more: requests for a checkpoint besides those for its files.
    """
    puts_each = _puts(inputs)
    saves = inputs.jobs * inputs.checkpoints_per_day * MONTH_DAYS
    return None if puts_each is None else (puts_each + more) * saves


def files_needed(inputs: Inputs) -> tuple[str, ...]:
    """Return the input without which the requests are not known."""
    return ("files",) if (inputs.files or inputs.gpus) is None else ()


def _stored(inputs: Inputs) -> Iterator[Figure]:
    there = through_gateway(inputs)
    yield Figure(
        "kept_checkpoints", "kept of a job", Unit.COUNT, kept(inputs), _policy_text(inputs)
    )
    parts = {
        "kept": ("kept of all", there.kept, "checkpoints kept x jobs x one checkpoint"),
        "trash": ("in the trash", there.trash, _trash_text(inputs)),
        "held": ("held for a newer one", there.held, _held_text(inputs)),
        "noncurrent": ("noncurrent versions", there.noncurrent, _versions_text(inputs)),
        "stored": ("in the bucket", there.total, "the sum of these"),
    }
    for name, (label, count, formula) in parts.items():
        yield Figure(f"{name}_bytes", label, Unit.BYTES, count * inputs.size_bytes, formula)


def _storage(inputs: Inputs) -> Iterator[Figure]:
    first_usd, tier_usd = storage_usd(inputs, through_gateway(inputs))
    what = "in the bucket"
    if inputs.tier_after_days is not None:
        what = f"what did not reach {inputs.tier_after_days:g} days before it was deleted"
    yield Figure(
        "storage_usd_per_month",
        "storage a month",
        Unit.USD,
        first_usd,
        f"{what}, in TB x price of a TB and a month",
    )
    if inputs.tier_after_days is not None:
        yield Figure(
            "tier_usd_per_month",
            "other class a month",
            Unit.USD,
            tier_usd,
            "what is older, in TB x price of a TB and a month there; without the requests that "
            "move it",
            ("tier_usd",),
        )


def _requests(inputs: Inputs) -> Iterator[Figure]:
    needs = files_needed(inputs)
    puts_each, monthly = _puts(inputs), puts_per_month(inputs, 1)
    yield Figure(
        "puts_per_checkpoint",
        "PUTs a checkpoint",
        Unit.COUNT,
        None if puts_each is None else puts_each + 1,
        "files x parts of a file, two more for a file that is sent in parts, and the manifest",
        needs,
    )
    yield Figure(
        "puts_per_month",
        "PUTs a month",
        Unit.COUNT,
        monthly,
        f"PUTs a checkpoint x jobs x checkpoints a day x {MONTH_DAYS}",
        needs,
    )
    yield Figure(
        "put_usd_per_month",
        "requests a month",
        Unit.USD,
        product(monthly, 1 / 1000, inputs.put_usd),
        "PUTs a month / 1,000 x price of 1,000",
        (*needs, "put_usd"),
    )


def _puts(inputs: Inputs) -> int | None:
    """Return the requests for the files of a checkpoint. None: their number is not known."""
    files = inputs.files or inputs.gpus
    if files is None:
        return None
    return files * puts(math.ceil(inputs.size_bytes / files), inputs.part_bytes)


def _policy_text(inputs: Inputs) -> str:
    rules = []
    if inputs.keep_days is not None:
        rules.append(f"those of the last {inputs.keep_days:g} days")
    if inputs.keep_newest is not None:
        rules.append(f"the newest {inputs.keep_newest}")
    if inputs.keep_every is not None:
        rules.append(f"one in {inputs.keep_every}")
    text = " and ".join(rules) or "all"
    if inputs.job_keeps is not None:
        text += f", as far as the job itself keeps them, its newest {inputs.job_keeps}"
    return f"{text}, at the end of a run of {inputs.run_days:g} days"


def _trash_text(inputs: Inputs) -> str:
    text = f"what the policy deleted in the last {inputs.trash_days:g} days (--trash-days)"
    if inputs.trash_max_bytes is not None:
        text += ", at most --trash-max x gateways; what was deleted in the last hour stays"
    return text


def _held_text(inputs: Inputs) -> str:
    if inputs.job_keeps is None:
        return "nothing: the job removes none itself (--job-keeps)"
    return (
        "at most one of a run: the job removed it, and no newer one is durable yet, for up to "
        f"{inputs.rotation_hours:g} hours"
    )


def _versions_text(inputs: Inputs) -> str:
    if inputs.noncurrent_days is None:
        return "nothing: the bucket is not versioned (--noncurrent-days)"
    return (
        f"what was deleted from the bucket in the last {inputs.noncurrent_days:g} days, which a "
        "versioned bucket keeps"
    )


_SAVES = f"jobs x checkpoints a day x {MONTH_DAYS}"


def loss_figures(inputs: Inputs) -> Iterator[Figure]:
    """Yield the figures."""
    yield from _restarts(inputs)
    yield from _energy(inputs)


def save_seconds(inputs: Inputs) -> float:
    """Return how long a save takes while all jobs that save together share the gateways."""
    together = inputs.jobs_together or inputs.jobs
    rate = gateway_count(inputs) * gateway_rate(inputs)
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
    kwh_each = None
    if gpus_kw is not None and inputs.storage_kw is not None:
        waiting = gpus_kw * stall_seconds(inputs)
        kwh_each = (inputs.storage_kw * save_seconds(inputs) + waiting) / HOUR_SECONDS
    needs = ("gpus", "storage_kw", "gpu_kw")
    yield Figure(
        "checkpoint_kwh",
        "energy of a save",
        Unit.KWH,
        kwh_each,
        "kW of the storage x its save + GPUs x kW of a waiting GPU x stall of a save",
        needs,
    )
    yield Figure(
        "kwh_per_month",
        "energy a month",
        Unit.KWH,
        product(kwh_each, inputs.jobs, inputs.checkpoints_per_day, MONTH_DAYS),
        f"energy of a save x {_SAVES}",
        needs,
    )
