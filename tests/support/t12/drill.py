"""Drills of a gateway whose names a test copies, and damage of the copy."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.db.engine import Database
from gateway.objectstore.s3 import S3Store
from gateway.recovery.drill import Drill
from gateway.recovery.drill_record import DrillReport
from tests.support.drainsite import Site
from tests.support.t12.names import Copied, copied
from tests.support.t12.process import series_of

Line = list[Any]


class Waits(threading.Event):
    """A stop that lets a test act whenever the drill waits."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def wait(self, timeout: float | None = None) -> bool:
        """Act, if the drill would wait. Returns whether it is to stop."""
        if timeout:
            self._act()
        return self.is_set()


class Drilled:
    """The drills of one gateway.

    Args:
        site: the gateway.
        copy: the copy of its names.
    """

    def __init__(self, site: Site, copy: Copied) -> None:
        self.site = site
        self.copy = copy

    def run(
        self,
        say: Callable[[str], None] = lambda _line: None,
        waits: Callable[[], object] | None = None,
        directory: Path | None = None,
    ) -> DrillReport:
        """Make a drill.

        Args:
            say: hears of each step.
            waits: is called whenever the drill waits (default: the names are copied).
            directory: for the scratch directory.
        """
        settings = self.site.settings
        database = Database(settings.database_url)
        try:
            stop = Waits(waits or self.copy.step)
            drill = Drill(
                settings,
                database,
                S3Store(settings),
                say=say,
                stop=stop,
                directory=directory,
            )
            return drill.run()
        finally:
            database.close()

    def left(self) -> list[str]:
        """Return what a drill left behind."""
        names = [path.name for path in self.site.settings.data_dir.glob("spillway-drill-*")]
        rows = self.site.rows("SELECT name FROM reader WHERE name = 'drill'")
        note = self.site.settings.run_dir / "drill-scratch"
        return names + [name for (name,) in rows] + ([note.name] if note.exists() else [])

    def edit_log(self, keep: Callable[[Line], Line | None], which: int = -1) -> None:
        """Change a segment of the log in the bucket.

        Args:
            keep: returns a line as it is to be, or None if it goes.
            which: its place in the log.
        """
        key = self.log_keys()[which]
        client, bucket = self.site.client, self.site.bucket
        body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        lines = [json.loads(line) for line in gzip.decompress(body).splitlines()]
        made = [line for line in map(keep, lines[:-1]) if line is not None]
        made.append(["end", sum(len(line[2]) for line in made if line[0] == "rows")])
        text = "".join(f"{json.dumps(line)}\n" for line in made)
        client.put_object(Bucket=bucket, Key=key, Body=gzip.compress(text.encode()))

    def log_keys(self) -> list[str]:
        """Return the keys of the log in the bucket."""
        return [one.listed.key for series in series_of(self.site.settings) for one in series.log]

    def delete(self, key: str) -> None:
        """Delete an object of the bucket."""
        self.site.client.delete_object(Bucket=self.site.bucket, Key=key)


@contextmanager
def drilled(site: Site) -> Iterator[Drilled]:
    """Copy the names of a gateway, with a whole base, and make drills."""
    with copied(site) as copy:
        copy.all()
        yield Drilled(site, copy)
