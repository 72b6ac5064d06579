"""The system's tools are found, by root and by ordinary users."""

import subprocess
from pathlib import Path

import pytest

from tests.support.tools import run_as_root, tool


@pytest.fixture(autouse=True)
def path_of_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games")


@pytest.mark.parametrize("name", ["depmod", "mkfs.ext4"])
def test_tools_of_the_system_are_found_outside_of_path(name: str) -> None:
    assert Path(tool(name)).is_file()


def test_a_tool_that_is_not_there_is_named_by_the_error() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-tool"):
        subprocess.run([tool("no-such-tool")], check=True)


def test_a_command_runs_as_root(tmp_path: Path) -> None:
    run_as_root("chown", "0:0", tmp_path)
    assert tmp_path.stat().st_uid == 0


def test_a_command_that_fails_as_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_as_root("umount", tmp_path)
