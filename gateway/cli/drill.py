"""Option `--drill` of `spillway restore`: does the bucket bring everything back?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import caller, init, local, output
from gateway.cli.output import ProgressLine
from gateway.common import clock, process
from gateway.common.errors import StoreError, UserError
from gateway.common.models import to_json
from gateway.common.text import display
from gateway.common.units import duration
from gateway.config import loader
from gateway.db.engine import Database
from gateway.db.schema import explained, require_current
from gateway.namespace import identity

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from gateway.recovery.drill_record import DrillReport


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drill",
        action="store_true",
        help="on a gateway that runs: restore the names into a scratch database, compare, and "
        "report; nothing is changed",
    )
    parser.add_argument(
        "--dir",
        metavar="DIR",
        type=Path,
        help="with --drill: where the scratch database is made (default: the data directory)",
    )


def run(args: argparse.Namespace) -> int:
    """Make a drill, and print what it found. Returns 1 if the bucket does not bring everything
    back. Raises UserError, NamespaceError."""
    given = [f"--{name}" for name, *_key in init.OPTIONS if _value(args, name) is not None]
    given += [f"--{name}" for name in ("at", "is-gone", "access-key-id") if _value(args, name)]
    if given:
        raise UserError(f"{given[0]} is of no use with --drill: the configuration says all")
    if args.is_program:
        caller.become(args)
    # boto3 and Alembic take long to be imported, and other commands import this module too.
    from gateway.objectstore.s3 import S3Store
    from gateway.recovery.drill import Drill

    settings = loader.load(args.config)
    local.require_data_dir(settings)
    process.yield_to_clients()
    line = ProgressLine(quiet=args.json)
    with closing(Database(settings.database_url)) as database, explained(database):
        require_current(database)
        identity.require_surroundings(settings)
        try:
            drill = Drill(settings, database, S3Store(settings), say=line.show, directory=args.dir)
            report = drill.run()
        except StoreError as exc:
            raise UserError(f"no drill: {exc}: spillway bucket test") from None
        finally:
            line.end()
    output.show(to_json(report), "\n".join(_lines(report)), args.json)
    return 0 if report.is_ok else 1


def _value(args: argparse.Namespace, name: str) -> object:
    return getattr(args, name.replace("-", "_"))


def _lines(report: DrillReport) -> Iterator[str]:
    if report.as_of_ns is not None:
        yield f"names in the bucket as of {clock.iso(report.as_of_ns)}"
    yield (
        f"{report.files:,} files compared, {report.files_per_second:,.0f} each second; "
        f"{report.objects:,} objects looked at"
    )
    if report.changed:
        yield f"{report.changed:,} changed meanwhile, and were not compared"
    yield f"{report.differing:,} differ"
    yield from (f"  {display(one.path)}: {one.what}" for one in report.first)
    if (more := report.differing - len(report.first)) > 0:
        yield f"  and {more:,} more"
    yield from (f"PROBLEM: {problem}" for problem in report.problems)
    if report.restore_seconds is not None:
        yield f"a restore would take about {duration(report.restore_seconds)}"
    took = duration(report.seconds)
    yield (
        f"the bucket brings everything back; the drill took {took}"
        if report.is_ok
        else f"NOT EVERYTHING COMES BACK; the drill took {took}; what to do: "
        "docs/tasks/restore.md, The drill"
    )
