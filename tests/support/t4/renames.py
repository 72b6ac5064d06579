"""Directories of drained files, and rounds of planning over them, for tests of renames."""

from __future__ import annotations

from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.drain.job import DrainJob
from gateway.drain.plan.renames import Renames
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import PREFIX, Site

FIRST_INO = 1_000_000


def fill(site: Site, directory: str, first: int, count: int, old: str | None) -> None:
    """Put drained files into a directory. Their objects are below ``old`` (None: the directory)."""
    parent = site.directory(directory)
    template = site.write("template", b"")
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n "
        f"WHERE i + 1 < {first + count}) "
    )
    others = (
        "generation, kind, mode, uid, gid, nlink, size, used, atime_ns, mtime_ns, ctime_ns, "
        "btime_ns, change, rdev, target, verifier, parent, content_version"
    )
    site.rows(
        f"INSERT INTO inode (ino, {others}, drained_version, write_open, drain_after_ns, "
        f"residency, epoch) {numbers}SELECT n.i, {others}, content_version, 0, 0, 2, 0 "
        f"FROM n, inode WHERE ino = {template} RETURNING 1"
    )
    site.rows(
        f"INSERT INTO dirent (parent, name, ino, cookie) {numbers}"
        f"SELECT {parent}, CAST('f' || i AS BLOB), i, i FROM n RETURNING 1"
    )
    site.rows(
        'INSERT INTO object (ino, "key", content_version, size, etag, checksum, stored_ns) '
        f"{numbers}SELECT i, '{PREFIX}/{old or directory}/f' || i, 1, 0, 'e', NULL, 1 FROM n "
        "RETURNING 1"
    )
    site.unlink("template")


def context_of(site: Site) -> Context:
    return Context(site.settings, Database(site.settings.database_url), S3Store(site.settings))


def read_round(renames: Renames, context: Context) -> list[list[DrainJob]]:
    """Plan one round over all rows. Returns the jobs of each page."""
    pages = []
    while True:
        page = renames.plan(context, None)
        pages.append(page.jobs)
        if page.after is None:
            return pages


def rekeys(site: Site) -> list[int]:
    return [ino for (ino,) in site.rows("SELECT ino FROM rekey ORDER BY ino")]
