"""What a policy keeps in the bucket, and the price of a month of it at the end of the run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gateway.errors import UserError
from gateway.sizing.figure import Figure, Inputs, Unit, product, whole_down

MONTH_DAYS = 30
TB = 10**12

# These are the drain's own numbers. Its modules take a tenth of a second to import.
MIB = 1 << 20
WHOLE_BYTES = 16 * MIB
PARTS_MAX = 10_000
OBJECT_MAX_BYTES = PARTS_MAX * 5 * 1024 * MIB


def figures(inputs: Inputs) -> Iterator[Figure]:
    """Yield the figures. Raises UserError if a file is larger than an object can be."""
    yield from _storage(inputs)
    yield from _requests(inputs)


def kept(inputs: Inputs, newest: int | None = None) -> int:
    """Return how many checkpoints of a job the policy keeps at the end of the run.

    Parameters: newest, to count only among so many of the newest. A checkpoint stays if one of the
    rules keeps it, and the newest one always. Without rules all stay.
    """
    made = _made(inputs, inputs.run_days)
    if inputs.keep_days is inputs.keep_newest is inputs.keep_every is None:
        window = made
    else:
        recent = 0 if inputs.keep_days is None else _made(inputs, inputs.keep_days)
        window = max(1, recent, inputs.keep_newest or 0)
    counted = made if newest is None else min(made, newest)
    if inputs.keep_every is None or counted <= window:
        return min(window, counted)
    older, uncounted = made - window, made - counted
    return window + older // inputs.keep_every - uncounted // inputs.keep_every


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


def _storage(inputs: Inputs) -> Iterator[Figure]:
    count = kept(inputs)
    stored_bytes = inputs.jobs * count * inputs.size_bytes
    yield Figure("kept_checkpoints", "kept of a job", Unit.COUNT, count, _policy_text(inputs))
    yield Figure(
        "stored_bytes",
        "in the bucket",
        Unit.BYTES,
        stored_bytes,
        "checkpoints kept x jobs x one checkpoint",
    )
    first_bytes, what = stored_bytes, "in the bucket"
    if inputs.tier_after_days is not None:
        young = kept(inputs, _made(inputs, inputs.tier_after_days))
        first_bytes = inputs.jobs * young * inputs.size_bytes
        what = f"what is younger than {inputs.tier_after_days:g} days"
    yield Figure(
        "storage_usd_per_month",
        "storage a month",
        Unit.USD,
        first_bytes / TB * inputs.storage_usd,
        f"{what}, in TB x price of a TB and a month",
    )
    if inputs.tier_after_days is not None:
        yield Figure(
            "tier_usd_per_month",
            "other class a month",
            Unit.USD,
            product((stored_bytes - first_bytes) / TB, inputs.tier_usd),
            "what is older, in TB x price of a TB and a month there; without the requests that "
            "move it",
            ("tier_usd",),
        )


def _requests(inputs: Inputs) -> Iterator[Figure]:
    files = inputs.files or inputs.gpus
    needs = ("files",) if files is None else ()
    each = None
    if files is not None:
        each = files * puts(math.ceil(inputs.size_bytes / files), inputs.part_bytes)
    monthly = product(each, inputs.jobs, inputs.checkpoints_per_day, MONTH_DAYS)
    yield Figure(
        "puts_per_checkpoint",
        "PUTs a checkpoint",
        Unit.COUNT,
        each,
        "files x parts of a file, and two more for a file that is sent in parts",
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


def _made(inputs: Inputs, days: float) -> int:
    """Return the checkpoints that a job makes in so many days."""
    return whole_down(days * inputs.checkpoints_per_day)


def _policy_text(inputs: Inputs) -> str:
    rules = []
    if inputs.keep_days is not None:
        rules.append(f"those of the last {inputs.keep_days:g} days")
    if inputs.keep_newest is not None:
        rules.append(f"the newest {inputs.keep_newest}")
    if inputs.keep_every is not None:
        rules.append(f"one in {inputs.keep_every}")
    return f"{' and '.join(rules) or 'all'}, at the end of a run of {inputs.run_days:g} days"
