"""Builds the packages of an upgrade: the one before, this one, a newer one, and one that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from package.build import build
from package.lock import ROOT

PREVIOUS, THIS, NEWER, BROKEN = "0.0.9", "0.1.0", "0.1.0.1", "0.1.0.2"
WITHOUT_TAG = "8690cb2"
"""What counts as the version before as long as there is no tag: its schema is older than ours."""


def packages(plugin: Path, ganesha: Path, directory: Path) -> dict[str, Path]:
    """Build the packages. Returns them by version.

    Parameters: plugin, of this version; ganesha, headers of the NFS server. Raises:
    CalledProcessError when a tool fails.
    """
    damaged = directory / plugin.name
    # It is a library, but no plugin: Ganesha starts and cannot load it.
    shutil.copy(next(Path("/usr/lib").rglob("libcap.so.2")), damaged)
    return {
        PREVIOUS: _previous(ganesha, directory / "previous", directory),
        THIS: build(plugin, directory, THIS),
        NEWER: build(plugin, directory, NEWER),
        BROKEN: build(damaged, directory, BROKEN),
    }


def _previous(ganesha: Path, tree: Path, output: Path) -> Path:
    """Build the package of the last tag, from its own source."""
    describe = ["git", "describe", "--tags", "--abbrev=0", "HEAD^"]
    found = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True)
    commit = found.stdout.strip() or WITHOUT_TAG
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
