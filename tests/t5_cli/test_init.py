"""`spillway init` makes a gateway, can be run again, and refuses to change what is not its own."""

from __future__ import annotations

import configparser
import os
import pty
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest

from gateway.config import loader
from gateway.namespace.data_files import SHARDS
from tests.support.clisite import (
    DEADLINE_SECONDS,
    PROGRAM,
    Site,
    assert_refused,
    environ,
    spillway,
)
from tests.support.postgres import PostgresServer
from tests.support.volumes import query

SECRET = "wJalr/XUtn+FEMI%secret"
KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": SECRET}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def tree(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return mode, inode number and mtime of everything below a directory."""
    return {
        str(path.relative_to(root)): (status.st_mode, status.st_ino, status.st_mtime_ns)
        for path in root.rglob("*")
        if (status := path.stat()) and not path.name.endswith(("-wal", "-shm"))
        if path.name not in ("files", "data") and path != root
    }


def keys_in(path: Path) -> dict[str, str]:
    profiles = configparser.RawConfigParser()
    profiles.read(path)
    return dict(profiles["default"])


def test_makes_everything_and_says_so(tmp_path: Path) -> None:
    path, data = tmp_path / "etc/spillway.toml", tmp_path / "data"
    result = spillway(
        *("init", "--config", path, "--data-dir", data, "--bucket", "runs", "--port", "20490"),
        *("--endpoint-url", "http://s3:9000", "--region", "eu", "--prefix", "a/b"),
        *("--bind", "10.0.0.1", "--export", "/ckpt"),
        env=KEYS,
    )
    assert result.returncode == 0, result.stderr
    settings = loader.load(path, {})
    assert settings.data_dir == data
    assert (settings.nfs.port, settings.nfs.bind, settings.nfs.export) == (
        *(20490, "10.0.0.1", "/ckpt"),
    )
    bucket = settings.bucket
    assert (bucket.name, bucket.endpoint_url, bucket.region, bucket.prefix) == (
        *("runs", "http://s3:9000", "eu", "a/b"),
    )
    assert mode(data) == 0o700
    assert len(list(settings.files_dir.iterdir())) == SHARDS + 1, "the shards and the stamp"
    assert all(p.is_dir() for p in (settings.log_dir, settings.run_dir, settings.recovery_dir))
    assert mode(settings.credentials_file) == 0o600
    assert keys_in(settings.credentials_file) == {
        "aws_access_key_id": "AKID",
        "aws_secret_access_key": SECRET,
    }
    with sqlite3.connect(data / "namespace.db") as database:
        assert database.execute("SELECT count(*) FROM volume").fetchone() == (1,)
    database.close()
    assert "NFS_Port = 20490;" in settings.ganesha_conf.read_text()
    assert SECRET not in result.stdout + result.stderr
    assert SECRET not in path.read_text()
    assert mode(path) == 0o600
    lines = result.stdout.splitlines()
    assert len(lines) == 11
    assert lines[-2].startswith("bucket runs, prefix 'a/b': not asked now, the drain claims it ")
    assert lines[-1] == f"next: spillway up --config {path}"


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    args = ("init", "--config", tmp_path / "s.toml", "--data-dir", tmp_path / "data")
    assert spillway(*args, "--bucket", "b", env=KEYS).returncode == 0
    before = tree(tmp_path)
    again = spillway(*args, env=KEYS)
    assert again.returncode == 0, again.stderr
    assert tree(tmp_path) == before
    assert "exists, kept as it is; --data-dir ignored: edit the file instead" in again.stdout
    assert "database" in again.stdout
    assert "current, schema" in again.stdout


def test_an_interrupted_first_run_is_completed(site: Site) -> None:
    settings = site.settings
    (settings.files_dir / "7f").rmdir()
    settings.recovery_dir.rmdir()
    settings.ganesha_conf.unlink()
    (settings.data_dir / "namespace.db").unlink()
    site.config.with_suffix(".id").unlink()
    result = spillway("init", "--config", site.config)
    assert result.returncode == 0, result.stderr
    assert (settings.files_dir / "7f").is_dir()
    assert settings.recovery_dir.is_dir()
    assert settings.ganesha_conf.exists()
    assert "namespace.db: made" in result.stdout


