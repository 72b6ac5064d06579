"""The log of names of a real NFS server: who removed, renamed, made or opened what."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.namespace.names_log import FILE, FORMER
from tests.support import nfs4
from tests.support.nfsserver import Server

ONE = "127.0.0.2"
LOG_BYTES = 1 << 20


def serving(directory: Path, level: str) -> Server:
    values = {"nfs": {"names_log": level, "names_log_bytes": LOG_BYTES}}
    return Server("spillway", directory, directory / "ganesha.log", values)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("names"), "changes") as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port, ONE) as found:
        yield found


def said(server: Server, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["audit", "--names", "--config", str(server.settings.source), *options]) == 0
    return capsys.readouterr().out


def told(server: Server, capsys: pytest.CaptureFixture[str], path: str) -> list[list[Any]]:
    """Return what was done to a path, the oldest first."""
    document = json.loads(said(server, capsys, "--json", "--path", path))
    fields = ("client", "uid", "what", "path", "new_path", "replaced")
    return [[one[name] for name in fields if one[name] is not None] for one in reversed(document)]


def make(client: nfs4.Client, directory: bytes, *names: str) -> None:
    for name in names:
        with client.opened(directory, name):
            pass


def test_who_removed_what_is_known_when_its_directory_is_gone(
    server: Server, client: nfs4.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    top = client.handle("export")
    client.mkdir(top, "run", 0o777)
    run = client.handle("export", "run")
    client.uid = 1000
    make(client, run, "a\nb", "c", "d")
    client.rename(run, "c", "d")
    client.remove(run, "a\nb")
    client.remove(run, "d")
    client.uid = 0
    client.remove(top, "run")
    assert told(server, capsys, "run") == [
        [ONE, 0, "mkdir", "/export/run"],
        [ONE, 1000, "create", "/export/run/a%0Ab"],
        [ONE, 1000, "create", "/export/run/c"],
        [ONE, 1000, "create", "/export/run/d"],
        [ONE, 1000, "rename", "/export/run/c", "/export/run/d", True],
        [ONE, 1000, "remove", "/export/run/a%0Ab"],
        [ONE, 1000, "remove", "/export/run/d"],
        [ONE, 0, "remove", "/export/run"],
    ]
    # The removal of a directory takes along what was in it.
    assert [row[2] for row in told(server, capsys, "/export/run/d")] == [
        *("mkdir", "create", "rename", "remove", "remove"),
    ]
    last = said(server, capsys, "--path", "/export/run/c").splitlines()[1:-1]
    assert last[-1].endswith(
        f"{ONE}  1000  rename  /export/run/c to /export/run/d, which was replaced"
    )
    assert r"remove  /export/run/a\nb" in said(server, capsys)
    assert (
        said(server, capsys, "--since", "2100-01-01T00:00")
        == "the log of names has nothing of it\n"
    )


def test_a_change_that_is_refused_is_not_in_it(
    server: Server, client: nfs4.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    top = client.handle("export")
    client.mkdir(top, "full")
    make(client, client.handle("export", "full"), "file")
    with pytest.raises(nfs4.Status):
        client.remove(top, "full")
    with pytest.raises(nfs4.Status):
        client.remove(top, "none")
    assert "remove" not in [row[2] for row in told(server, capsys, "full")]
    assert told(server, capsys, "none") == []


def test_the_log_begins_anew_and_keeps_the_former_one(
    server: Server, client: nfs4.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    log = server.settings.log_dir / FILE
    top = client.handle("export")
    with log.open("a", encoding="utf-8") as file:
        # Half a line, as a server leaves it that is killed, is passed over.
        file.write("x" * (LOG_BYTES - log.stat().st_size - 1) + "\n")
    client.mkdir(top, "after")
    assert log.stat().st_size < 1000
    assert (server.settings.log_dir / FORMER).stat().st_size == LOG_BYTES
    assert [row[2] for row in told(server, capsys, "after")] == ["mkdir"]
    assert [row[2] for row in told(server, capsys, "run")] != []


def test_names_change_also_while_the_log_cannot_be_written(
    server: Server, client: nfs4.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    top = client.handle("export")
    directory = server.settings.log_dir
    shutil.rmtree(directory)
    directory.write_text("no directory")
    client.mkdir(top, "unlogged")
    client.remove(top, "unlogged")
    assert "what clients do is not in it" in server.errors()
    directory.unlink()
    directory.mkdir()
    client.mkdir(top, "logged")
    assert [row[2] for row in told(server, capsys, "logged")] == ["mkdir"]


@pytest.mark.parametrize(("level", "whats"), [("off", None), ("removals", ["rename", "remove"])])
def test_the_setting_decides(tmp_path: Path, level: str, whats: list[str] | None) -> None:
    with serving(tmp_path, level) as server, nfs4.Client(server.port, ONE) as client:
        top = client.handle("export")
        client.mkdir(top, "one")
        client.rename(top, "one", "two")
        client.remove(top, "two")
        log = server.settings.log_dir / FILE
        lines = log.read_text().splitlines() if log.exists() else None
    assert whats == (lines and [json.loads(line)["what"] for line in lines])


def test_opens_that_are_not_refused_are_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, "opens") as server:
        with nfs4.Client(server.port, ONE) as client:
            top = client.handle("export")
            client.mkdir(top, "run", 0o777)
            run = client.handle("export", "run")
            make(client, run, "file")
            with client.opened(run, "file", reads=True):
                pass
        server.crash()
        with nfs4.Client(server.port, ONE) as client:
            client.uid = 1000
            for reads in (False, True):
                with pytest.raises(nfs4.Status, match="13"):  # NFS4ERR_ACCESS
                    client.open(run, "file", reads=reads)
            client.uid = 0
            with client.opened(run, "file") as file:
                file.open()
            client.remove(run, "file")
        assert told(server, capsys, "run/file") == [
            [ONE, 0, "mkdir", "/export/run"],
            [ONE, 0, "create", "/export/run/file"],
            [ONE, 0, "open to read", "/export/run/file"],
            *[[ONE, 0, "open to write", "/export/run/file"]] * 2,
            [ONE, 0, "remove", "/export/run/file"],
        ]
