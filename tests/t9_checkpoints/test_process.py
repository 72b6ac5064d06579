"""The process of the catalogue: it is alone, imports little, and a kill loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.catalogue import store, tracker
from gateway.catalogue.manifests import document
from gateway.catalogue.tracker import Follower
from gateway.common import failpoints
from gateway.common.failpoints import CATALOGUE_COMMIT
from gateway.config.settings import Settings
from gateway.db.engine import Database
from tests.support.checkpoints.world import World, follow, rebuilt, rows_of
from tests.support.forking import context
from tests.support.libraries import UNUSED
from tests.support.namespace import Namespace
from tests.support.s3server import die_with_parent
from tests.support.volumes import make_volume, query, write_settings
from tests.support.waiting import until

MEMBERS = int(os.environ.get("SPILLWAY_MEMBERS", "20000"))
MEMORY_BYTES = 12 << 20
"""MEMBERS_MAX of them are kept while a checkpoint is judged."""
COMMITS = 5
"""The commits of a start with a rebuild, in chunks, and of two rounds."""
SECONDS = 30.0


def live(settings: Settings, armed: str) -> None:
    """Follow until a failpoint kills this process, or its parent does."""
    tracker.ROUND_SECONDS = 0.01
    tracker.WRITTEN_AT_ONCE = 2
    failpoints.arm(armed)
    World(settings, Namespace.__new__(Namespace)).follower().run()


def test_a_kill_at_any_commit_loses_nothing(world: World) -> None:
    # The engine makes no difference to what a kill leaves, only to how slow it is.
    numbers = range(2 * COMMITS) if "sqlite" in world.settings.database_url else (1, 4, 5)
    for number in numbers:
        when = ("before", "after")[number % 2]
        armed = f"{CATALOGUE_COMMIT.format(when=when)}.{number // 2 + 1}"
        for step in range(3):
            world.write(f"run-{number}/step-{step}/.metadata", b"1")
        process = context.Process(target=live, args=(world.settings, armed))
        process.start()
        for step in range(3, 200):
            process.join(0.05)
            if not process.is_alive():
                break
            world.write(f"run-{number}/step-{step}/.metadata", b"1")
        process.join(SECONDS)
        assert process.exitcode == -signal.SIGKILL, armed
        follow(world.follower())
        followed = rows_of(world.settings)
        assert len(followed) >= 3
        assert followed == rebuilt(world), armed
        if number % 3:
            query(world.settings, "DELETE FROM reader")


@contextmanager
def running(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "gateway.processes.checkpoints", "--config", str(settings.source)]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def gateway_in(directory: Path) -> Settings:
    settings = write_settings(directory)
    make_volume(settings)
    Namespace(settings).close()
    return settings


def has_open(pid: int, path: Path) -> bool:
    try:
        return any(fd.readlink() == path for fd in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False  # one was closed meanwhile


def test_a_second_process_ends(tmp_path: Path) -> None:
    settings = gateway_in(tmp_path)
    with running(settings) as first:
        lock = settings.run_dir / "checkpoints.lock"
        until(lambda: lock.exists() and lock.read_text() == f"{first.pid}\n", "the lock")
        with running(settings) as second:
            # It opens the lock after it has taken over its signals.
            until(lambda: has_open(second.pid, lock), "the second process at the lock")
            second.send_signal(signal.SIGTERM)
            _out, err = second.communicate(timeout=SECONDS)
        assert second.returncode == 1
        assert str(first.pid) in err
        first.send_signal(signal.SIGTERM)
        assert first.wait(SECONDS) == 0


def test_it_imports_little() -> None:
    code = (
        "import gateway.processes.checkpoints, sys; print(*{n.split('.')[0] for n in sys.modules})"
    )
    modules = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    found = {name.partition(".")[0] for name in modules}
    assert "gateway" in found
    assert UNUSED & found == set()


MANY = """
INSERT INTO inode
WITH RECURSIVE numbers(n) AS
  (SELECT 1000000 UNION ALL SELECT n + 1 FROM numbers WHERE n < 999999 + :n)
SELECT n, 1, 1, 420, 0, 0, 1, 5, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, 1, 0, 0, 0, 2, 0, 0, NULL
FROM numbers
"""
MANY_NAMES = """
INSERT INTO dirent SELECT :parent, CAST(ino AS blob), ino, ino FROM inode WHERE ino >= 1000000
"""


def test_a_large_checkpoint_takes_bounded_memory(tmp_path: Path) -> None:
    settings = gateway_in(tmp_path)
    namespace = Namespace(settings)
    world = World(settings, namespace)
    world.write("run/step-1/.metadata", b"1")
    parent = world.attr("run/step-1").ino
    query(settings, MANY, n=MEMBERS)
    query(settings, MANY_NAMES, parent=parent)
    made: Follower = world.follower()
    tracemalloc.start()
    follow(made)
    _now, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (row,) = rows_of(settings)
    assert (row.files, row.state) == (MEMBERS + 1, "complete")
    print(f"{MEMBERS} members: {most_bytes >> 10} KiB")
    assert most_bytes < MEMORY_BYTES
    assert store.PAGE < MEMBERS
    # The text of its manifest.
    database = Database(settings.database_url)
    tracemalloc.start()
    with store.catalogue_of(settings, database).viewing() as view:
        lines = sum(1 for _line in document(view.session, row, view.rules))
    _now, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    database.close()
    assert lines == MEMBERS + 3
    print(f"{lines} lines: {most_bytes >> 10} KiB")
    assert most_bytes < MEMORY_BYTES
    world.end()
    namespace.close()