def test_a_disk_that_is_not_mounted_makes_no_new_gateway(site: Site) -> None:
    """The namespace on the mount point would replace the objects of the one on the disk."""
    mount_point, disk = site.settings.data_dir, site.directory / "disk"
    id_file = site.config.with_suffix(".id")
    before = id_file.read_text()
    mount_point.rename(disk)
    mount_point.mkdir(mode=0o700)
    result = spillway("init", "--config", site.config)
    assert_refused(result, "no database", ": mount its disk or ", f"init --new ({id_file} ")
    assert list(mount_point.iterdir()) == []
    mount_point.rmdir()
    disk.rename(mount_point)
    again = spillway("init", "--config", site.config)
    assert again.returncode == 0, again.stderr
    assert id_file.read_text() == before
    mount_point.rename(disk)
    new = spillway("init", "--config", site.config, "--new")
    assert new.returncode == 0, new.stderr
    assert f"id of the namespace {id_file}: written" in new.stdout
    assert id_file.read_text() != before


def test_the_id_of_the_namespace_is_that_of_its_database(site: Site) -> None:
    id_file = site.config.with_suffix(".id")
    [(fs_id,)] = query(site.settings, "SELECT fs_id FROM volume")
    assert id_file.read_text() == f"{fs_id.hex()}\n"
    # A gateway of a version without the file gets it with the upgrade.
    id_file.unlink()
    assert spillway("upgrade", "--config", site.config).returncode == 0
    assert id_file.read_text() == f"{fs_id.hex()}\n"


def test_an_id_that_cannot_be_written_is_said_and_stops_nothing(site: Site) -> None:
    id_file = site.config.with_suffix(".id")
    id_file.unlink()
    id_file.mkdir()
    result = spillway("init", "--config", site.config)
    assert result.returncode == 0, result.stderr
    assert f"{id_file}: cannot be written (Is a directory)" in result.stdout


def test_the_config_comes_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "env.toml"
    result = spillway(
        *("init", "--bucket", "b", "--data-dir", tmp_path / "data"),
        env={"SPILLWAY_CONFIG": str(path)},
    )
    assert result.returncode == 0, result.stderr
    assert path.exists()


def test_what_the_environment_sets_is_written_down(tmp_path: Path) -> None:
    path, database = tmp_path / "s.toml", tmp_path / "elsewhere.db"
    env = {
        "SPILLWAY_NAMESPACE_URL": f"sqlite:///{database}",
        "SPILLWAY_BUCKET_NAME": "runs",
        "SPILLWAY_GATEWAY_DATA_DIR": str(tmp_path / "data"),
        "SPILLWAY_DRAIN_INCOMPLETE_PATTERNS": '["*.part", "a\\"b"]',
        "SPILLWAY_DRAIN_SETTLE_SECONDS": "2",
        "SPILLWAY_BUCKET_PATH_STYLE": "false",
    }
    result = spillway("init", "--config", path, env=env)
    assert result.returncode == 0, result.stderr
    assert "written, with SPILLWAY_GATEWAY_DATA_DIR, SPILLWAY_BUCKET_NAME" in result.stdout
    assert loader.load(path, {}) == loader.load(path, env)
    # The next command without the variables uses the same database.
    again = spillway("init", "--config", path)
    assert f"database {database}: current" in again.stdout
    assert not (tmp_path / "data" / "namespace.db").exists()


def test_the_database_is_an_option(tmp_path: Path, postgres: PostgresServer) -> None:
    path, password = tmp_path / "s.toml", "wJalrXUtn"
    url = postgres.create_database().replace("@", f":{password}@")
    args = ("--bucket", "b", "--data-dir", tmp_path / "data", "--namespace-url", url)
    result = spillway("init", "--config", path, *args)
    assert result.returncode == 0, result.stderr
    assert loader.load(path, {}).database_url == url
    assert mode(path) == 0o600
    assert password not in result.stdout + result.stderr
    assert not (tmp_path / "data" / "namespace.db").exists()


def test_an_option_and_a_variable_that_differ(tmp_path: Path) -> None:
    args = ("--config", tmp_path / "s.toml", "--data-dir", tmp_path / "data", "--bucket", "b")
    result = spillway("init", *args, env={"SPILLWAY_BUCKET_NAME": "other"})
    assert_refused(result, "--bucket and SPILLWAY_BUCKET_NAME differ")
    assert list(tmp_path.iterdir()) == []
    result = spillway("init", *args, env={"SPILLWAY_BUCKET_NAME": "b"})
    assert result.returncode == 0, result.stderr


