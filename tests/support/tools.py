"""Finding the system's tools, and running those that need root, for root and for ordinary users."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where Debian puts tools like depmod and mkfs.ext4; the PATH of ordinary users lacks these."""


def tool(name: str) -> str:
    """The path of a program, in PATH or in the system's directories; the name when there is none.

    A name that is nowhere is left to the caller's subprocess, whose error names it.
    """
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES))
    return shutil.which(name, path=path) or name


def run_as_root(name: str, *arguments: str | Path) -> None:
    """Run a tool as root: directly as root, else through sudo.

    Raises: CalledProcessError when the tool fails, or sudo would have to ask for a password.
    """
    # -n: a question for a password would wait for ever, because no test has a terminal.
    prefix = () if os.geteuid() == 0 else ("sudo", "-n")
    subprocess.run(
        [*prefix, tool(name), *arguments],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
