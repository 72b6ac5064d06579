"""Builds the package a second time and compares: ``python -m tests.package GANESHA PACKAGES``."""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from package.build import build


def repeated(ganesha: Path, package: Path) -> None:
    """Build plugin and package in another directory. Raises AssertionError if its bytes differ.

    Args:
        ganesha: the directory of Ganesha's headers.
    """
    with tempfile.TemporaryDirectory(prefix="again-") as scratch:
        sources, output = Path(scratch) / "sources", Path(scratch) / "lib"
        shutil.copytree("fsal/native", sources)
        subprocess.run(
            ["make", "-s", "-C", sources, f"OUT={output}", f"GANESHA={ganesha}"], check=True
        )
        again = build(output / "libfsalpython.so", Path(scratch))
        assert filecmp.cmp(package, again, shallow=False), f"{again} differs from {package}"


def without_paths(package: Path, *paths: str) -> None:
    """Raise AssertionError if a file of the package has one of the paths of this machine."""
    with tempfile.TemporaryDirectory(prefix="content-", dir=package.parent) as scratch:
        subprocess.run(["dpkg-deb", "-x", package, scratch], check=True)
        named = [
            f"{file}: {path}"
            for file in Path(scratch).rglob("*")
            if file.is_file() and not file.is_symlink()
            for path in paths
            if path.encode() in file.read_bytes()
        ]
    assert named == []


def main() -> int:
    """Run the checks. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.package", description=__doc__)
    parser.add_argument("ganesha", type=Path)
    parser.add_argument("packages", type=Path)
    args = parser.parse_args()
    [package] = args.packages.glob("spillway_*.deb")
    without_paths(package, str(Path.cwd()), "spillway-package-")
    print(f"{package.name}: no path of this machine is in it")
    repeated(args.ganesha.absolute(), package)
    print(f"{package.name}: a second build gave the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
