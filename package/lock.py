"""Pins the wheels of the package, with their hashes: ``python -m package.lock``.

pip finds the newest versions that pyproject.toml allows, for this machine's Python. The pins are
written to ``package/python<version>.lock``, from which ``package.build`` installs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = "spillway"
_HEAD = """\
# The wheels in the package for Python {python} on {machine}, and the digest of each.
# Made by `make lock`: run it again to take newer versions, then make package-test.
"""


def lock_file() -> Path:
    """Return the file of the pins for this Python."""
    return ROOT / "package" / f"python{sys.version_info[0]}.{sys.version_info[1]}.lock"


def resolve() -> list[str]:
    """Return a line of a requirements file for each wheel. Raises CalledProcessError."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--dry-run", "--ignore-installed", "--only-binary", ":all:"),
                *("--report", report.name, str(ROOT)),
            ],
            check=True,
        )
        found = json.loads(Path(report.name).read_text(encoding="utf-8"))
    pins = {
        one["metadata"]["name"].lower().replace("_", "-"): (
            one["metadata"]["version"],
            one["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256"),
        )
        for one in found["install"]
        if one["metadata"]["name"] != OURS
    }
    return [
        f"{name}=={version} --hash=sha256:{digest}"
        for name, (version, digest) in sorted(pins.items())
    ]


def main() -> int:
    """Write the pins. Returns 0."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    machine = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    text = _HEAD.format(python=python, machine=machine) + "\n".join(resolve()) + "\n"
    lock_file().write_text(text, encoding="utf-8")
    print(f"wrote {lock_file()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
