"""A gateway with damage on either side, and its scrub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import inspect

from gateway.common.types import Residency
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.objectstore.ownership import guarded
from gateway.objectstore.s3 import S3Store
from gateway.recovery.scrub import Scrub
from gateway.recovery.scrub_rows import ScrubKind
from tests.support.drainsite import PREFIX, Site
from tests.support.imports import SharedControl
from tests.support.volumes import query

STEPS_MAX = 10_000


class Scrubbed:
    """The scrub of a site, whose passes a test begins.

    Args:
        site: the gateway.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.control = SharedControl(site.namespace)

    @contextmanager
    def _open(self) -> Iterator[SharedControl]:
        yield self.control

    def scrub(self, *kinds: str, **keys: Any) -> Scrub:
        """Return a scrub that makes passes of some kinds whenever it is asked.

        Args:
            keys: of the section ``scrub``.
        """
        days = {f"{kind}_days": 1e-9 * (kind in kinds) for kind in ScrubKind}
        self.site.configure("scrub", **{"bytes_per_second": 0, **days, **keys})
        settings = self.site.settings
        database = Database(settings.database_url)
        store = guarded(S3Store(settings), settings, database)
        return Scrub(settings, database, store, open_control=self._open)

    def run(self, kind: str, **keys: Any) -> dict[str, int]:
        """Make a whole pass. Returns what it counted."""
        scrub = self.scrub(kind, **keys)
        finish(scrub)
        columns = ("files", "bytes", "found", "healed", "damaged")
        [row] = self.rows(
            f"SELECT {', '.join(columns)} FROM scrub_pass WHERE kind = :kind AND is_whole = 1",
            kind=kind,
        )
        return dict(zip(columns, row, strict=True))

    def rows(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return query(self.site.settings, statement, **values)

    # What is damaged, and what became of it.

    def path(self, ino: int) -> Path:
        """Return the data file of a file."""
        return self.site.namespace.files.path(ino, self.site.namespace.getattr(ino).epoch)

    def flip(self, ino: int, at: int = 5) -> None:
        """Change a byte of a data file as a disk does."""
        flip_quietly(self.path(ino), at)

    def truncate(self, ino: int) -> None:
        """Take the end of a data file away."""
        cut_quietly(self.path(ino))

    def remove(self, ino: int) -> None:
        """Take a data file away."""
        self.path(ino).unlink()

    def put(self, key: str, body: bytes, metadata: dict[str, str] | None = None) -> str:
        """Put an object behind the gateway's back. Returns its ETag.

        Args:
            metadata: those of the object that is there, if it is the gateway's own.
        """
        client, bucket = self.site.client, self.site.bucket
        answer = client.put_object(
            Bucket=bucket, Key=f"{PREFIX}/{key}", Body=body, Metadata=metadata or {}
        )
        return str(answer["ETag"]).strip('"')

    def delete(self, key: str) -> None:
        """Delete an object behind the gateway's back."""
        self.site.client.delete_object(Bucket=self.site.bucket, Key=f"{PREFIX}/{key}")

    def evict(self, ino: int) -> None:
        """Make a clean file absent."""
        namespace = self.site.namespace
        epoch = namespace.getattr(ino).epoch
        [(version,)] = self.rows("SELECT content_version FROM inode WHERE ino = :ino", ino=ino)
        namespace.evict(ino, version)
        namespace.files.remove(ino, epoch)
        self.rows("DELETE FROM eviction WHERE ino = :ino", ino=ino)

    def seal_digest(self, ino: int, data: bytes) -> None:
        """Record the checksum of a sealed file, as the drain does with checksum_at_seal."""
        self.rows(
            "INSERT INTO digest (ino, content_version, checksum, computed_ns)"
            " SELECT ino, content_version, :checksum, 1 FROM inode WHERE ino = :ino",
            ino=ino,
            checksum=f"md5:{hashlib.md5(data).hexdigest()}",
        )

    def is_absent(self, ino: int) -> bool:
        return self.site.namespace.getattr(ino).residency == Residency.ABSENT

    def is_wanted(self, ino: int) -> bool:
        """Return whether the hydrator is asked for a file."""
        return bool(self.rows("SELECT ino FROM warm_request WHERE ino = :ino", ino=ino))

    def damage(self, ino: int) -> str | None:
        """Return why a file is damaged, or None."""
        rows = self.rows("SELECT reason FROM damage WHERE ino = :ino", ino=ino)
        return rows[0][0] if rows else None

    def aside(self) -> list[str]:
        """Return the names of the data files that were set aside."""
        directory = self.site.namespace.files.aside
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def clean(scrubbed: Scrubbed, path: str = "run/a", size: int = 100_000) -> tuple[int, bytes]:
    """Make a file that the bucket has. Returns its inode and bytes."""
    data = os.urandom(size)
    ino = scrubbed.site.write(path, data)
    scrubbed.site.drain()
    scrubbed.site.proxy.forget()
    return ino, data


@contextmanager
def _same_time(path: Path) -> Iterator[None]:
    times = path.stat()
    yield
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def flip_quietly(path: Path, at: int = 5) -> None:
    """Change a byte of a file as a disk does: its time stays."""
    with _same_time(path), path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes((byte[0] ^ 1,)))


def cut_quietly(path: Path) -> None:
    """Take the end of a file away as a disk does: its time stays."""
    with _same_time(path):
        os.truncate(path, path.stat().st_size - 3)


def finish(scrub: Scrub, passes: int = 1) -> None:
    """Make steps without the rests between them until so many passes ended."""
    for _step in range(STEPS_MAX):
        scrub._rate._not_before = scrub._retry_at = 0.0
        scrub.step()
        if scrub.counts()["passes"] >= passes:
            return
    raise AssertionError(f"no pass ended in {STEPS_MAX} steps")


def everything(settings: Settings) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables but those of the scrub."""
    database = Database(settings.database_url)
    engine = database.engine()
    try:
        names = inspect(engine).get_table_names()
    finally:
        engine.dispose()
    return {
        name: sorted(query(settings, f"SELECT * FROM {name}"), key=repr)
        for name in names
        if name != "scrub_pass"
    }
