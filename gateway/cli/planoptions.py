"""The options of `spillway plan`, and what they say of a training, its gateways and its bucket."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.cli.quantities import (
    AMOUNT,
    COUNT,
    DURATION,
    EVENTS,
    NUMBER,
    PARAMETERS,
    PRICE,
    RATE,
    SHARE,
    SIZE,
    WAIT,
    Kind,
)
from gateway.errors import UserError
from gateway.sizing.figure import Inputs


class Option(NamedTuple):
    """An option that is one of the inputs."""

    flag: str
    field: str
    """The name in ``Inputs``."""
    kind: Kind
    help: str
    default: str | None = None


GROUPS: dict[str, Sequence[Option]] = {
    "the training": (
        Option("--parameters", "parameters", PARAMETERS, "parameters of the model, like 405B"),
        Option(
            "--bytes-per-parameter",
            "bytes_per_parameter",
            NUMBER,
            "what a checkpoint has of each, with the state of the optimizer",
            "14",
        ),
        Option("--checkpoint-size", "checkpoint_bytes", SIZE, "in place of the parameters"),
        Option("--interval", "interval_seconds", DURATION, "from one save of a job to its next"),
        Option("--overlap", "overlap", SHARE, "of the interval, what a save may take", "10%"),
        Option("--jobs", "jobs", COUNT, "jobs that train at the same time", "1"),
        Option("--together", "jobs_together", COUNT, "jobs that save at the same moment, if fewer"),
        Option("--gpus", "gpus", COUNT, "GPUs of one job"),
        Option("--files", "files", COUNT, "files of a checkpoint, if not one for each GPU"),
    ),
    "one gateway": (
        Option("--network", "network_bytes_per_second", RATE, "its network card", "100Gbit/s"),
        Option("--disk", "disk_bytes_per_second", RATE, "writes to its NVMe disk", "5GB/s"),
        Option("--uplink", "bucket_bytes_per_second", RATE, "what it can drain", "10Gbit/s"),
        Option("--outage", "outage_seconds", WAIT, "for so long the bucket may be away", "8h"),
        Option("--part-size", "part_bytes", SIZE, "as drain.part_bytes", "16MiB"),
    ),
    "training without a gateway": (
        Option(
            "--put-latency", "put_seconds", WAIT, "all GPUs wait for so long at each save", "35ms"
        ),
        Option(
            "--throttle-events", "throttle_events", EVENTS, "times a day that the store throttles"
        ),
        Option(
            "--throttle-wait", "throttle_seconds", WAIT, "all GPUs wait for so long each time", "2s"
        ),
        Option("--direct-rate", "direct_bytes_per_second", RATE, "what a job writes to the bucket"),
    ),
    "stalls, restarts and energy": (
        Option("--stall", "stall_share", SHARE, "of a save, what the GPUs wait for", "100%"),
        Option("--restarts", "restarts_per_day", AMOUNT, "restarts of a job a day"),
        Option(
            "--good-interval",
            "good_seconds",
            DURATION,
            "from one good checkpoint to the next, if not each save gives one",
        ),
        Option("--storage-kw", "storage_kw", AMOUNT, "kW of the storage during a save"),
        Option("--gpu-kw", "gpu_kw", AMOUNT, "kW of a GPU that waits"),
    ),
    "the policy (a checkpoint stays if one rule keeps it; without rules all stay)": (
        Option("--run-days", "run_days", NUMBER, "length of the run", "30"),
        Option("--keep-days", "keep_days", NUMBER, "keep those of the last so many days"),
        Option("--keep-newest", "keep_newest", COUNT, "keep so many of the newest"),
        Option("--keep-every", "keep_every", COUNT, "keep one in so many"),
        Option("--tier-after-days", "tier_after_days", NUMBER, "then in another storage class"),
    ),
    "what stays in the bucket after its deletion": (
        Option("--trash-days", "trash_days", AMOUNT, "as retention.trash_seconds", "7"),
        Option("--trash-max", "trash_max_bytes", SIZE, "as retention.trash_max_bytes"),
        Option(
            "--job-keeps",
            "job_keeps",
            COUNT,
            "the job removes all but so many of its newest, as with save_total_limit",
        ),
        Option("--runs", "runs", COUNT, "runs that do so at the same time, if not one of each job"),
        Option("--rotation-hours", "rotation_hours", AMOUNT, "as retention.rotation_hours", "72"),
        Option(
            "--noncurrent-days",
            "noncurrent_days",
            NUMBER,
            "a versioned bucket keeps for so long what was deleted; it keeps it for ever without a "
            "rule that expires noncurrent versions",
        ),
    ),
    "prices in $ (list prices change; without a price its figure is left out)": (
        Option("--storage-price", "storage_usd", PRICE, "of a TB and a month; S3 Standard", "23"),
        Option("--tier-price", "tier_usd", PRICE, "of a TB and a month in the other class"),
        Option("--put-price", "put_usd", PRICE, "of 1,000 PUT requests"),
        Option("--gpu-price", "gpu_usd", PRICE, "of a GPU for an hour"),
        Option("--gateway-price", "gateway_usd", PRICE, "of a gateway for a month"),
    ),
}
OPTIONS = tuple(option for group in GROUPS.values() for option in group)
FLAGS = {option.field: option.flag for option in OPTIONS}


def inputs_of(args: argparse.Namespace) -> Inputs:
    """Return what the options say. Raises UserError."""
    values: dict[str, Any] = {}
    for option in OPTIONS:
        text = getattr(args, option.field)
        values[option.field] = None if text is None else option.kind.read(option.flag, text)
    inputs = Inputs(**values)
    _require_sense(inputs)
    return inputs


def _require_sense(inputs: Inputs) -> None:
    """Raise UserError if options do not fit together."""
    if (inputs.parameters is None) == (inputs.checkpoint_bytes is None):
        raise UserError("either --parameters or --checkpoint-size: see spillway plan --help")
    if inputs.interval_seconds is None:
        raise UserError("how often is saved? --interval TIME: see spillway plan --help")
    if (inputs.jobs_together or 0) > inputs.jobs:
        raise UserError(f"--together {inputs.jobs_together}: more than --jobs {inputs.jobs}")
    if inputs.tier_usd is not None and inputs.tier_after_days is None:
        raise UserError("--tier-price: from which age on? --tier-after-days NUMBER")
    if inputs.runs is not None and inputs.job_keeps is None:
        raise UserError("--runs: do the jobs remove their own checkpoints? --job-keeps N")
    if (inputs.runs or inputs.jobs) < inputs.jobs:
        raise UserError(f"--runs {inputs.runs}: fewer than --jobs {inputs.jobs}: each has one")
    if (inputs.good_seconds or inputs.interval_seconds) < inputs.interval_seconds:
        raise UserError("--good-interval: must be at least --interval: no save is sooner")
