"""Each mistake of a person gets one line with its remedy, and an exit status that is not 0."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import datadir
from tests.support.clisite import (
    DEADLINE_SECONDS,
    PROGRAM,
    Site,
    assert_refused,
    environ,
    spillway,
)
from tests.support.ports import free_port
from tests.support.tools import run_as_root

COMMANDS = ("init", "up", "status")
NOBODY = "65534"
SECRET = "wJalrXUtn"


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ((), ("COMMAND", "spillway --help")),
        (("frobnicate",), ("frobnicate", "spillway --help")),
        (("status", "--frobnicate"), ("--frobnicate",)),
        (("init", "--port", "many"), ("--port", "spillway init --help")),
    ],
)
def test_wrong_usage(args: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert_refused(spillway(*args), *parts)


@pytest.mark.parametrize(
    ("args", "near"),
    [(("statsu",), "status"), (("policy", "lst"), "list"), (("queue", "hodl"), "hold")],
)
def test_a_wrong_word_gets_the_nearest_one(args: tuple[str, ...], near: str) -> None:
    result = spillway(*args)
    assert_refused(result, f"{args[-1]!r}: did you mean {near}?", "--help")
    assert "choose from" not in result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at its end", "within a print"])
@pytest.mark.parametrize("args", [("--help",), ("ls", "--help"), ("completion", "bash")])
def test_an_output_that_cannot_be_written_is_one_line(
    args: tuple[str, ...], unbuffered: str
) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [PROGRAM, *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environ(PYTHONUNBUFFERED=unbuffered),
        )
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    assert line == "spillway: the output cannot be written: No space left on device"


SUPERVISION = """
import sys
from gateway.cli import main
from gateway.common.logs import Output

def supervise(args):
    Output().say("drain", "started")
    Output().say("drain", "ended")
    return 0

main._run = supervise
sys.exit(main.main(["status"]))
"""


def test_supervision_continues_without_output() -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-c", SUPERVISION], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_value_of_an_unknown_option_is_not_quoted() -> None:
    for args in (("--namespace-uri", f"//u:{SECRET}@h/n"), (f"--namespace-uri=//u:{SECRET}@h/n",)):
        result = spillway("init", "--bucket", "b", *args)
        assert_refused(result, "unknown option --namespace-uri:", "spillway --help")
        assert SECRET not in result.stderr


def test_version() -> None:
    result = spillway("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("spillway ")


@pytest.mark.parametrize("command", ["up", "status"])
def test_missing_config(tmp_path: Path, command: str) -> None:
    path = tmp_path / "none.toml"
    assert_refused(spillway(command, "--config", path), str(path), "spillway init")


@pytest.mark.parametrize(
    ("command", "text", "parts"),
    [
        ("init", '[bucket]\nname = "b"\nspeed = 9\n', ("bucket.speed", "no such key")),
        ("up", '[bucket]\nname = "b"\nspeed = 9\n', ("bucket.speed", "no such key")),
        ("status", '[bucket]\nname = "b"\nspeed = 9\n', ("bucket.speed", "no such key")),
        ("up", '[bucket]\nname = "b"\n[nfss]\n', ("nfss", "no such section")),
        ("init", '[bucket]\nname = "b"\n[nfs]\nport = "2049"\n', ("nfs.port", "whole number")),
        ("up", '[bucket]\nname = "b"\n[nfs]\nport = 0\n', ("nfs.port", "between 1 and 65535")),
        ("status", "[bucket]\n", ("bucket.name", "required")),
        ("init", "[bucket\n", ("not valid TOML",)),
        ("up", '[bucket]\nname = "b"\n[gateway]\ndata_dir = "data"\n', ("absolute path",)),
    ],
)
def test_wrong_config(tmp_path: Path, command: str, text: str, parts: tuple[str, ...]) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    assert_refused(spillway(command, "--config", path), *parts)
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_environment(site: Site) -> None:
    result = spillway("status", "--config", site.config, env={"SPILLWAY_NFS_PORT": "abc"})
    assert_refused(result, "SPILLWAY_NFS_PORT", "abc")


def test_init_without_a_bucket(tmp_path: Path) -> None:
    result = spillway("init", "--config", tmp_path / "s.toml", "--data-dir", tmp_path / "d")
    assert_refused(result, "--bucket NAME")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--port", "99999", "nfs.port"),
        ("--export", "checkpoints", "nfs.export"),
        ("--endpoint-url", "s3:9000", "bucket.endpoint_url"),
        ("--bind", "gateway.example", "nfs.bind"),
        ("--prefix", "/a/", "bucket.prefix"),
        ("--prefix", "a\nb", "--prefix"),
        ("--data-dir", '/tmp/a"b', "gateway.data_dir"),
    ],
)
def test_init_with_wrong_values(tmp_path: Path, option: str, value: str, part: str) -> None:
    base = ("init", "--config", tmp_path / "s.toml", "--bucket", "b", "--data-dir", tmp_path / "d")
    assert_refused(spillway(*base, option, value), part)
    assert list(tmp_path.iterdir()) == []


def test_data_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "s.toml"
    args = ("--config", path, "--bucket", "b", "--data-dir", tmp_path / "file/data")
    assert_refused(spillway("init", *args), str(tmp_path / "file/data"), "--data-dir")
    assert not path.exists()
    path.write_text(f'[gateway]\ndata_dir = "{tmp_path}/file/data"\n[bucket]\nname = "b"\n')
    assert_refused(spillway("up", "--config", path), "no data directory", "mount its disk or")
    assert_refused(spillway("status", "--config", path), "no database", "mount its disk or")


def test_config_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    args = ("--bucket", "b", "--data-dir", tmp_path / "d", "--config", tmp_path / "file/s.toml")
    assert_refused(spillway("init", *args), "cannot write", "--config")


@pytest.fixture
def nobodys() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Make a directory of an ordinary user. Yields it with a command prefix to become this user."""
    directory = Path(tempfile.mkdtemp(prefix="spillway-nobody-"))
    try:
        if os.geteuid() == 0:
            os.chown(directory, int(NOBODY), int(NOBODY))
            yield (
                directory,
                ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
            )
        else:
            yield directory, ()
    finally:
        shutil.rmtree(directory)


