"""Commands for a gateway that is stopped: `spillway upgrade`, `fsck`, `adopt` and `reconcile`.

`adopt` takes over data files or a bucket that the namespace did not have before. `reconcile` has
the names follow the bucket. `fsck --bucket` only compares them, also while the gateway runs.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import DatabaseError

from gateway.cli import comparison, local, output
from gateway.common.errors import (
    AnotherServer,
    IdentityError,
    NamespaceError,
    SchemaError,
    StoreError,
    UserError,
)
from gateway.common.models import to_json
from gateway.common.text import display
from gateway.config import datadir, loader
from gateway.config.settings import Settings
from gateway.db import schema
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.schema import explained
from gateway.namespace import adopt, fsck, identity, volume
from gateway.namespace.data_files import DataFiles
from gateway.service.status import path_in_export

if TYPE_CHECKING:
    # boto3 takes half a second to import.
    from gateway.recovery.reconcile_report import BucketReport

COLUMNS = ("check", "problem", "repair")


def upgrade_arguments(parser: argparse.ArgumentParser) -> None:
    output.option(parser)


def upgrade(args: argparse.Namespace) -> int:
    """Migrate the database to this program's schema. Raises UserError."""
    settings = loader.load(args.config)
    local.require_data_dir(settings)
    # A missing one is on a disk that is not mounted. Another one in its place would be empty.
    database = Database(settings.database_url)
    schema.require_made(database)
    lines = [make_current(settings), identity.remember(settings)]
    where = str(database.path or database.url)
    facts = {"database": where, "schema": schema.current(database), "done": lines}
    database.close()
    output.show(facts, "\n".join(lines), args.json)
    return 0


