"""A service finds the processes of the others in /proc, as its unit confines both."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.units import SERVICES, UNITS
from tests.support.waiting import until

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
    return ["unshare", "--mount", "sh", "-c", MOUNTED, HIDES[protection], *as_user]


@pytest.mark.parametrize("unit", SERVICES)
def test_a_service_sees_whether_another_one_runs(unit: str) -> None:
    with subprocess.Popen(confined("spillway-drain.service", "sleep", "600")) as other:
        try:
            comm = Path(f"/proc/{other.pid}/comm")
            until(lambda: comm.read_text() == "sleep\n", "the other service")
            look = confined(unit, "cat", f"/proc/{other.pid}/stat")
            seen = subprocess.run(look, capture_output=True, text=True)
            assert seen.stdout.startswith(f"{other.pid} (sleep) "), seen.stderr
        finally:
            other.kill()
