"""Comparison of names and bucket: `spillway reconcile`, and the part of `fsck --bucket`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from gateway.cli import local, output
from gateway.cli.output import ProgressLine
from gateway.common.errors import StoreError, UserError
from gateway.common.text import display
from gateway.config import datadir, loader
from gateway.config.settings import Settings
from gateway.db import schema
from gateway.db.engine import Database
from gateway.db.schema import explained
from gateway.namespace import identity
from gateway.namespace.data_files import DataFiles

if TYPE_CHECKING:
    # boto3 takes half a second to import.
    from gateway.recovery.reconcile_report import BucketReport

KEYS_SHOWN = 20
RUNS_SHOWN = 20
COLUMNS = ("what is at the key", "the file", "key")
RUN_COLUMNS = ("run", ">lost", ">came back", ">from bucket", ">sent again")
_VOLUME = re.compile("[0-9a-f]{32}")


def arguments(parser: argparse.ArgumentParser) -> None:
    output.option(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only show what would change; change nothing"
    )
    parser.add_argument(
        "--volume",
        action="append",
        default=[],
        metavar="HEX",
        help="objects of this namespace id are ours too: for a new namespace that is made of the "
        "objects of a lost one; can be repeated",
    )

    parser.add_argument(
        "--import",
        dest="imports",
        action="store_true",
        help="objects below the prefix that other programs put there become files, where they are",
    )


def run(args: argparse.Namespace) -> int:
    """Have the names follow the bucket. Exit status 1 when something is lost. Raises UserError."""
    # The import is here because boto3 takes half a second to import.
    from gateway.recovery import reconcile as recovery

    settings = loader.load(args.config)
    local.require_data_dir(settings)
    volumes = [_volume(text) for text in args.volume]
    files = DataFiles(settings.files_dir)
    with (
        closing(Database(settings.database_url)) as database,
        explained(database),
        datadir.locked(settings, "spillway reconcile"),
        local.alone(database),
    ):
        schema.require_current(database)
        _require_adopted(database, files)
        line = ProgressLine(quiet=args.json)
        try:
            if args.dry_run:
                recovery.require_ours(settings, database)
                report = recovery.compare(settings, database, volumes, args.imports, line.show)
            else:
                identity.require_bucket(database, settings.bucket)
                report = recovery.reconcile(
                    settings, database, files, volumes, args.imports, line.show
                )
        except StoreError as exc:
            raise UserError(
                f"the names are not compared with the bucket to the end: {exc}: run it again"
            ) from None
        finally:
            line.end()
    _show(report, args.json)
    return 1 if report.lost else 0


def import_objects(settings: Settings) -> str:
    """Make files of the objects of other programs below the prefix of a gateway that does not run.
    Returns what was done, for people. Raises UserError."""
    # The import is here because boto3 takes half a second to import.
    from gateway.recovery import reconcile as recovery

    files = DataFiles(settings.files_dir)
    with (
        closing(Database(settings.database_url)) as database,
        explained(database),
        datadir.locked(settings, "spillway init"),
        local.alone(database),
    ):
        try:
            report = recovery.reconcile(settings, database, files, imports=True)
        except StoreError as exc:
            raise UserError(
                f"not all objects are files yet: {exc}: run: spillway reconcile --import"
            ) from None
    return f"objects of the bucket: {changes(report)}"


def check(settings: Settings, as_json: bool) -> int:
    """Compare the bucket with the names. Exit status 1 when files cannot be read from it. Raises
    UserError."""
    from gateway.recovery import reconcile as recovery

    with closing(Database(settings.database_url)) as database, explained(database):
        schema.require_current(database)
        try:
            report = recovery.compare(settings, database)
        except StoreError as exc:
            raise UserError(f"the bucket is not compared to the end: {exc}") from None
    _show(report, as_json)
    return 1 if report.problems else 0


def _require_adopted(database: Database, files: DataFiles) -> None:
    """Raise IdentityError unless the data files are those of the namespace, at the same time."""
    connection = database.connect()
    try:
        identity.require_files(database, connection, files)
    finally:
        connection.close()


def _volume(text: str) -> str:
    if _VOLUME.fullmatch(text) is None:
        raise UserError(
            f"--volume {text}: a namespace id is 32 hexadecimal digits: the objects have it as "
            "their metadata volume"
        )
    return text


def _show(report: BucketReport, as_json: bool) -> None:
    if as_json:
        output.print_json(report)
        return
    for line in _lines(report):
        print(line)
    shown = [one for one in report.keys if one.outcome != "left"] or report.keys
    if shown:
        print()
        output.show_table(
            COLUMNS, [(one.case, one.outcome, display(one.key)) for one in shown[:KEYS_SHOWN]]
        )
        if len(shown) > KEYS_SHOWN:
            print(f"more keys: --json names up to 200 of each kind ({len(shown)} in all)")
    if report.runs:
        print()
        output.show_table(RUN_COLUMNS, list(_runs(report)))


def _lines(report: BucketReport) -> Iterator[str]:
    """Yield what is to be said about a report as a whole."""
    where = f"bucket {report.bucket}, prefix {report.prefix!r}"
    yield f"{where}: {report.listed:,} objects compared"
    yield "found: " + _counted(sorted(report.cases.items()))
    if report.changes:
        how = "changed" if report.is_changed else "would change"
        yield f"{how}: {changes(report)}"
    else:
        yield "nothing to change"
    if report.asks_again:
        yield (
            "policies delete nothing before a person has approved it: spillway policy plan, when "
            "the gateway runs"
        )
    if report.lost:
        verb = "are" if report.is_changed else "would be"
        yield f"{report.lost} files {verb} damaged: neither the bucket nor the disk has their bytes"
    if report.not_back:
        yield report.not_back


def changes(report: BucketReport) -> str:
    """Return what was changed, or would be, for people."""
    return _counted(
        [(name, count) for name, count in sorted(report.outcomes.items()) if name != "left"]
    )


def _counted(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts) or "nothing"


def _runs(report: BucketReport) -> Iterator[tuple[str, ...]]:
    for one in sorted(report.runs, key=lambda run: -run.lost)[:RUNS_SHOWN]:
        counts = (one.lost, one.came_back, one.followed, one.sent_again)
        yield (one.run or "/", *(f"{count:,}" for count in counts))
