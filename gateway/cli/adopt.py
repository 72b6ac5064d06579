"""`spillway adopt`: takes over data files or a bucket that the namespace did not have before."""

from __future__ import annotations

import argparse
from contextlib import closing
from functools import partial

from gateway import config, datadir
from gateway.cli import checks, result
from gateway.data.layout import DataFiles
from gateway.db import schema
from gateway.db.engine import Database
from gateway.db.opening import explained
from gateway.errors import StoreError, UserError
from gateway.namespace import adopt, identity
from gateway.settings import Settings

WHAT = {
    "files": "the data files below data_dir, after a disk was replaced or a backup restored",
    "bucket": "the configured bucket and prefix, from another copy of this gateway, or in place of "
    "others: then everything is drained to them again",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    listed = "; ".join(f"{name}: {text}" for name, text in WHAT.items())
    result.option(parser)
    parser.add_argument("what", choices=sorted(WHAT), help=listed)
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="bucket: also if it has another owner, or objects and no owner",
    )


def run(args: argparse.Namespace) -> int:
    """Take over files or a bucket, and print the result. Exit status 1 when bytes are lost.

    Raises UserError.
    """
    settings = config.load(args.config)
    checks.require_data_dir(settings)
    with (
        closing(Database(settings.database_url)) as database,
        explained(database),
        datadir.locked(settings, "spillway adopt"),
        checks.alone(database),
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

    found = adopt.adopt_files(database, files, partial(verify.is_unchanged, database, files))
    lines = [f"data files {files.root}: adopted; {found.files} files looked at"]
    if found.taken:
        lines.append(
            f"{found.taken} files have newer bytes than the database says: they are drained again"
        )
    if found.absent:
        lines.append(
            f"{found.absent} files have no data file with their bytes: they are fetched from the "
            "bucket when a client reads them"
        )
    if found.aside:
        lines.append(
            f"{found.aside} data files were moved to {files.aside}: no file needs them, or its "
            "bytes are fetched again"
        )
    if found.damaged:
        lines.append(
            f"{found.damaged} files have lost bytes: they are kept, shown as damaged by spillway "
            "fsck, and never sent over their objects in the bucket"
        )
    facts = {"data_files": str(files.root), **found._asdict()}
    result.show(facts, "\n".join(lines), as_json)
    return 1 if found.damaged else 0


def _bucket(database: Database, settings: Settings, args: argparse.Namespace) -> int:
    # The import is here because boto3 takes half a second to import.
    from gateway.ownership.keeper import Ownership

    bucket, ownership = settings.bucket, Ownership(settings, database)
    where = f"bucket {bucket.name}, prefix {bucket.prefix!r}"
    is_same = identity.has_bucket(database, bucket)
    silent, has_ours = None, False
    try:
        found = ownership.survey()
    except StoreError as exc:
        if is_same or args.adopt:
            raise UserError(f"{where} is not adopted, because it cannot be asked: {exc}") from None
        silent = str(exc)
    else:
        if found.problem is not None and not args.adopt:
            raise UserError(found.problem)
        has_ours = found.has_ours
    keeps = is_same and has_ours
    files = adopt.doubt_bucket(database) if keeps else adopt.adopt_bucket(database, settings.bucket)
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
    result.show(facts, "\n".join(lines), args.json)
    return 0