def test_an_ordinary_user_can_set_up_a_gateway(nobodys: tuple[Path, tuple[str, ...]]) -> None:
    directory, prefix = nobodys
    path = directory / "spillway.toml"
    args = ("--bucket", "b", "--data-dir", directory / "data", "--port", str(free_port()))
    env = {"HOME": str(directory)}
    result = spillway("init", "--config", path, *args, env=env, prefix=prefix)
    assert result.returncode == 0, result.stderr
    assert (directory / "data/namespace.db").exists()
    result = spillway("up", "--config", path, env=env, prefix=prefix)
    assert_refused(result, "no plugin at /usr/lib/spillway/libfsalpython.so")


def test_an_ordinary_user_in_a_data_directory_of_others(
    nobodys: tuple[Path, tuple[str, ...]],
) -> None:
    directory, prefix = nobodys
    args = ("--bucket", "b", "--config", directory / "s.toml", "--data-dir")
    result = spillway("init", *args, "/var/lib/spillway-test/data", prefix=prefix)
    assert_refused(result, "/var/lib/spillway-test/data", "Permission denied", "--data-dir")
    readonly = directory / "readonly"
    readonly.mkdir(mode=0o555)
    if prefix:
        os.chown(readonly, int(NOBODY), int(NOBODY))
    result = spillway("init", *args, readonly, prefix=prefix)
    assert_refused(result, f"cannot write in {readonly}")


def test_a_data_directory_of_somebody_else(site: Site) -> None:
    data_dir = site.settings.data_dir
    # An ordinary user must be able to read the directory, so that its owner causes the refusal.
    data_dir.chmod(0o755)
    run_as_root("chown", f"{NOBODY}:{NOBODY}", data_dir)
    try:
        for command in ("init", "up"):
            result = spillway(command, "--config", site.config)
            assert_refused(result, f"belongs to user {NOBODY}", f"sudo -u '#{NOBODY}'")
    finally:
        run_as_root("chown", f"{os.geteuid()}:{os.getegid()}", data_dir)


@pytest.mark.parametrize("command", ["up", "upgrade"])
def test_without_a_database(site: Site, command: str) -> None:
    (site.settings.data_dir / "namespace.db").unlink()
    remedy = ": mount its disk or put its backup back; for a new gateway: spillway init"
    assert_refused(spillway(command, "--config", site.config), "no database", remedy)
    assert not (site.settings.data_dir / "namespace.db").exists()


def test_missing_plugin(site: Site) -> None:
    (site.directory / "libfsalpython.so").unlink()
    result = spillway("up", "--config", site.config)
    assert_refused(result, str(site.directory / "libfsalpython.so"), "nfs.plugins_dir")


