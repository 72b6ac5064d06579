"""What the benchmarks write into databases fits the schema."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from admin_api.store import open_store
from gateway.catalogue.tracker import Follower
from gateway.cli.main import main
from gateway.config import loader
from gateway.db.engine import Database
from tests.bench import idle, manyfiles
from tests.support.volumes import make_settings, make_volume, query
from tests.support.waiting import until

FILES = 3000


@pytest.mark.parametrize(
    "fill",
    [
        lambda path: idle.fill(path, FILES, 10),
        lambda path: manyfiles.fill(path, FILES // manyfiles.RUNS // 2, 2),
    ],
    ids=["idle", "many files"],
)
def test_a_namespace_is_filled(tmp_path: Path, fill: Callable[[Path], None]) -> None:
    configuration = ["--config", str(tmp_path / "spillway.toml"), "--bucket", "b"]
    assert main(["init", *configuration, "--data-dir", str(tmp_path / "data")]) == 0
    database = tmp_path / "data" / "namespace.db"
    fill(database)
    with closing(sqlite3.connect(database)) as connection:
        stored = connection.execute("SELECT count(*) FROM object JOIN inode USING (ino)")
        assert stored.fetchone() == (FILES,)


def test_the_many_files_are_durable_checkpoints(tmp_path: Path) -> None:
    """Otherwise a benchmark would wait for them in vain."""
    files = 4
    rule = {"name": "filled", "path": "{run}/step-{step}", "files": files}
    settings = make_settings(tmp_path / "data", {"checkpoints": {"rule": [rule]}})
    make_volume(settings)
    manyfiles.fill(settings.data_dir / "namespace.db", 2, files)
    with closing(Database(settings.database_url)) as database:
        follower = Follower(settings, database, threading.Event())
        until(follower.step, "it has read the whole namespace")
    rows = query(settings, "SELECT state, grade, count(*) FROM checkpoint GROUP BY state, grade")
    assert rows == [("durable", "listed", 2 * manyfiles.RUNS)]


def test_the_store_of_the_admin_api_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "spillway.toml"
    configuration = ["--config", str(path), "--bucket", "b"]
    assert main(["init", *configuration, "--data-dir", str(tmp_path / "data")]) == 0
    settings = loader.load(path)
    open_store(settings).close()
    manyfiles.fill_store(settings.admin_db)
    with closing(sqlite3.connect(settings.admin_db)) as connection:
        for table, count in (("sample", 43_200), ("audit", 10_000), ("job", 1000)):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)
