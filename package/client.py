"""Builds the client of the admin API: ``python -m package.client OUTPUT``.

The client is the command line for machines that are no gateway: a wheel, and a Debian package that
has it with the wheels that it needs, all of them pure Python. It has the modules that the command
line imports, without what cannot be made without a library of ``LEFT_OUT`` (``package.without``).
The functions for a gateway's own machine are still there and never called: the command line refuses
before (``gateway.cli.local.require_gateway``).

Two builds of one commit give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from importlib.metadata import requires
from pathlib import Path
from time import gmtime

from packaging.requirements import Requirement

from package.build import compile_all, deb, debian_version, project_version, reproducible
from package.lock import ROOT, lock_file
from package.without import Reduced

ROOTS = ("gateway.cli.main", "gateway.cli.api", "gateway.cli.client")
"""What the command imports; the other two when it asks a gateway."""
LEFT_OUT = frozenset({"alembic", "awscrt", "boto3", "sqlalchemy"})
"""The dependencies of the gateway that the client does without."""
SITE = Path("usr/lib/spillway-client")
_METADATA = """\
Metadata-Version: 2.1
Name: spillway
Version: {version}
Summary: Command line for the admin API of a Spillway gateway on another machine
License: Apache-2.0
Requires-Python: >=3.11
{requirements}"""
_WHEEL = "Wheel-Version: 1.0\nGenerator: package.client\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_ENTRY_POINTS = "[console_scripts]\nspillway = gateway.cli.main:main\n"
_SCRIPT = """\
#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "/usr/lib/spillway-client")
from gateway.cli.main import main

sys.exit(main())
"""


def requirements() -> list[str]:
    """Return the dependencies of the project that the client has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted: list[str] = project["dependencies"]
    return [text for text in wanted if Requirement(text).name.lower() not in LEFT_OUT]


def client_version() -> str:
    """Return the version of the wheel. It has the name of the whole project, so that pip replaces
    one by the other: they have files in common."""
    return f"{project_version()}+client"


def wheel(output: Path) -> Path:
    """Build the wheel, and return its path. Args: output, the directory for it."""
    version = client_version()
    about = f"spillway-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {text}\n" for text in requirements())
    files = {str(path): text for path, text in Reduced(ROOT, ROOTS, LEFT_OUT).sources().items()}
    files |= {
        f"{about}/METADATA": _METADATA.format(version=version, requirements=needed),
        f"{about}/WHEEL": _WHEEL,
        f"{about}/entry_points.txt": _ENTRY_POINTS,
        f"{about}/LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
    }
    rows = [
        f"{name},{_digest(text)},{len(text.encode())}\n" for name, text in sorted(files.items())
    ]
    files[f"{about}/RECORD"] = "".join((*rows, f"{about}/RECORD,,\n"))
    output.mkdir(parents=True, exist_ok=True)
    made = gmtime(int(reproducible()["SOURCE_DATE_EPOCH"]))
    path = output / f"spillway-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(files.items()):
            info = zipfile.ZipInfo(name, (made.tm_year, *made[1:6]))
            info.external_attr = 0o644 << 16
            archive.writestr(info, text, zipfile.ZIP_DEFLATED)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={urlsafe_b64encode(digest).decode().rstrip('=')}"


def pins() -> list[str]:
    """Return the lines of the lock file for what the client depends on, and what that does."""
    lines = lock_file().read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0]: line for line in lines if not line.startswith("#")}
    return [pinned[name] for name in sorted(_needed(requirements()))]


def _needed(texts: list[str]) -> set[str]:
    """Return the names of distributions, and of those that they need here."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in texts]
    while waiting:
        one = waiting.pop()
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        if name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += map(Requirement, requires(name) or ())
    return found


def package(built: Path, output: Path) -> Path:
    """Build the Debian package.

    Args:
        built: the wheel.
        output: the directory for it.

    Returns:
        Its path.

    Raises:
        CalledProcessError: a tool fails; its own message is on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="spillway-client-") as scratch:
        stage, lock = Path(scratch) / "tree", Path(scratch) / "lock.txt"
        lock.write_text("".join(f"{line}\n" for line in pins()), encoding="utf-8")
        site, environ = stage / SITE, reproducible()
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile"),
                *("--target", str(site), "--requirement", str(lock)),
            ],
            env=environ, check=True,
        )  # fmt: skip
        # The programs of the libraries name the interpreter of the build, and no one needs them.
        shutil.rmtree(site / "bin", ignore_errors=True)
        with zipfile.ZipFile(built) as archive:
            archive.extractall(site)
        compile_all(stage, site, environ)
        command, about = stage / "usr/bin/spillway", stage / "usr/share/doc/spillway-client"
        command.parent.mkdir(parents=True)
        command.write_text(_SCRIPT)
        command.chmod(0o755)
        about.mkdir(parents=True)
        shutil.copy(ROOT / "LICENSE", about / "copyright")
        shutil.copytree(ROOT / "examples", about / "examples")
        version = project_version()
        path = output / f"spillway-client_{debian_version(version)}_all.deb"
        return deb(stage, "client.control.in", path, version, environ, {})


def main() -> int:
    """Build both and print their paths. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m package.client", description=__doc__)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    os.umask(0o022)
    try:
        built = wheel(args.output)
        print(built, package(built, args.output), sep="\n")
    except subprocess.CalledProcessError as exc:
        print(f"package: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
