"""`spillway statistics`: what the NFS server was asked since its start, and how long it took."""

from __future__ import annotations

import argparse

from gateway import clock
from gateway.cli import result, table
from gateway.control.gateway import Gateway
from gateway.door.statistics import Histogram, Operations, Statistics
from gateway.units import duration, size

COLUMNS = ("operation", ">answered", ">delayed", ">mean", ">99 % in", ">bytes", "errors")
_LINE = "{:<10} {:>10} {:>9} {:>9} {:>9} {:>9}  {}"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="all counts and histograms as JSON")


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the counts. Raises UserError when no NFS server answers."""
    return show(gateway.statistics(), args.json)


def show(found: Statistics, as_json: bool) -> int:
    """Print the counts. Returns the exit status."""
    if as_json:
        result.print_json(found)
        return 0
    age = max(0, clock.now_ns() - found.started_ns) / clock.NS
    print(f"since the start of the NFS server {duration(age)} ago:")
    rows = [
        _cells(kind, counts)
        for kind, counts in found.operations.items()
        if counts.latency.count or counts.delayed
    ]
    head = [column.lstrip(">") for column in COLUMNS]
    table.show(COLUMNS, rows, (_LINE.format(*row).rstrip() for row in [head, *rows]))
    sizes, times = found.commit_sizes, found.commit_seconds
    print(
        f"{times.count} commits of the namespace, {sizes.sum / max(1, sizes.count):.1f} changes "
        f"each, mean {_mean(times)}, 99 % in {_time(times.quantile(0.99))}"
    )
    return 0


def _cells(kind: str, counts: Operations) -> tuple[str, ...]:
    errors = ", ".join(f"{name} {count}" for name, count in counts.errors.items() if count)
    return (
        kind,
        str(counts.latency.count),
        str(counts.delayed or ""),
        _mean(counts.latency),
        _time(counts.latency.quantile(0.99)),
        size(counts.bytes) if counts.bytes else "",
        errors,
    )


def _mean(histogram: Histogram) -> str:
    return _time(histogram.sum / histogram.count if histogram.count else None)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