def fsck_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repair", action="store_true", help="put right what is safe to")
    parser.add_argument(
        "--checksums",
        action="store_true",
        help="also read all data files, and compare them with what they were",
    )
    parser.add_argument(
        "--bucket",
        action="store_true",
        help="only compare the names with the objects in the bucket, and change nothing; the "
        "gateway may run",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run_fsck(args: argparse.Namespace) -> int:
    """Check the namespace. Exit status 1 when problems are left. Raises UserError."""
    settings = loader.load(args.config)
    if args.bucket:
        if args.repair or args.checksums:
            raise UserError("--bucket changes and reads nothing else: give it alone")
        return comparison.check(settings, args.json)
    local.require_data_dir(settings)
    database = Database(settings.database_url)
    with datadir.locked(settings, "spillway fsck"):
        schema.require_current(database)
        with local.alone(database):
            problems = _problems(settings, database, args)
    left = [problem for problem in problems if not (args.repair and problem.repair)]
    if args.json:
        print(json.dumps({"problems": [p._asdict() for p in problems], "left": len(left)}))
    else:
        rows = [_cells(problem, args.repair) for problem in problems]
        if rows:
            output.show_table(COLUMNS, rows)
        print(f"{len(problems)} problems found, {len(left)} left")
    return 1 if left else 0


def _cells(problem: fsck.BrokenInvariant, is_repaired: bool) -> tuple[str, ...]:
    note = problem.repair and (problem.repair if is_repaired else "can be repaired")
    return problem.check, problem.detail, note


def _problems(
    settings: Settings, database: Database, args: argparse.Namespace
) -> list[fsck.BrokenInvariant]:
    with explained(database):
        files = DataFiles(settings.files_dir)
        problems = fsck.check(database, files, repair=args.repair)
        export = settings.nfs.export
        return problems + (_changed(database, files, export) if args.checksums else [])


def _changed(database: Database, files: DataFiles, export: str) -> list[fsck.BrokenInvariant]:
    # The import is here because boto3 takes half a second to import.
    from gateway.drain import verify

    changed_files = list(verify.changed(database, files))
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        paths = (
            (display(path_in_export(session, file.ino, export)), why) for file, why in changed_files
        )
        return [fsck.BrokenInvariant("checksum", f"{path}: {why}", "") for path, why in paths]


def _require_not_elsewhere(database: Database) -> None:
    if (holder := database.holder()) is not None and holder.is_elsewhere:
        raise AnotherServer(
            f"{database.url} is served by another gateway ({holder}): stop that one first, or set "
            "namespace.url to a database of this gateway's own"
        )


def make_current(settings: Settings) -> str:
    """Create the database, or migrate it while no gateway runs on it. Returns what was done.

    Raises: UserError when it cannot be written, SchemaError when a newer Spillway wrote it.
    """
    database = Database(settings.database_url)
    where = database.path or database.url
    failures: tuple[type[Exception], ...] = (
        DatabaseError,
        NamespaceError,
        *database.backend.broken,
    )
    if database.path is not None and not database.path.parent.is_dir():
        raise UserError(
            f"cannot make the database {where}: no such directory: make it or correct namespace.url"
        )
    try:
        is_new = database.path is not None and not database.path.exists()
        before = None if is_new else schema.current(database)
        try:
            schema.require_current(database)
        except SchemaError:
            # Alembic takes long to be imported, and other commands import this module too.
            from gateway.db import upgrade as migrate

            # The schema must not change under a running gateway.
            with datadir.locked(settings, "spillway upgrade"), local.alone(database):
                migrate.upgrade(database)
        after = schema.current(database)
        _require_not_elsewhere(database)
        created = volume.create(database)
    except failures as exc:
        reason = " ".join(str(getattr(exc, "orig", exc)).split())
        raise UserError(
            f"cannot write the database {where}: {reason}: check its server or disk, and what we "
            "may do there"
        ) from None
    finally:
        database.close()
    if created:
        return f"database {where}: made, schema {after}"
    if before != after:
        return f"database {where}: migrated from schema {before} to {after}"
    return f"database {where}: current, schema {after}"


WHAT = {
    "files": "the data files below data_dir, after a disk was replaced or a backup restored",
    "bucket": "the configured bucket and prefix, from another copy of this gateway, or in place of "
    "others: then everything is drained to them again",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    listed = "; ".join(f"{name}: {text}" for name, text in WHAT.items())
    output.option(parser)
    parser.add_argument("what", choices=sorted(WHAT), help=listed)
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="bucket: also if it has another owner, or objects and no owner",
    )


def run(args: argparse.Namespace) -> int:
    """Take over files or a bucket, and print the result. Exit status 1 when bytes are lost, or
    when the bucket was not compared with the names.

    Raises UserError.
    """
    settings = loader.load(args.config)
    local.require_data_dir(settings)
    with (
        closing(Database(settings.database_url)) as database,
        explained(database),
        datadir.locked(settings, "spillway adopt"),
        local.alone(database),
    ):
        schema.require_current(database)
        if args.what == "files":
            return _files(database, settings, args.json)
        return _bucket(database, settings, args)


def _files(database: Database, settings: Settings, as_json: bool) -> int:
    files = DataFiles(settings.files_dir)
    files.create()
    # The import is here because boto3 takes half a second to import.
    from gateway.drain import verify

    adoption = adopt.adopt_files(database, files, partial(verify.is_unchanged, database, files))
    lines = [f"data files {files.root}: adopted; {adoption.files} files looked at"]
    if adoption.taken:
        lines.append(
            f"{adoption.taken} files have newer bytes than the database says: they are drained "
            "again"
        )
    if adoption.absent:
        lines.append(
            f"{adoption.absent} files have no data file with their bytes: they are fetched from "
            "the bucket when a client reads them"
        )
    if adoption.aside:
        lines.append(
            f"{adoption.aside} data files were moved to {files.aside}: no file needs them, or its "
            "bytes are fetched again"
        )
    if adoption.damaged:
        lines.append(
            f"{adoption.damaged} files have lost bytes: they are kept, shown as damaged by "
            "spillway fsck, and never sent over their objects in the bucket"
        )
    report, why = _followed(settings, database, files)
    if report is None:
        lines.append(f"the names are not compared with the bucket: {why}; run: spillway reconcile")
    elif report.changes:
        lines.append(f"the names follow the bucket: {comparison.changes(report)}")
    facts = {
        "data_files": str(files.root),
        **adoption._asdict(),
        "bucket": None if report is None else to_json(report),
    }
    output.show(facts, "\n".join(lines), as_json)
    return 1 if adoption.damaged or report is None or report.lost else 0


def _followed(
    settings: Settings, database: Database, files: DataFiles
) -> tuple[BucketReport | None, str]:
    """Have the names follow the bucket. Returns what that changed, or None and why it was not
    done."""
    # The import is here because boto3 takes half a second to import.
    from gateway.recovery.reconcile import reconcile

    try:
        identity.require_bucket(database, settings.bucket)
        return reconcile(settings, database, files), ""
    except (IdentityError, StoreError) as exc:
        return None, str(exc)


def _bucket(database: Database, settings: Settings, args: argparse.Namespace) -> int:
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.ownership import Ownership

    bucket, ownership = settings.bucket, Ownership(settings, database)
    where = f"bucket {bucket.name}, prefix {bucket.prefix!r}"
    is_same = identity.has_bucket(database, bucket)
    silent, has_ours = None, False
    try:
        survey = ownership.survey()
    except StoreError as exc:
        if is_same or args.adopt:
            raise UserError(f"{where} is not adopted, because it cannot be asked: {exc}") from None
        silent = str(exc)
    else:
        if survey.problem is not None and not args.adopt:
            raise UserError(survey.problem)
        has_ours = survey.has_ours
    keeps = is_same and has_ours
    files = (
        adopt.mark_bucket_indeterminate(database)
        if keeps
        else adopt.adopt_bucket(database, settings.bucket)
    )
    if silent is None:
        ownership.take()
    lines = [
        f"{where}: adopted; its {files} objects are looked at, and what is not there as recorded "
        "is sent again"
        if keeps
        else f"{where}: adopted; {files} files will be sent; what is in the former bucket stays "
        "there"
    ]
    if silent is not None:
        lines.append(f"the drain looks whose it is before it sends anything: {silent}")
    facts = {"bucket": bucket.name, "prefix": bucket.prefix, "files": files}
    output.show(facts, "\n".join(lines), args.json)
    return 0
