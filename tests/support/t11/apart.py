"""Runs a script on a copy of this machine's ``/etc``, ``/usr`` and ``/var``, which is lost."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.support.tools import run_as_root

MACHINE = """\
set -e
mount -t tmpfs tmpfs /mnt
for one in etc usr var; do
    mkdir -p /mnt/$one/new /mnt/$one/work
    options=lowerdir=/$one,upperdir=/mnt/$one/new,workdir=/mnt/$one/work
    mount -t overlay -o $options overlay /$one
done
echo spillway:x:990:990::/var/lib/spillway:/usr/sbin/nologin >> /etc/passwd
echo spillway:x:990: >> /etc/group
boot() {
    mount -t tmpfs tmpfs /run
    mkdir -p /run/systemd/system
}
boot
"""


def said(script: str, directory: Path) -> str:
    """Run a script as root. The machine has the user spillway, and ``boot`` empties ``/run``.

    Returns what the script says on stdout. Raises CalledProcessError when it fails.

    Args:
        directory: takes a file.
    """
    output = directory / "said"
    begin = f"{MACHINE}exec > {shlex.quote(str(output))}\n"
    run_as_root("unshare", "--mount", "sh", "-c", begin + script)
    return output.read_text()
