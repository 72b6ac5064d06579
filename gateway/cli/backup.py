"""Command `spillway backup`: writes names and settings into a new directory, while the gateway
runs."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from gateway.cli import local, output
from gateway.common import clock
from gateway.common.errors import UserError
from gateway.common.units import size
from gateway.config import loader
from gateway.db import schema
from gateway.db.engine import Database
from gateway.db.schema import explained


def arguments(parser: argparse.ArgumentParser) -> None:
    output.option(parser)
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="where the new directory is made, best on another machine",
    )


def run(args: argparse.Namespace) -> int:
    """Make a backup, and print where it is. Returns 1 when something is not in it. Raises
    UserError."""
    # boto3 takes half a second to import, and other commands import this module too.
    from gateway.recovery.backup import Backup

    settings = loader.load(args.config)
    local.require_data_dir(settings)
    parent: Path = args.directory.expanduser().absolute()
    if not parent.is_dir():
        raise UserError(f"no directory {parent}: make it, or mount its disk")
    with closing(Database(settings.database_url)) as database, explained(database):
        schema.require_current(database)
        try:
            report = Backup(settings, database, parent).run()
        except OSError as exc:
            raise UserError(
                f"no backup was made: {exc.filename or parent}: {exc.strerror}: correct that, and "
                "run this again"
            ) from None
    facts = {
        "directory": str(report.directory),
        "as_of": clock.rfc3339(report.as_of_ns),
        "inodes": report.inodes,
        "bytes": report.size,
        "problems": report.problems,
    }
    lines = [
        f"{report.directory}: {report.inodes:,} inodes as of {clock.iso(report.as_of_ns)}, "
        f"{size(report.size)}",
        *(f"PROBLEM: {problem}" for problem in report.problems),
        f"to restore it on an empty machine: spillway restore --from {report.directory} …",
    ]
    output.show(facts, "\n".join(lines), args.json)
    return 1 if report.problems else 0