def test_missing_server(site: Site) -> None:
    (site.directory / "fake_child.py").chmod(0o644)
    result = spillway("up", "--config", site.config)
    assert_refused(result, str(site.directory / "fake_child.py"), "nfs.ganesha", "nfs-ganesha")


@pytest.mark.parametrize(
    ("keytab", "idmap", "parts"),
    [
        (None, "", ("cannot read", "krb5.keytab", "No such file", "nfs.keytab")),
        (b"\5\2\0\4host\0", "", ("has no key of nfs/<host>", "ktadd")),
        (b"\5\2\0\3nfs\0", None, ("cannot read", "idmapd.conf", "nfs.idmap_conf")),
        (b"\5\2\0\3nfs\0", "[General]\n# Domain = x\n", ("neither Local-Realms nor Domain",)),
    ],
)
def test_kerberos_without_what_it_needs(
    site: Site, keytab: bytes | None, idmap: str | None, parts: tuple[str, ...]
) -> None:
    site.edit("nfs", "security", '["krb5p"]')
    for key, name, content in (
        ("keytab", "krb5.keytab", keytab),
        ("idmap_conf", "idmapd.conf", None if idmap is None else idmap.encode()),
    ):
        path = site.directory / name
        site.edit("nfs", key, f'"{path}"')
        if content is not None:
            path.write_bytes(content)
    assert_refused(spillway("up", "--config", site.config), *parts)


def test_port_in_use(site: Site) -> None:
    with socket.create_server(("127.0.0.1", site.port)):
        result = spillway("up", "--config", site.config)
    assert_refused(result, f"port {site.port}", "nfs.port", "Address already in use")


def test_address_of_another_machine(site: Site) -> None:
    site.edit("nfs", "bind", '"192.0.2.1"')
    assert_refused(spillway("up", "--config", site.config), "192.0.2.1", "nfs.bind")


@pytest.mark.parametrize("command", COMMANDS)
def test_database_of_a_newer_program(site: Site, command: str) -> None:
    database = sqlite3.connect(site.settings.data_dir / "namespace.db")
    with database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    result = spillway(command, "--config", site.config)
    assert_refused(result, "9999", "newer Spillway")


def test_no_migration_under_a_running_gateway(site: Site) -> None:
    (site.settings.data_dir / "namespace.db").unlink()
    with datadir.locked(site.settings, datadir.UP_PROGRAM):
        result = spillway("init", "--new", "--config", site.config)
    assert_refused(result, "another spillway up", f"kill {os.getpid()}")


@pytest.mark.parametrize("command", COMMANDS)
def test_database_that_is_none(site: Site, command: str) -> None:
    (site.settings.data_dir / "namespace.db").write_bytes(b"something else" * 100)
    assert_refused(spillway(command, "--config", site.config), "not a database")


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_kind_of_database(site: Site, command: str) -> None:
    site.edit("namespace", "url", '"mysql://host/db"')
    assert_refused(spillway(command, "--config", site.config), "namespace.url", "sqlite:///")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/spillway:{}@host/name",
        "postgresql:///spillway:{}@host/name",
        "postgresql://spillway:{}@host:port/name",
        "postgresql://spillway:p@{}@host/name",
        "host=h user=spillway password={} dbname=name",
        "mysql://spillway:{}@host/name",
    ],
)
def test_an_unusable_database_url_is_not_quoted(site: Site, url: str) -> None:
    site.edit("namespace", "url", f'"{url.format(SECRET)}"')
    result = spillway("init", "--config", site.config)
    assert_refused(result, "namespace.url", "postgresql://")
    assert SECRET not in result.stdout + result.stderr


def test_the_password_of_a_database_that_is_away_is_not_quoted(site: Site) -> None:
    port = free_port()
    for url in (
        f"postgresql://spillway:{SECRET}@127.0.0.1:{port}/name",
        f"postgresql://spillway@127.0.0.1:{port}/name?password={SECRET}",
    ):
        site.edit("namespace", "url", f'"{url}"')
        result = spillway("init", "--config", site.config)
        assert_refused(result, f"127.0.0.1:{port}/name")
        assert SECRET not in result.stdout + result.stderr


def test_a_reader_that_goes_away(site: Site) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [str(PROGRAM), "init", "--config", str(site.config)],
            env=environ(),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")
