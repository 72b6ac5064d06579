"""The scripts of dpkg, as dpkg calls them, on a copy of this machine's ``/etc`` and ``/var``.

There is no systemd here, so a program of the test notes what is active. ``tests.appliance`` has
dpkg and systemd.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.t11 import apart

SCRIPTS = ROOT / "package/debian"
_SYSTEMCTL = """\
#!/bin/sh
case "$*" in
"is-active --quiet spillway.target") [ -e /run/active ] ;;
"stop spillway.target "*) rm -f /run/active ;;
"start spillway.target") touch /run/active ;;
esac
"""
_SPILLWAY = "#!/bin/sh\necho $*\n"


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (["prerm upgrade 2", "postinst configure 1"], "upgrade\nactive\n"),
        (["prerm upgrade 2", "boot", "postinst configure 1"], "upgrade\nactive\n"),
        (["prerm upgrade 2", "postinst abort-upgrade 2"], "active\n"),
        (["prerm remove", "postinst abort-remove"], "active\n"),
        (["prerm deconfigure", "postinst abort-deconfigure"], "active\n"),
        (["prerm remove", "postrm remove", "postinst configure"], ""),
        (["rm /run/active", "prerm upgrade 2", "postinst configure 1"], ""),
    ],
    ids=lambda calls: ", ".join(calls) if isinstance(calls, list) else "",
)
def test_what_ran_runs_again(calls: list[str], said: str, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    shutil.copytree(SCRIPTS, programs)
    for name, text in {"systemctl": _SYSTEMCTL, "spillway": _SPILLWAY}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    script = [
        # The user spillway cannot enter the directories of pytest.
        f"cp -r {shlex.quote(str(programs))} /mnt/programs && touch /run/active",
        *("export PATH=/mnt/programs:/usr/sbin:/usr/bin:/sbin:/bin", *calls),
        "[ ! -e /run/active ] || echo active",
        "[ ! -e /var/cache/spillway/was-active ]",
    ]
    assert apart.said("\n".join(script), tmp_path) == said
