"""`spillway plan`: says how large a gateway must be, and what checkpoints cost.

It needs no configuration and no gateway.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from gateway.cli import table
from gateway.cli.planoptions import FLAGS, GROUPS, OPTIONS, inputs_of
from gateway.sizing import capacity, comparison, cost, losses
from gateway.sizing.comparison import Line, Way
from gateway.sizing.figure import Figure, Inputs, Unit
from gateway.units import decimal_size, duration

COLUMNS = ("figure", ">value", "formula")
WIDTH = 100
LABEL_WIDTH = 22
VALUE_WIDTH = 17
WAYS = {
    Way.DIRECT_ALL: "direct, keep all",
    Way.DIRECT: "direct, by the policy",
    Way.GATEWAY: "through the gateway",
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
    figures = [*capacity.figures(inputs), *losses.figures(inputs), *cost.figures(inputs)]
    lines = list(comparison.lines(inputs))
    if args.json:
        print(json.dumps(_facts(inputs, figures, lines), indent=2))
    else:
        rows = [_cells(inputs, figure) for figure in figures]
        table.show(COLUMNS, rows, chain.from_iterable(map(_wrapped_row, rows)))
        print()
        compared = [_compared(inputs, line) for line in lines]
        titles = ("compared", *(f">{title}" for title in WAYS.values()), "formula")
        table.show(
            titles, compared, chain([_across("", WAYS.values())], *map(_wrapped_line, compared))
        )
        print(*_remarks(args), sep="\n")
    return 0


def _missing(inputs: Inputs, needs: Sequence[str]) -> str:
    """Return the options that must be given for what needs some inputs."""
    return ", ".join(FLAGS[name] for name in needs if getattr(inputs, name) is None)


def _facts(inputs: Inputs, figures: Sequence[Figure], lines: Sequence[Line]) -> dict[str, Any]:
    absent = {line.name: _missing(inputs, line.needs) for line in lines}
    return {
        "inputs": asdict(inputs),
        "results": {figure.name: figure.value for figure in figures},
        "formulas": {figure.name: figure.formula for figure in figures},
        "left_out": {one.name: _missing(inputs, one.needs) for one in figures if one.value is None},
        "comparison": {
            "results": {way: {line.name: line.values[way] for line in lines} for way in Way},
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


def _compared(inputs: Inputs, line: Line) -> tuple[str, ...]:
    values = (line.values[way] for way in Way)
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
