"""`spillway upgrade` and `spillway fsck`: work on the database while no gateway runs on it."""

from __future__ import annotations

import argparse
import json

from sqlalchemy.exc import DatabaseError

from gateway import config, datadir
from gateway.cli import checks, result, table
from gateway.control.backlog import path_in_export
from gateway.data.layout import DataFiles
from gateway.db import schema
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.opening import explained
from gateway.errors import AnotherServer, NamespaceError, SchemaError, UserError
from gateway.escapes import display
from gateway.namespace import fsck, identity, volume
from gateway.settings import Settings

COLUMNS = ("check", "problem", "repair")


def upgrade_arguments(parser: argparse.ArgumentParser) -> None:
    result.option(parser)


def upgrade(args: argparse.Namespace) -> int:
    """Migrate the database to this program's schema. Raises UserError."""
    settings = config.load(args.config)
    checks.require_data_dir(settings)
    # A missing one is on a disk that is not mounted. Another one in its place would be empty.
    database = Database(settings.database_url)
    schema.require_made(database)
    lines = [make_current(settings), identity.remember(settings)]
    where = str(database.path or database.url)
    facts = {"database": where, "schema": schema.current(database), "done": lines}
    database.close()
    result.show(facts, "\n".join(lines), args.json)
    return 0


def fsck_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repair", action="store_true", help="put right what is safe to")
    parser.add_argument(
        "--checksums",
        action="store_true",
        help="also read all data files, and compare them with what they were",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run_fsck(args: argparse.Namespace) -> int:
    """Check the namespace. Exit status 1 when problems are left. Raises UserError."""
    settings = config.load(args.config)
    checks.require_data_dir(settings)
    database = Database(settings.database_url)
    with datadir.locked(settings, "spillway fsck"):
        schema.require_current(database)
        with checks.alone(database):
            problems = _problems(settings, database, args)
    left = [problem for problem in problems if not (args.repair and problem.repair)]
    if args.json:
        print(json.dumps({"problems": [p._asdict() for p in problems], "left": len(left)}))
    else:
        rows = [_cells(problem, args.repair) for problem in problems]
        if rows:
            table.show(COLUMNS, rows, map(_line, rows))
        print(f"{len(problems)} problems found, {len(left)} left")
    return 1 if left else 0


def _cells(problem: fsck.Problem, is_repaired: bool) -> tuple[str, ...]:
    note = problem.repair and (problem.repair if is_repaired else "can be repaired")
    return problem.check, problem.detail, note


def _line(cells: tuple[str, ...]) -> str:
    check, detail, note = cells
    return f"{check}: {detail}" + (f" [{note}]" if note else "")


def _problems(
    settings: Settings, database: Database, args: argparse.Namespace
) -> list[fsck.Problem]:
    with explained(database):
        files = DataFiles(settings.files_dir)
        problems = fsck.check(database, files, repair=args.repair)
        export = settings.nfs.export
        return problems + (_changed(database, files, export) if args.checksums else [])


def _changed(database: Database, files: DataFiles, export: str) -> list[fsck.Problem]:
    # The import is here because boto3 takes half a second to import.
    from gateway.drain import verify

    found = list(verify.changed(database, files))
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        paths = ((display(path_in_export(session, file.ino, export)), why) for file, why in found)
        return [fsck.Problem("checksum", f"{path}: {why}", "") for path, why in paths]


def _require_not_elsewhere(database: Database) -> None:
    if (found := database.holder()) is not None and found.is_elsewhere:
        raise AnotherServer(
            f"{database.url} is served by another gateway ({found}): stop that one first, or set "
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
            with datadir.locked(settings, "spillway upgrade"), checks.alone(database):
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
