"""``spillway backup``: a whole copy in a directory, beside writers; what a kill leaves."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.db.engine import Database
from gateway.recovery import names_copy
from gateway.recovery.backup import UNFINISHED, Backup, BackupReport
from gateway.recovery.copy_objects import DirectoryObjects
from gateway.recovery.names_store import NamesStore
from tests.support.clisite import assert_refused, spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import Act
from tests.support.s3server import ACCESS_KEY, SECRET_KEY
from tests.support.t8.evicting import tmpfs
from tests.support.t12.names import load, rows_of, sqlite_url
from tests.support.t12.process import SECONDS
from tests.support.t12.settings import make_token, tokens_in
from tests.support.waiting import until

KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
CHILD = """
import sys, time
from pathlib import Path
from gateway.config import loader
from gateway.db.engine import Database
from gateway.recovery.backup import Backup

def wait(seconds):
    print("waits", flush=True)
    time.sleep(1000)

settings = loader.load(Path(sys.argv[1]))
Backup(settings, Database(settings.database_url), Path(sys.argv[2]), wait).run()
"""


def backed_up(site: Site, parent: Path, wait: object = None) -> BackupReport:
    """Make a backup in this process."""
    parent.mkdir(exist_ok=True)
    with closing(Database(site.settings.database_url)) as database:
        how = {} if wait is None else {"wait": wait}
        return Backup(site.settings, database, parent, **how).run()  # type: ignore[arg-type]


def readers(site: Site) -> list[str]:
    return [name for (name,) in site.rows("SELECT name FROM reader WHERE name = 'backup'")]


@contextmanager
def killed(site: Site, parent: Path) -> Iterator[None]:
    """Run the body while a backup is being made, and kill that."""
    parent.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, str(site.settings.source), str(parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"waits\n"
        try:
            yield
        finally:
            child.kill()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_backup_beside_writers_is_whole_on_either_engine(
    each_site: Site,
    engine: str,
    tmp_path: Path,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names_copy, "PAGE_INOS", 1)
    monkeypatch.setattr(names_copy, "BASE_INOS", 1)
    site, chance = each_site, random.Random(7)
    for number in range(30):
        site.write(f"d{number % 3}/f{number}", b"%d" % number)
    left = iter(range(20))

    def change(_seconds: float) -> None:
        if (number := next(left, None)) is None:
            return
        site.write(f"new{number}", b"1")
        site.rename(f"new{number}", f"d{chance.randrange(3)}/f{chance.randrange(30)}")
        assert readers(site) == ["backup"]

    report = backed_up(site, tmp_path / "backups", change)
    assert next(left, None) is None
    assert readers(site) == []
    assert list((tmp_path / "backups").iterdir()) == [report.directory]
    assert {path.stat().st_mode & 0o077 for path in report.directory.rglob("*")} == {0}
    names = NamesStore(DirectoryObjects(report.directory))
    url = postgres.create_database() if engine == "postgres" else sqlite_url(tmp_path / "new")
    assert load(names, url).broken == {}
    assert rows_of(url) == rows_of(site.settings.database_url)


def test_a_killed_backup_leaves_nothing_that_looks_like_one(
    moto_site: Site, tmp_path: Path
) -> None:
    site, parent = moto_site, tmp_path / "backups"
    site.write("a", b"1")
    with killed(site, parent):
        assert readers(site) == ["backup"]
        assert_refused(
            spillway("backup", "--config", site.settings.source, parent), "another backup"
        )
    [left] = parent.iterdir()
    assert left.name.endswith(UNFINISHED)
    assert readers(site) == ["backup"], "nothing has ended it"
    report = backed_up(site, parent)
    assert list(parent.iterdir()) == [report.directory]
    assert readers(site) == []


def test_the_reader_of_a_killed_backup_ends_without_another_one(
    rclone_site: Site, tmp_path: Path
) -> None:
    site = rclone_site
    with killed(site, tmp_path / "backups"), site.process("recovery"):
        report = site.settings.run_dir / "recovery.json"
        until(report.exists, "the report", SECONDS)
        assert readers(site) == ["backup"], "it is alive"
    with site.process("recovery"):
        until(lambda: not readers(site), "the end of the reader", SECONDS)


def test_a_full_disk_is_told_and_nothing_is_left(moto_site: Site, tmp_path: Path) -> None:
    site, parent = moto_site, tmp_path / "backups"
    site.write("a", b"1")
    with tmpfs(parent):
        filler = parent / "filler"
        with filler.open("wb") as file, pytest.raises(OSError, match="space"):
            while True:
                file.write(bytes(65536))
        assert_refused(
            spillway("backup", "--config", site.settings.source, parent),
            "no backup was made",
            "No space left on device",
        )
        assert list(parent.iterdir()) == [filler]
    assert readers(site) == []
    assert_refused(
        spillway("backup", "--config", site.settings.source, tmp_path / "none"), "no directory"
    )


def test_a_backup_is_made_and_restored_without_the_bucket(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("run/a", b"1")
    site.drain()
    make_token(site.settings, "person")
    site.configure("drain", workers=7)
    site.proxy.forget()
    outage = site.proxy.inject(lambda _request: True, Act.FAIL, float("inf"))
    parent = tmp_path / "backups"
    parent.mkdir()
    done = spillway("backup", "--json", "--config", site.settings.source, parent)
    assert done.returncode == 0, done.stderr
    backup = Path(json.loads(done.stdout)["directory"])
    assert site.proxy.operations() == []
    config = tmp_path / "spillway.toml"
    bucket = site.settings.bucket
    words: list[str | Path] = [
        *("restore", "--from", backup, "--config", config, "--data-dir", tmp_path / "data"),
        *("--bucket", bucket.name, "--endpoint-url", bucket.endpoint_url, "--prefix", PREFIX),
        "--is-gone",
    ]
    done = spillway(*words, env=KEYS)
    assert done.returncode == 1, done.stderr
    assert "the bucket did not answer" in done.stdout
    assert "spillway adopt bucket, then: spillway reconcile" in done.stdout
    assert "workers = 7\n" in config.read_text()
    assert tokens_in((tmp_path / "data" / "admin.db").read_bytes()) == ["person"]
    names = json.loads(spillway("ls", "--json", "/run", "--config", config).stdout)
    assert [entry["name"] for entry in names] == ["a"]
    outage.discard()
    # What the command says that is left to be done.
    assert spillway("adopt", "bucket", "--config", config, env=KEYS).returncode == 0
    done = spillway("reconcile", "--config", config, env=KEYS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_backup_is_restored_and_follows_the_bucket(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("run/a", b"1")
    site.drain()
    report = backed_up(site, tmp_path / "backups")
    site.write("run/later", b"22")
    site.drain()
    config = tmp_path / "spillway.toml"
    bucket = site.settings.bucket
    done = spillway(
        *("restore", "--from", report.directory, "--config", config, "--is-gone"),
        *("--data-dir", tmp_path / "data", "--bucket", bucket.name),
        *("--endpoint-url", bucket.endpoint_url, "--prefix", PREFIX),
        env=KEYS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = json.loads(spillway("ls", "--json", "/run", "--config", config).stdout)
    assert [entry["name"] for entry in names] == ["a", "later"]
    assert_refused(
        spillway("restore", "--from", tmp_path, "--config", config, "--bucket", "b"),
        "it is no backup",
    )


def test_what_cannot_be_copied_beside_the_names_is_told(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.settings.admin_db.write_bytes(b"no database" * 1000)
    done = spillway("backup", "--config", site.settings.source, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "PROBLEM: " in done.stdout
    [backup] = [path for path in tmp_path.iterdir() if (path / "names").is_dir()]
    assert list(backup.glob("settings/*.json.gz"))
