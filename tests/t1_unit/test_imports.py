"""Commands import only what they need: the client of the bucket alone takes half a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import loader
from tests.support.libraries import UNUSED
from tests.support.volumes import make_settings, make_volume

RUN = """
import sys
from gateway.cli.main import main
assert main(sys.argv[1:]) == 0
print(*sys.modules)
"""


def imported(*command: str | Path) -> set[str]:
    """Run a command to its end. Returns the packages that it imported."""
    argv = [sys.executable, "-c", RUN, *command]
    return set(subprocess.check_output(argv, text=True).splitlines()[-1].split())


@pytest.mark.parametrize("command", ["ls", "stat", "fsck", "checkpoints"])
def test_commands_import_nothing_that_they_do_not_use(tmp_path: Path, command: str) -> None:
    make_volume(make_settings(tmp_path))
    toml = tmp_path / "spillway.toml"
    toml.write_text(loader.render({"gateway": {"data_dir": tmp_path}, "bucket": {"name": "b"}}))
    found = imported(command, "--config", toml, *(["/"] if command == "stat" else []))
    assert "gateway" in found
    assert UNUSED & found == set()


def test_a_plan_imports_nothing_that_it_does_not_use() -> None:
    found = imported("plan", "--parameters", "1B", "--interval", "1h")
    assert "gateway" in found
    assert UNUSED & found == set()
