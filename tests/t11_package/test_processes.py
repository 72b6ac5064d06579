"""A service finds the processes of the others in /proc, as its unit confines both."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.support.units import SERVICES, UNITS

COMMON = UNITS / "spillway-.service.d/10-all.conf"
USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
HIDES = {"default": "off", "invisible": "invisible", "noaccess": "noaccess"}
"""The option of a mount of /proc for each value of ProtectProc (systemd.exec(5))."""
MOUNTED = 'mount -t proc -o "hidepid=$0" proc /proc && exec "$@"'


def confined(unit: str, *command: str) -> list[str]:
    """Return a command that runs as the processes of a unit do, as far as /proc tells."""
    text = COMMON.read_text() + (UNITS / unit).read_text()
    [*_, protection] = re.findall(r"^ProtectProc=(\w+)$", text, re.MULTILINE)
    users = ("unshare", "--user") if re.search("^PrivateUsers=yes$", text, re.MULTILINE) else ()
    as_user = (*USER, *users, *command)
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    return [*as_root, "unshare", "--mount", "sh", "-c", MOUNTED, HIDES[protection], *as_user]


@pytest.mark.parametrize("unit", SERVICES)
def test_a_service_sees_whether_another_one_runs(unit: str) -> None:
    other = confined("spillway-drain.service", "sh", "-c", "echo $$; exec cat")
    # The other service ends with its standard input: one of root's cannot be killed by a user.
    with subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        look = confined(unit, "cat", f"/proc/{pid}/stat")
        seen = subprocess.run(look, capture_output=True, text=True)
        process.communicate()
    assert seen.stdout.startswith(f"{pid} ("), seen.stderr