def test_a_variable_that_cannot_be_written_down(tmp_path: Path) -> None:
    args = ("--config", tmp_path / "s.toml", "--data-dir", tmp_path / "data", "--bucket", "b")
    result = spillway("init", *args, env={"SPILLWAY_BUCKET_REGION": "eu\x7f"})
    assert_refused(result, "SPILLWAY_BUCKET_REGION holds characters that cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_variables_beside_an_existing_file_are_said_not_to_be_in_it(site: Site) -> None:
    before = site.config.read_text()
    result = spillway("init", "--config", site.config, env={"SPILLWAY_DRAIN_WORKERS": "8"})
    assert result.returncode == 0, result.stderr
    assert "SPILLWAY_DRAIN_WORKERS not written to it" in result.stdout
    assert site.config.read_text() == before


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        spillway("init", "--config", "s.toml", "--bucket", "b", "--data-dir", "d").returncode == 0
    )
    settings = loader.load(tmp_path / "s.toml", {})
    assert settings.data_dir == tmp_path / "d"
    assert f'Config = "{tmp_path}/s.toml";' in settings.ganesha_conf.read_text()


def test_new_keys_replace_old_ones_and_leave_other_profiles_alone(site: Site) -> None:
    path = site.settings.credentials_file
    path.write_text("[default]\naws_access_key_id = old\nregion = x\n[other]\nrole_arn = r\n")
    path.chmod(0o644)
    env = {**KEYS, "AWS_SESSION_TOKEN": "token"}
    assert spillway("init", "--config", site.config, env=env).returncode == 0
    assert mode(path) == 0o600
    assert keys_in(path) == {
        "region": "x",
        "aws_access_key_id": "AKID",
        "aws_secret_access_key": SECRET,
        "aws_session_token": "token",
    }
    assert "role_arn = r" in path.read_text()
    assert spillway("init", "--config", site.config, env=KEYS).returncode == 0
    assert "aws_session_token" not in keys_in(path)


def test_without_keys_it_says_what_is_missing(site: Site) -> None:
    result = spillway("init", "--config", site.config)
    assert result.returncode == 0
    assert "credentials" in result.stdout
    assert "none given" in result.stdout
    assert not site.settings.credentials_file.exists()


@pytest.mark.parametrize(
    ("env", "args", "part"),
    [
        ({"AWS_SECRET_ACCESS_KEY": SECRET}, (), "--access-key-id"),
        ({"AWS_ACCESS_KEY_ID": "AKID"}, (), "set AWS_SECRET_ACCESS_KEY"),
        ({}, ("--access-key-id", "AKID"), "set AWS_SECRET_ACCESS_KEY"),
        ({**KEYS, "AWS_SECRET_ACCESS_KEY": SECRET + "\nx"}, (), "control characters"),
    ],
)
def test_half_a_pair_of_keys(
    site: Site, env: dict[str, str], args: tuple[str, ...], part: str
) -> None:
    result = spillway("init", "--config", site.config, *args, env=env)
    assert_refused(result, part)
    assert SECRET not in result.stderr


def test_the_secret_is_asked_for_on_a_terminal(site: Site) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [str(PROGRAM), "init", "--config", str(site.config), "--access-key-id", "TTYID"],
        env=environ(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        # Input before the prompt is discarded, as on any terminal.
        prompt = process.stderr.read(len(b"Secret key of TTYID: "))
        assert prompt == b"Secret key of TTYID: "
        os.write(ours, SECRET.encode() + b"\n")
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    os.close(ours)
    assert process.returncode == 0, stderr
    assert keys_in(site.settings.credentials_file)["aws_secret_access_key"] == SECRET
    assert SECRET.encode() not in stdout


def test_a_credentials_file_that_is_something_else(site: Site) -> None:
    site.settings.credentials_file.write_text("key=hidden-value\n")
    result = spillway("init", "--config", site.config, env=KEYS)
    assert_refused(result, "is not a credentials file")
    assert "hidden-value" not in result.stderr


def test_a_directory_of_others_is_not_taken_over(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "somebody's").touch()
    path = tmp_path / "s.toml"
    result = spillway("init", "--config", path, "--bucket", "b", "--data-dir", shared)
    assert_refused(result, str(shared), "one of its own")
    assert mode(shared) == 0o1777
    assert list(shared.iterdir()) == [shared / "somebody's"]
    assert not path.exists()


def test_an_empty_directory_is_made_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "lost+found").mkdir(parents=True)
    data.chmod(0o755)
    args = ("--config", tmp_path / "s.toml", "--bucket", "b", "--data-dir", data)
    result = spillway("init", *args)
    assert result.returncode == 0, result.stderr
    assert mode(data) == 0o700
    assert "mode set to 0700" in result.stdout
