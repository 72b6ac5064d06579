"""Builds the packages of an upgrade: the one before, this one, a newer one, and one that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from package.build import PREFIX, build, project_version
from package.lock import ROOT
from tests.appliance.machine import Machine

PREVIOUS, THIS = "0.0.9", project_version()
NEWER, BROKEN = f"{THIS}.1", f"{THIS}.2"
SECTION, NOVELTY = "cache", "novelty"
"""A key of the configuration that only the version that fails knows."""
WITHOUT_TAG = "2a8b956"
"""What counts as the version before as long as there is no tag: its schema is older than ours."""


def packages(plugin: Path, ganesha: Path, directory: Path) -> dict[str, Path]:
    """Build the packages.

    Args:
        plugin: that of this version.
        ganesha: headers of the NFS server.

    Returns:
        The packages by version.

    Raises:
        CalledProcessError: a tool fails.
    """
    return {
        PREVIOUS: _previous(ganesha, directory / "previous", directory),
        THIS: build(plugin, directory, THIS),
        NEWER: build(plugin, directory, NEWER),
        BROKEN: _broken(build(plugin, directory, BROKEN), directory / "broken"),
    }


def require_version(machine: Machine, version: str) -> None:
    """Require that a machine has this version, and runs it. Raises AssertionError."""
    stdout = machine.ssh("spillway --version; systemctl is-active 'spillway-*'").stdout
    assert f"{version}\n" in stdout and "failed" not in stdout, stdout


def _broken(package: Path, tree: Path) -> Path:
    """Give a package a key of the configuration, and no plugin. Returns its path."""
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    # It is a library, but no plugin: Ganesha starts and cannot load it.
    library = next(Path("/usr/lib").rglob("libcap.so.2"))
    shutil.copy(library, tree / PREFIX / "libfsalpython.so")
    [settings] = (tree / PREFIX).rglob("gateway/config/settings.py")
    head = f"class {SECTION.capitalize()}Settings:\n"
    text = settings.read_text(encoding="utf-8")
    assert text.count(head) == 1
    key = f'    {NOVELTY}: bool = _key("Only this version has it.", False)\n'
    settings.write_text(text.replace(head, head + key), encoding="utf-8")
    for compiled in settings.parent.glob("__pycache__/settings.*"):
        compiled.unlink()  # its text is not compared with that of the source
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zzstd", "--build", tree, package],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return package


def _previous(ganesha: Path, tree: Path, output: Path) -> Path:
    """Build the package of the last tag, from its own source."""
    describe = ["git", "describe", "--tags", "--abbrev=0", "HEAD^"]
    process = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True)
    commit = process.stdout.strip() or WITHOUT_TAG
    print(f"the version before is {commit}", flush=True)
    tree.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    library = tree / "build/lib"
    options = [f"OUT={library}", f"GANESHA={ganesha.absolute()}"]
    subprocess.run(["make", "-s", "-C", tree / "fsal/native", *options], check=True)
    before = set(output.glob("*.deb"))
    times = ["git", "log", "-1", "--format=%ct", commit]
    epoch = subprocess.check_output(times, cwd=ROOT, text=True).strip()
    subprocess.run(
        [
            *(sys.executable, "-m", "package.build", library / "libfsalpython.so", output),
            *("--version", PREVIOUS),
        ],
        cwd=tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONPATH": str(tree)},
        check=True,
    )
    [made] = set(output.glob("*.deb")) - before
    return made
