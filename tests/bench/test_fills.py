"""What the benchmarks write into databases fits the schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from admin_api.store.opening import open_store
from gateway import config
from gateway.cli.main import main
from tests.bench import idle, manyfiles

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


def test_the_store_of_the_admin_api_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "spillway.toml"
    configuration = ["--config", str(path), "--bucket", "b"]
    assert main(["init", *configuration, "--data-dir", str(tmp_path / "data")]) == 0
    settings = config.load(path)
    open_store(settings).close()
    manyfiles.fill_store(settings.admin_db)
    with closing(sqlite3.connect(settings.admin_db)) as connection:
        for table, count in (("sample", 43_200), ("audit", 10_000), ("job", 1000)):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)
