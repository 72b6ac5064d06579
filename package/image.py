"""Builds the disk image of a gateway: ``python -m package.image CACHE PACKAGE TOOLS OUTPUT``.

Packer boots a Debian that ``package.base`` makes, and the roles make it a gateway that knows no
site. The output has the image as qcow2 and raw, their SHA-256 sums, and a bill of materials
(CycloneDX) of the packages of Debian and the libraries of the virtual environment. As root.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from package.base import base
from package.lock import ROOT, lock_file

T = TypeVar("T")

TEMPLATES = ROOT / "packer"
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+) ", re.MULTILINE)


def build(cache: Path, package: Path, tools: Path, output: Path) -> Path:
    """Build the image.

    Args:
        cache: that of the base.
        tools: the directory of ansible-playbook and syft.
        output: replaced as a whole.

    Returns:
        The path of the qcow2.

    Raises:
        CalledProcessError: a tool fails.
        ValueError: the bill of materials lacks a library.
    """
    start = _timed("base", lambda: base(cache.absolute(), "spillway"))
    scratch = cache.absolute() / "making"  # a run that failed leaves it, to be looked at
    shutil.rmtree(scratch, ignore_errors=True)
    new = scratch / "new"
    new.mkdir(parents=True)
    variables = {
        "package": package.absolute(),
        "ansible_playbook": (tools / "ansible-playbook").absolute(),
        "output": new,
        "update_cache": "false",
        "key": start.key,
        "base": start.disk,
        "kernel": start.kernel,
        "initramfs": start.initramfs,
    }
    _timed("packer", lambda: _packer(variables, scratch))
    name = package.name.removesuffix(".deb")
    disks = [new / f"{name}.qcow2", new / f"{name}.raw"]
    (new / "qemu/spillway.qcow2").rename(disks[0])
    (new / "qemu").rmdir()
    _timed("raw", lambda: _raw(*disks))
    bill = new / f"{name}.cdx.json"
    _timed("bill of materials", lambda: _bill(new / "contents.tar", tools, bill))
    for left in ("contents.tar", "console.log"):
        (new / left).unlink()
    _timed("sums", lambda: _sums([*disks, bill], new / "SHA256SUMS"))
    shutil.rmtree(output, ignore_errors=True)
    new.rename(output)
    shutil.rmtree(scratch)
    return output / disks[0].name


def _packer(variables: dict[str, object], scratch: Path) -> None:
    given = [word for name, value in variables.items() for word in ("-var", f"{name}={value}")]
    environ = {
        **os.environ,
        "CHECKPOINT_DISABLE": "1",  # else Packer asks the network for a newer version of itself
        "PACKER_CACHE_DIR": str(scratch / "packer"),
        "ANSIBLE_HOME": str(scratch / "ansible"),
    }
    command = ["packer", "build", "-color=false", "-only=qemu.spillway", *given, str(TEMPLATES)]
    subprocess.run(command, env=environ, check=True)


def _raw(qcow2: Path, raw: Path) -> None:
    subprocess.run(["qemu-img", "convert", "-O", "raw", qcow2, raw], check=True)


def _bill(contents: Path, tools: Path, bill: Path) -> None:
    """Write the bill of materials. Raises ValueError if a pinned library is not in it."""
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["tar", "-C", root, "-xf", contents], check=True)
        subprocess.run(
            [
                *(tools / "syft", "scan", "--quiet", f"dir:{root}"),
                *("--source-name", bill.name.removesuffix(".cdx.json")),
                *("--output", f"cyclonedx-json={bill}"),
            ],
            env={**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"},
            check=True,
        )
    found = json.loads(bill.read_text(encoding="utf-8"))["components"]
    named = {(one["name"].lower().replace("_", "-"), one.get("version")) for one in found}
    wanted = set(_PIN.findall(lock_file().read_text(encoding="utf-8")))
    if missing := sorted(name for name, _version in wanted - named):
        raise ValueError(f"{bill}: {', '.join(missing)} of the lock are not in it")


def _sums(files: list[Path], sums: Path) -> None:
    lines = []
    for path in files:
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    sums.write_text("".join(lines), encoding="ascii")


def _timed(name: str, step: Callable[[], T]) -> T:
    began = time.monotonic()
    result = step()
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return result


def main() -> int:
    """Build the image and print its path. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m package.image", description=__doc__)
    for name in ("cache", "package", "tools", "output"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    try:
        step = partial(build, args.cache, args.package, args.tools, args.output)
        print(_timed("image", step))
    except (subprocess.CalledProcessError, ValueError) as exc:
        print(f"image: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
