"""Fixtures of the command line's tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.support.checkout import ROOT
from tests.support.clisite import Site, environ, spillway
from tests.support.ports import free_port
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer

FAKE_CHILD = ROOT / "tests/support/t5/fake_child.py"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Make a gateway with `init`, a stand-in for the NFS server, and an empty plugin."""
    made = Site(tmp_path, free_port())
    with monkeypatch.context() as context:
        for name in set(os.environ) - set(environ()):
            context.delenv(name)
        # `init` runs in this process, because that is fast; test_init runs it as users do.
        argv = ["init", "--config", made.config, "--data-dir", tmp_path / "data", "--bucket", "b"]
        argv += ["--port", made.port, "--bind", "127.0.0.1", "--endpoint-url", "http://127.0.0.1:9"]
        assert main([str(arg) for arg in argv]) == 0
    (tmp_path / "libfsalpython.so").touch()
    server = tmp_path / "fake_child.py"
    server.write_text(f"#!{sys.executable}\n{FAKE_CHILD.read_text()}")
    server.chmod(0o755)
    made.edit("nfs", "plugins_dir", f'"{tmp_path}"')
    made.edit("nfs", "ganesha", f'"{server}"')
    # Its start takes a second of processor time, and few tests need it.
    made.edit("admin", "enabled", "false")
    return made


@pytest.fixture
def bucket(site: Site) -> Iterator[RcloneServer]:
    """Run an S3 server with a bucket, and give the site its credentials."""
    (site.directory / "s3" / "b").mkdir(parents=True)
    with RcloneServer(site.directory / "s3") as server:
        site.edit("bucket", "endpoint_url", f'"{server.url}"')
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        assert spillway("init", "--config", site.config, env=keys).returncode == 0
        yield server
