"""`spillway clients`: who mounts the gateway, from where, and who has a file open."""

from __future__ import annotations

import argparse

from gateway.cli import result, table
from gateway.control import sharednames
from gateway.control.clients import OPENS_MAX, Client, Clients, Open, Opens
from gateway.control.gateway import Gateway
from gateway.escapes import display
from gateway.units import duration, size

COLUMNS = (
    *("address", "name", "NFS", ">open", ">for writing", ">read", ">written"),
    *(">operations", ">seen"),
)
OPENS = ("path", "address", ">for reading", ">for writing")
UNKNOWN = "?"
"""An address that is not known."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument(
        "--open", metavar="PATH", help="who has this file open, or files below this directory"
    )


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the clients. Raises UserError when no NFS server answers, NotPossible."""
    if args.open is not None:
        return _show_opens(gateway.opens(args.open), args.json)
    return _show(gateway.clients(), args.json)


def _show(found: Clients, as_json: bool) -> int:
    if as_json:
        result.print_json(found)
        return 0
    if not found.clients:
        print("no client has a lease: nobody mounts, or the NFS server just started")
    else:
        table.show(COLUMNS, map(_cells, found.clients), map(_line, found.clients))
    if (others := found.others) is not None:
        print(
            f"all further addresses: {others.operations} operations, "
            f"{size(others.bytes_read)} read, {size(others.bytes_written)} written"
        )
    for line in sharednames.lines(found.shared_names):
        print(line)
    return 0


def _cells(one: Client) -> tuple[str, ...]:
    return (
        one.address or UNKNOWN,
        display(one.name),
        f"4.{one.minor_version}",
        str(one.open_reading),
        str(one.open_writing),
        _moved(one.bytes_read, one.read_rate),
        _moved(one.bytes_written, one.written_rate),
        f"{one.operations} ({one.operations_rate}/s)",
        f"{duration(one.seen_seconds)} ago",
    )


def _line(one: Client) -> str:
    address, name, version, reading, writing, read, written, operations, seen = _cells(one)
    return (
        f"{address}  {name}  NFSv{version}  open for reading {reading}, for writing {writing}; "
        f"read {read}, written {written}, operations {operations}; seen {seen}"
    )


def _moved(count_bytes: int, rate: int) -> str:
    return f"{size(count_bytes)} ({size(rate)}/s)"


def _show_opens(found: Opens, as_json: bool) -> int:
    if as_json:
        result.print_json(found)
        return 0
    table.show_facts(found.opens, False, OPENS, _open_cells, _open_line, "no client has it open")
    if not found.is_whole:
        print(f"more files are open than the {OPENS_MAX} that were looked at")
    return 0


def _open_cells(one: Open) -> tuple[str, ...]:
    return display(one.path), one.address or UNKNOWN, str(one.open_reading), str(one.open_writing)


def _open_line(one: Open) -> str:
    path, address, reading, writing = _open_cells(one)
    return f"{path}: {address}: open for reading {reading}, for writing {writing}"
