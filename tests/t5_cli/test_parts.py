"""What an installation with pip can leave out: the rest works, and what needs it says so."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gateway.cli.local import LIBRARIES
from gateway.config.loader import render
from tests.support.checkout import ROOT

_WITHOUT = """
import sys
for library in sys.argv[1].split(","):
    sys.modules[library] = None  # as if it were not installed
from gateway.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def run(extra: str, config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the libraries of an extra."""
    left_out = ",".join(name for name, has in LIBRARIES.items() if has == extra)
    command = [sys.executable, "-c", _WITHOUT, left_out, *words, "--config", str(config)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
        env={**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
    )  # fmt: skip


def written(directory: Path, url: str = "") -> Path:
    """Write the configuration of a gateway with an admin API.

    Args:
        url: url of the namespace.
    """
    path = directory / "spillway.toml"
    values: dict[str, dict[str, object]] = {
        "gateway": {"data_dir": str(directory / "data")},
        "bucket": {"name": "b"},
        "admin": {"enabled": True},
        "namespace": {"url": url},
    }
    path.write_text(render(values))
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path)


def test_each_library_is_of_the_extra_that_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {"argon2": "argon2-cffi", "prometheus_client": "prometheus-client"}
    for library, extra in LIBRARIES.items():
        listed = " ".join(project["optional-dependencies"][extra]).lower()
        assert names.get(library, library) in listed


def test_a_namespace_in_sqlite_needs_no_postgresql(config: Path) -> None:
    made = run("postgres", config, "init")
    assert made.returncode == 0, made.stderr
    assert run("postgres", config, "checkpoints").returncode == 0


def test_postgresql_without_its_library_says_what_to_install(tmp_path: Path) -> None:
    config = written(tmp_path, url="postgresql://localhost/none")
    (tmp_path / "data").mkdir()
    process = run("postgres", config, "status")
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr == (
        "spillway: this needs the library psycopg: pip install 'spillway[postgres]'\n"
    )


def test_a_gateway_without_the_admin_api_needs_none_of_its_libraries(config: Path) -> None:
    assert run("admin", config, "init").returncode == 0
    refused = run("admin", config, "up")
    assert refused.returncode == 2
    assert "pip install 'spillway[admin]', or set admin.enabled = false" in refused.stderr
    refused = run("admin", config, "token", "create", "--name", "a", "--role", "admin")
    assert refused.returncode == 2
    assert "pip install 'spillway[admin]'" in refused.stderr
    for words in (("checkpoint", "list"), ("policy", "list"), ("queue", "list"), ("trash", "list")):
        process = run("admin", config, *words)
        assert (process.returncode, process.stderr) == (0, ""), words
