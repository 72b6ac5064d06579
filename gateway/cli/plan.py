"""Command `spillway plan`: says how large a gateway must be, and what checkpoints cost.

It needs no configuration and no gateway. The options describe a training, its gateways and its
bucket.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any, NamedTuple

from gateway.appliance import comparison, sizing
from gateway.appliance.comparison import ComparedWay, ComparisonLine
from gateway.appliance.sizing import Figure, Inputs, Unit
from gateway.cli import output
from gateway.cli.options import (
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
    QuantityKind,
)
from gateway.common.errors import UserError
from gateway.common.units import decimal_size, duration


class Option(NamedTuple):
    """An option that is one of the inputs."""

    flag: str
    field: str
    """The name in ``Inputs``."""
    kind: QuantityKind
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


COLUMNS = ("figure", ">value", "formula")
WIDTH = 100
LABEL_WIDTH = 22
VALUE_WIDTH = 17
WAYS = {
    ComparedWay.DIRECT_ALL: "direct, keep all",
    ComparedWay.DIRECT: "direct, by the policy",
    ComparedWay.GATEWAY: "through the gateway",
}
WAY_WIDTH = 23

EPILOG = """\
A SIZE is like 350GB, a RATE like 100Gbit/s or 5GB/s, a TIME like 35ms, 15m or 1d. Units are
decimal, as networks and prices use them: a TB has 10^12 bytes. A TiB has 2^40.

examples:
  How many gateways take 405 billion parameters every 15 minutes?
    spillway plan --parameters 405B --interval 15m --network 100Gbit/s --disk 7GB/s

  What does the bucket keep, and what does it cost, if each hour's checkpoint stays for a week?
    spillway plan --checkpoint-size 350GB --interval 1h --keep-days 7

  What do restarts and stalls cost, with a gateway and without?
    spillway plan --parameters 70B --interval 1h --gpus 512 --restarts 2 --direct-rate 2GB/s
"""
ASSUMED = (
    "The rates of a gateway are inputs and not measured: give those of your machine. The prices "
    "are inputs too: the default is a list price of S3 Standard, and list prices change."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("--json", action="store_true", help="the same figures as JSON")
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for option in options:
            default = "" if option.default is None else f" (default: {option.default})"
            group.add_argument(
                option.flag,
                dest=option.field,
                default=option.default,
                metavar=option.kind.metavar,
                help=(option.help + default).replace("%", "%%"),
            )


def run(args: argparse.Namespace) -> int:
    """Print the figures. Returns exit status 0. Raises UserError."""
    inputs = inputs_of(args)
    figures = [
        *sizing.capacity_figures(inputs),
        *sizing.loss_figures(inputs),
        *sizing.figures(inputs),
    ]
    lines = list(comparison.lines(inputs))
    if args.json:
        print(json.dumps(_facts(inputs, figures, lines), indent=2))
    else:
        rows = [_cells(inputs, figure) for figure in figures]
        head = _wrapped_row(tuple(column.lstrip(">") for column in COLUMNS))
        lines_of_figures = chain(head, *map(_wrapped_row, rows))
        output.show_table(COLUMNS, rows, plain=lines_of_figures)
        print()
        compared = [_compared(inputs, line) for line in lines]
        titles = ("compared", *(f">{title}" for title in WAYS.values()), "formula")
        head = [_across("compared", WAYS.values())]
        output.show_table(titles, compared, plain=chain(head, *map(_wrapped_line, compared)))
        print(*_remarks(args), sep="\n")
    return 0


def _missing(inputs: Inputs, needs: Sequence[str]) -> str:
    """Return the options that must be given for what needs some inputs."""
    return ", ".join(FLAGS[name] for name in needs if getattr(inputs, name) is None)


def _facts(
    inputs: Inputs, figures: Sequence[Figure], lines: Sequence[ComparisonLine]
) -> dict[str, Any]:
    absent = {line.name: _missing(inputs, line.needs) for line in lines}
    return {
        "inputs": asdict(inputs),
        "results": {figure.name: figure.value for figure in figures},
        "formulas": {figure.name: figure.formula for figure in figures},
        "left_out": {
            figure.name: _missing(inputs, figure.needs)
            for figure in figures
            if figure.value is None
        },
        "comparison": {
            "results": {
                way: {line.name: line.values[way] for line in lines} for way in ComparedWay
            },
            "formulas": {line.name: line.formula for line in lines},
            "left_out": {name: flags for name, flags in absent.items() if flags},
        },
    }


def _cells(inputs: Inputs, figure: Figure) -> tuple[str, ...]:
    if figure.value is None:
        return figure.label, "left out", f"needs {_missing(inputs, figure.needs)}"
    return figure.label, _shown(figure.unit, figure.value), figure.formula


def _wrapped_row(cells: tuple[str, ...]) -> list[str]:
    label, value, how = cells
    return _wrapped(f"{label:<{LABEL_WIDTH}}{value:<{VALUE_WIDTH}} ", how)


def _compared(inputs: Inputs, line: ComparisonLine) -> tuple[str, ...]:
    values = (line.values[way] for way in ComparedWay)
    absent = _missing(inputs, line.needs)
    return (
        line.label,
        *("left out" if value is None else _shown(line.unit, value) for value in values),
        f"{line.formula}; what is left out needs {absent}" if absent else line.formula,
    )


def _wrapped_line(cells: tuple[str, ...]) -> list[str]:
    label, *values, how = cells
    return [_across(label, values), *_wrapped("    ", how)]


def _across(label: str, values: Iterable[str]) -> str:
    columns = "".join(f"{value:<{WAY_WIDTH}}" for value in values)
    return f"{label:<{LABEL_WIDTH}}{columns}".rstrip()


def _remarks(args: argparse.Namespace) -> Iterator[str]:
    given = ((option.flag, getattr(args, option.field)) for option in OPTIONS)
    yield ""
    text = " ".join(f"{flag}={text}" for flag, text in given if text is not None)
    yield from _wrapped("computed with ", text)
    yield from _wrapped("", ASSUMED)


def _wrapped(start: str, text: str) -> list[str]:
    indent = " " * len(start)
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    )


def _shown(unit: Unit, value: float) -> str:
    match unit:
        case Unit.BYTES:
            return decimal_size(value)
        case Unit.BYTES_PER_SECOND:
            return f"{decimal_size(value)}/s"
        case Unit.SECONDS:
            return duration(value)
        case Unit.GPU_HOURS:
            return f"{_number(value)} GPU-hours"
        case Unit.KWH:
            return f"{_number(value)} kWh"
        case Unit.USD:
            return f"{value:,.2f} $"
        case Unit.COUNT:
            return _number(value)


def _number(value: float) -> str:
    """Format a number that may have decimals if it is small."""
    return f"{value:,.0f}" if value >= 999.5 or value % 1 == 0 else f"{value:.3g}"
