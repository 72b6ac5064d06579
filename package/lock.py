"""Pins every wheel that is installed, with its hash: ``python -m package.lock``.

pip finds the newest versions that pyproject.toml allows, for this machine's Python, in one go: what
is tested is what ships. ``package/python<version>.lock`` has what the package contains, with all
extras that are parts of a gateway. ``package/python<version>-dev.lock`` has what the tests need
beside that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = "spillway"
PARTS = "admin,postgres"
"""The extras that the package contains."""
_HEAD = """\
# {what}, for Python {python} on {machine}, and the digest of each.
# Made by `make lock`: run it again to take newer versions, then make test package-test.
"""

Pins = dict[str, str]
"""A line of a requirements file for each wheel, by its name."""


def lock_file(suffix: str = "") -> Path:
    """Return the file of the pins for this Python.

    Args:
        suffix: "-dev" for what only tests need.
    """
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return ROOT / "package" / f"{python}{suffix}.lock"


def resolve(extras: str, *options: str) -> Pins:
    """Return what pip would install with extras of the project. Raises CalledProcessError."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--dry-run", "--ignore-installed", "--only-binary", ":all:"),
                *("--report", report.name, *options, f"{ROOT}[{extras}]"),
            ],
            check=True,
        )
        found = json.loads(Path(report.name).read_text(encoding="utf-8"))
    pins = {}
    for one in found["install"]:
        name = one["metadata"]["name"].lower().replace("_", "-")
        if name != OURS:
            digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
            pins[name] = f"{name}=={one['metadata']['version']} --hash=sha256:{digest}"
    return pins


def main() -> int:
    """Write the pins. Returns 0."""
    every = resolve(f"{PARTS},dev")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("".join(f"{line.split()[0]}\n" for line in every.values()))
        constraints.flush()
        shipped = resolve(PARTS, "--constraint", constraints.name)
    _write("", "The wheels in the package", shipped)
    others = {name: line for name, line in every.items() if name not in shipped}
    _write("-dev", "The wheels that only the tests need", others)
    return 0


def _write(suffix: str, what: str, pins: Pins) -> None:
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    machine = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    head = _HEAD.format(what=what, python=python, machine=machine)
    path = lock_file(suffix)
    path.write_text(head + "".join(f"{pins[name]}\n" for name in sorted(pins)), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
