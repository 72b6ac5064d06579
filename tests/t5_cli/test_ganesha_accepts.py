"""The real NFS server reads our configuration, because only the server knows its syntax."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gateway.cli import up
from gateway.common.network import PRIVATE
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.nfs import ganesha_conf
from gateway.nfs.server import answers
from tests.support.ports import free_port
from tests.support.s3server import die_with_parent
from tests.support.waiting import until

DEBIAN_PLUGINS = Path("/usr/lib/x86_64-linux-gnu/ganesha")


def settings_of(directory: Path, bind: str, max_io_bytes: int) -> Settings:
    nfs = {"bind": bind, "port": free_port(), "max_io_bytes": max_io_bytes, "squash": "root"}
    nfs |= {"max_connections": 10_000, "threads": 2048, "manage_gids": True}
    odd = ["192.168.7.4 ro all_squash", "2001:db8::1 rw no_root_squash", "1:2:3:4:5:6:7:8 ro"]
    nfs["clients"] = [
        *odd,
        *PRIVATE,
        "2001:db8:1::/48 rw",
        "fd00::/99 ro",
        "0.0.0.0/0 ro",
        "::/0 ro",
    ]
    raw = {
        "gateway": {"data_dir": str(directory)},
        "nfs": {**nfs, "plugins_dir": str(DEBIAN_PLUGINS), "lease_seconds": 5, "grace_seconds": 5},
        "bucket": {"name": "b"},
    }
    return loader.from_mapping(raw, {}, directory / "spill way.toml")


@pytest.mark.parametrize(
    ("bind", "max_io_bytes"),
    [
        ("127.0.0.1", 4096),
        ("0.0.0.0", 1024 * 1024),
        ("127.0.0.1", 8 * 1024 * 1024),
        ("::", 1024 * 1024),
        ("::1", 2 * 1024 * 1024),
    ],
)
def test_the_server_starts_with_it(tmp_path: Path, bind: str, max_io_bytes: int) -> None:
    directory = tmp_path / "a dir, with {odd} characters; # 'é'"
    exported = tmp_path / "exported"
    for path in (exported, directory / "log", directory / "run", directory / "recovery"):
        path.mkdir(parents=True)
    settings = settings_of(directory, bind, max_io_bytes)
    # Our FSAL is not built in every test run, so its name is replaced; the rest stays as rendered.
    ours = r"Name = PYTHON;\n *Directory = .*\n *Revision = .*\n"
    text = re.sub(ours, "Name = VFS;\n", ganesha_conf.render(settings))
    settings.ganesha_conf.write_text(
        text.replace('Path = "/checkpoints"', f'Path = "{exported}"', 1)
    )
    command = up.ganesha(settings)
    log = settings.log_dir / "ganesha.log"

    def said() -> str:
        return log.read_text() if log.exists() else ""

    server = subprocess.Popen(command.argv, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
    try:
        until(lambda: answers(settings) or server.poll() is not None, "the port")
        until(lambda: "NFS SERVER INITIALIZED" in said() or server.poll() is not None, "start")
        assert server.poll() is None, said()
    finally:
        server.terminate()
        server.wait(60)
    log_text = said()
    assert "Configuration file successfully parsed" in log_text
    complaints = [line for line in log_text.splitlines() if ":CONFIG :" in line]
    # The plugin would read the second, and is not loaded here; Ganesha 6.5 tells that it is unread.
    expected = ("Missing RADOS URLs backend library", "Unknown block (PYTHON)")
    assert [line for line in complaints if not any(text in line for text in expected)] == []
    assert (directory / "recovery" / "v4recov").is_dir()
