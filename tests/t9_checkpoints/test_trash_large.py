"""A large directory goes into the trash and comes back while clients work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.common.types import SetAttr
from gateway.db import statements as sql
from tests.support.checkpoints.trashing import put, trash_of
from tests.support.checkpoints.world import World
from tests.support.volumes import query
from tests.support.waiting import background

# `make slow` takes a million.
FILES = int(os.environ.get("SPILLWAY_TRASHED_FILES", "3000"))
PATH = "run/step-1"


def copied(world: World, path: str, count: int) -> None:
    """Give a directory so many files, copies of one that is there."""
    file, directory = world.attr(path), world.directory(path.rpartition("/")[0])
    [(ino, cookie)] = query(world.settings, "SELECT next_ino, next_cookie FROM volume")
    query(
        world.settings,
        "UPDATE volume SET next_ino = next_ino + :count, next_cookie = next_cookie + :count",
        count=count,
    )
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count - 1) "
    )
    columns = [column.name for column in sql.inode.columns if column.name != "ino"]
    query(
        world.settings,
        f"INSERT INTO inode (ino, {', '.join(columns)}) {numbers}"
        f"SELECT n.i + :first, {', '.join(columns)} FROM n, inode WHERE ino = :ino",
        count=count,
        first=ino,
        ino=file.ino,
    )
    is_sqlite = world.settings.database_url.startswith("sqlite")
    name = "CAST('f' || n.i AS BLOB)" if is_sqlite else "CAST('f' || n.i AS bytea)"
    query(
        world.settings,
        f"INSERT INTO dirent (parent, name, ino, cookie) {numbers}"
        f"SELECT CAST(:parent AS BIGINT), {name}, n.i + :first, n.i + :cookie FROM n",
        count=count,
        first=ino,
        parent=directory,
        cookie=cookie,
    )


@contextmanager
def waits(world: World) -> Iterator[list[float]]:
    """Change another file again and again. Yields the seconds that each change took."""
    ino = world.attr("other").ino
    wait_seconds: list[float] = []

    def change(done: threading.Event) -> None:
        while not done.is_set():
            began = time.monotonic()
            world.namespace.setattr(ino, SetAttr(mode=0o600))
            wait_seconds.append(time.monotonic() - began)
            done.wait(0.005)

    with background(change):
        yield wait_seconds


def test_clients_work_while_a_large_directory_goes_and_comes_back(world: World) -> None:
    trash = trash_of(world)
    world.write("other", b"1")
    world.write(f"{PATH}/a.distcp", b"1")
    copied(world, f"{PATH}/a.distcp", FILES)
    world.write(f"{PATH}/.metadata", b"1")
    with waits(world) as alone:
        time.sleep(1)
    print(f"\nalone: the longest wait is {max(alone):.3f} s")
    trashed = ""
    for what in ("put", "undelete"):
        began = time.monotonic()
        with waits(world) as wait_seconds:
            if what == "put":
                trashed = put(world, trash, PATH)
            else:
                trash.undelete(trashed, by="me")
        seconds = time.monotonic() - began
        wait_seconds.sort()
        print(
            f"{what} of {FILES:,} files: {seconds:.1f} s; of {len(wait_seconds):,} changes "
            f"meanwhile the median waits {wait_seconds[len(wait_seconds) // 2]:.3f} s, the longest "
            f"{wait_seconds[-1]:.3f} s"
        )
        # As one transaction it is 4 s for a million on SQLite, and never done on PostgreSQL.
        assert wait_seconds[-1] < 1.0
    assert query(world.settings, "SELECT count(*) FROM inode WHERE reserved = 1") == [(5,)]
