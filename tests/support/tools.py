"""Tools of the system, also those that need root: run as root or through sudo."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Debian's directories for depmod, mkfs.ext4 and the like; an ordinary user's PATH lacks them."""


def tool(name: str) -> str:
    """Return the path of a program in PATH or in the system's directories.

    The result is the name itself if there is no such program: the error of the caller's
    subprocess then names it.
    """
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES))
    return shutil.which(name, path=path) or name


def run_as_root(name: str, *arguments: str | Path) -> None:
    """Run a tool as root: directly as root, else through sudo.

    Raises: CalledProcessError when the tool fails, or sudo would have to ask for a password.
    """
    # Without -n, sudo would ask for a password and wait for ever: no test has a terminal.
    prefix = () if os.geteuid() == 0 else ("sudo", "-n")
    subprocess.run(
        [*prefix, tool(name), *arguments],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
