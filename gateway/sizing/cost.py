"""What the bucket has at the end of a run, and the price of a month of it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gateway.errors import UserError
from gateway.sizing import stock
from gateway.sizing.figure import MONTH_DAYS, Figure, Inputs, Unit, product
from gateway.sizing.stock import Stock

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


def storage_usd(inputs: Inputs, there: Stock) -> tuple[float, float | None]:
    """Return the price of a month of what is in the bucket's own class, and in the other one, or
    None if the price of that is not known."""
    tb = inputs.size_bytes / TB
    other_usd = 0.0 if inputs.tier_after_days is None else product(there.old * tb, inputs.tier_usd)
    return (there.total - there.old) * tb * inputs.storage_usd, other_usd


def puts_per_month(inputs: Inputs, more: int) -> float | None:
    """Return the requests of all jobs. None: it is not known how many files a checkpoint has.

    Parameters: more, requests for a checkpoint besides those for its files.
    """
    each = _puts(inputs)
    saves = inputs.jobs * inputs.checkpoints_per_day * MONTH_DAYS
    return None if each is None else (each + more) * saves


def files_needed(inputs: Inputs) -> tuple[str, ...]:
    """Return the input without which the requests are not known."""
    return ("files",) if (inputs.files or inputs.gpus) is None else ()


def _stored(inputs: Inputs) -> Iterator[Figure]:
    there = stock.through_gateway(inputs)
    yield Figure(
        "kept_checkpoints", "kept of a job", Unit.COUNT, stock.kept(inputs), _policy_text(inputs)
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
    first_usd, tier_usd = storage_usd(inputs, stock.through_gateway(inputs))
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
    each, monthly = _puts(inputs), puts_per_month(inputs, 1)
    yield Figure(
        "puts_per_checkpoint",
        "PUTs a checkpoint",
        Unit.COUNT,
        None if each is None else each + 1,
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
