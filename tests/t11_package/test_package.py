"""The pins, the scripts of dpkg, and the units."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

import pytest

from package.lock import lock_file
from tests.support.checkout import ROOT
from tests.support.units import EXPOSURE_MAX, SERVICES, UNITS

FIRST_BOOT = "configure-spillway.service"
LOCKS = sorted((ROOT / "package").glob("python*.lock"))


def test_there_are_locks_of_this_python() -> None:
    assert {lock_file(), lock_file("-dev")} <= set(LOCKS)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_each_dependency_is_pinned_with_its_digest(lock: Path) -> None:
    text = lock.read_text()
    pinned = re.findall(r"^([a-z0-9-]+)==\S+ --hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert len(pinned) == len([line for line in text.splitlines() if not line.startswith("#")])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["admin"], *extras["postgres"]]
    if lock.stem.endswith("-dev"):
        shipped = lock.with_stem(lock.stem.removesuffix("-dev")).read_text()
        assert not [name for name in pinned if f"\n{name}==" in shipped], "tested is what ships"
        wanted = extras["dev"]
    names = {re.split(r"[\[<>=]", string)[0].lower() for string in wanted}
    assert names - set(pinned) == set()


@pytest.mark.parametrize("lock", [lock_file(), lock_file("-dev")], ids=lambda path: path.name)
def test_the_tests_run_with_what_is_pinned(lock: Path) -> None:
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+) ", lock.read_text(), re.MULTILINE)
    assert [(name, version(name)) for name, _ in pinned] == pinned


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_scripts_of_dpkg_are_shell_and_remove_no_data(name: str) -> None:
    script = ROOT / "package/debian" / name
    subprocess.run(["sh", "-n", script], check=True)
    removed = re.findall(r"\b(?:rm|rmdir|find|deluser|userdel)\b.*", script.read_text())
    assert removed == {
        "postinst": ['rm -f "$was_active"'],
        "postrm": ["rm -f /var/cache/spillway/was-active"],
    }.get(name, [])


@pytest.mark.parametrize("name", ["postinst", "prerm"])
def test_scripts_of_dpkg_stop_every_service_and_no_mount(name: str) -> None:
    text = (ROOT / "package/debian" / name).read_text()
    lines = re.findall(r"^ *systemctl stop (.*)$", text, re.MULTILINE)
    assert lines, name
    for line in lines:
        patterns = shlex.split(line)
        for unit in ("spillway.target", *SERVICES):
            assert any(fnmatchcase(unit, pattern) for pattern in patterns), unit
        for unit in ("spillway.mount", "spillway-data.mount", "spillway.slice"):
            assert not any(fnmatchcase(unit, pattern) for pattern in patterns), unit


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root directory that has the units, and what they name."""
    root = tmp_path_factory.mktemp("machine")
    shutil.copytree(UNITS, root / "usr/lib/systemd/system")
    (root / "usr/bin").mkdir()
    program = root / "usr/bin/spillway"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return root


@pytest.mark.parametrize("unit", SERVICES)
def test_a_unit_may_do_little(machine: Path, unit: str) -> None:
    """The documents state the number that the systemd of Debian 12 gives."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--root={machine}", "--no-pager", unit],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    match = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert match is not None
    assert float(match[1]) <= EXPOSURE_MAX
    if Path("/etc/debian_version").read_text().startswith("12"):
        documents = (ROOT / "docs/installing.md").read_text()
        assert f"| `{unit.removesuffix('.service')}` | {match[1]} |" in documents


@pytest.mark.parametrize("unit", SERVICES)
def test_what_a_unit_makes_is_its_users_alone(unit: str) -> None:
    text = (UNITS / unit).read_text()
    common = (UNITS / "spillway-.service.d").glob("*.conf")
    lines = [
        *text.splitlines(),
        *(line for path in common for line in path.read_text().splitlines()),
    ]
    assert "UMask=0077" in lines and "User=spillway" in lines


def test_systemd_understands_the_units(machine: Path) -> None:
    done = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            f"--root={machine}",
            *SERVICES,
            FIRST_BOOT,
            "spillway.target",
        ],
        capture_output=True,
        text=True,
    )
    # The root has no other units, so it cannot be complete.
    assert [line for line in done.stderr.splitlines() if str(machine) in line] == []


def test_the_target_wants_each_service() -> None:
    text = (UNITS / "spillway.target").read_text()
    wanted = {
        unit for line in re.findall(r"^Wants=(.*)$", text, re.MULTILINE) for unit in line.split()
    }
    assert wanted == set(SERVICES)


def test_no_service_starts_while_the_machine_is_configured_again() -> None:
    """Ordered in the drop-in of all services: the unit of the first boot then ends before any."""
    text = (UNITS / "spillway-.service.d/10-all.conf").read_text()
    after = {
        unit for line in re.findall(r"^After=(.*)$", text, re.MULTILINE) for unit in line.split()
    }
    assert FIRST_BOOT in after
