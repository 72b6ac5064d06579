"""Command `spillway usage`: who has how many files and bytes, and where they are."""

from __future__ import annotations

import argparse

from gateway.cli import output
from gateway.common.text import display
from gateway.common.units import size
from gateway.service.gateway import Gateway
from gateway.service.usage import DirectoryUse, OwnerUse

SHOWN = 50
DIRECTORY_COLUMNS = (">files", ">size", ">on disk", ">only here", ">in trash", "directory")
OWNER_COLUMNS = (">uid", ">files", ">size", ">on disk", ">only here", ">kept by the gateway")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"rows shown (default {SHOWN})"
    )
    parser.add_argument("--owners", action="store_true", help="only the owners, by their uid")
    parser.add_argument(
        "path", nargs="?", metavar="PATH", default=".", help="a directory (default: all)"
    )


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the usage. Raises UserError, NotPossible."""
    report = gateway.usage(args.path)
    if args.json:
        output.print_json(report)
        return 0
    most = max(0, args.limit)
    if not args.owners:
        rows = [report.directory, *report.below[:most]]
        output.show_table(DIRECTORY_COLUMNS, map(_directory_cells, rows))
        _say_more(len(report.below) - most, "directories")
        print()
    output.show_table(OWNER_COLUMNS, map(_owner_cells, report.owners[:most]))
    _say_more(len(report.owners) - most, "owners")
    return 0


def _say_more(count: int, what: str) -> None:
    if count > 0:
        print(f"... and {count} more {what}: --limit N shows N")


def _directory_cells(use: DirectoryUse) -> tuple[str, ...]:
    return (
        str(use.files),
        size(use.size_bytes),
        size(use.disk_bytes),
        size(use.only_here_bytes),
        _kept(use.trash_files, use.trash_bytes),
        display(use.path),
    )


def _kept(files: int, size_bytes: int) -> str:
    return f"{size(size_bytes)}, {files} files" if files else "-"


def _owner_cells(use: OwnerUse) -> tuple[str, ...]:
    return (
        str(use.uid),
        str(use.files),
        size(use.size_bytes),
        size(use.disk_bytes),
        size(use.only_here_bytes),
        _kept(use.kept_files, use.kept_bytes),
    )
