"""A machine for the commands of the documents: copies of ``/etc``, ``/usr`` and ``/var`` that are
lost, a gateway in them, and a ``systemctl`` that runs ``spillway up`` for ``spillway.target``.

There is no systemd in the machine of the tests; tests/appliance has one, in a virtual machine.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from gateway.config import loader
from tests.support.checkout import ROOT
from tests.support.nfs4 import Client
from tests.support.ports import free_port
from tests.support.s3server import RcloneServer, credentials
from tests.support.t11.apart import MACHINE
from tests.support.tools import tool
from tests.support.waiting import until

CHECKOUT = "/opt/spillway"
_PYTHON = f"{CHECKOUT}/build/venv/bin/python"
_PROGRAM = f"""\
#!/bin/sh
export PYTHONPATH={CHECKOUT}
exec {_PYTHON} -c 'import sys; from gateway.cli.main import main; sys.exit(main())' "$@"
"""
_SYSTEMCTL = """\
#!/bin/sh
case "$*" in
'start spillway.target' | 'enable --now spillway.target')
    # The shell empties the log of the start before in the background, perhaps after the first look.
    rm -f /run/up.log
    setpriv --reuid spillway --regid spillway --init-groups setsid spillway up >/run/up.log 2>&1 &
    echo $! >/run/up.pid
    until grep -qs 'ganesha ready' /run/up.log; do
        kill -0 $! 2>/dev/null || { cat /run/up.log >&2; exit 1; }
        sleep 0.1
    done ;;
'stop spillway.target' | 'disable --now spillway.target')
    [ -e /run/up.pid ] || exit 0
    pid=$(cat /run/up.pid)
    kill -TERM "$pid" 2>/dev/null
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    rm /run/up.pid ;;
*) echo "unknown here: systemctl $*" >&2; exit 1 ;;
esac
"""
_TELLS_ERRORS = "trap 'echo \"$? $BASH_COMMAND\" >>/run/failed' ERR\n"
DEADLINE_SECONDS = 300.0


class Standing:
    """The machine; a context manager. It has a disk at ``/var/lib/spillway``, a bucket, and no
    gateway before ``set_up``.

    Args:
        directory: for the bucket and the images of disks.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.port = free_port()
        self.server = RcloneServer(directory / "s3")
        for bucket in ("my-checkpoints", "other-checkpoints"):
            (directory / "s3" / bucket).mkdir(parents=True)

    def __enter__(self) -> Self:
        self.server.start()
        script = f"{MACHINE}mount -t tmpfs tmpfs /opt\nmkdir {CHECKOUT}\n"
        script += f"mount --bind {shlex.quote(str(ROOT))} {CHECKOUT}\n"
        # Backups of this machine, or of a test before, are none of this gateway.
        script += "mkdir -p /backup\nmount -t tmpfs tmpfs /backup\necho ready\nexec cat\n"
        # Its standard input ends with the test, and the machine with it.
        self._process = subprocess.Popen(
            [*self._as_root(), "unshare", "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        for name, text in (("spillway", _PROGRAM), ("systemctl", _SYSTEMCTL)):
            self.run(f"cat >/usr/local/bin/{name}; chmod 755 /usr/local/bin/{name}", text)
        return self

    def __exit__(self, *_: object) -> None:
        self.run("systemctl stop spillway.target")
        assert self._process is not None
        self._process.communicate()
        self.server.stop()

    @staticmethod
    def _as_root() -> tuple[str, ...]:
        return () if os.geteuid() == 0 else ("sudo", "-n")

    def run(self, script: str, given: str = "") -> str:
        """Run a script of bash as root. Returns what it prints.

        Raises AssertionError with both outputs if the script's last command fails.

        Args:
            given: its standard input.
        """
        done = self._run(script, given)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, script: str) -> dict[str, int]:
        """Run the commands of a document. Returns the exit statuses that are not 0, by command."""
        self.run("rm -f /run/failed")
        done = self._run(_TELLS_ERRORS + script, "")
        print(done.stdout + done.stderr)
        failed = self.run("touch /run/failed; cat /run/failed").splitlines()
        return {command: int(code) for code, _, command in (one.partition(" ") for one in failed)}

    def _run(self, script: str, given: str) -> subprocess.CompletedProcess[str]:
        # What runs on in the background must not keep the outputs open.
        enter = [tool("nsenter"), "--mount", f"--target={self._pid()}", "--wd=/"]
        return subprocess.run(
            [*self._as_root(), *enter, "bash", "-c", script],
            input=given,
            env={"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )

    def _pid(self) -> int:
        assert self._process is not None
        if os.geteuid() == 0:
            return self._process.pid
        below = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        [child] = below.read_text().split()
        return int(child)

    def new_disk(self, number: int) -> None:
        """Mount a new, empty ext4 at the data directory, in place of what is there."""
        image = shlex.quote(str(self._directory / f"disk{number}"))
        self.run(
            f"umount -q /var/lib/spillway; mkdir -p /var/lib/spillway; truncate -s 8G {image}; "
            f"mkfs.ext4 -q -F -m 0 {image} && mount -o loop {image} /var/lib/spillway"
        )
        self.run("chown spillway:spillway /var/lib/spillway; chmod 700 /var/lib/spillway")

    def set_up(self, prefix: str = "") -> None:
        """Make a gateway as the user ``spillway``, with its configuration, and start it.

        Args:
            prefix: of its objects.
        """
        values: dict[str, dict[str, Any]] = {
            "nfs": {
                "bind": "127.0.0.1",
                "port": self.port,
                "plugins_dir": f"{CHECKOUT}/build/lib",
                "lease_seconds": 10,
                "grace_seconds": 15,
            },
            "bucket": {
                "name": "my-checkpoints",
                "prefix": prefix,
                "endpoint_url": self.server.url,
                "credentials_file": "/etc/spillway/credentials",
            },
            "admin": {"enabled": False},
            # The disk of the tests may be full of other things.
            "cache": {"evict_from": 1.0},
            "drain": {"settle_seconds": 0.0, "poll_seconds": 0.2, "retry_max_seconds": 1.0},
        }
        self.run("install -d -o spillway -g spillway -m 750 /etc/spillway")
        own = "install -o spillway -m 600 /dev/stdin"
        self.run(f"{own} /etc/spillway/credentials", credentials())
        self.run(f"{own} /etc/spillway/spillway.toml", loader.render(values))
        self.run("runuser -u spillway -- spillway init; systemctl start spillway.target")

    def save(self, files: Mapping[str, bytes]) -> None:
        """Write files into the root of the export, as an NFS client."""
        with Client(self.port) as client:
            root = client.handle("checkpoints")
            for name, data in files.items():
                with client.opened(root, name, empties=True) as file:
                    file.write(data)

    def load(self, name: str) -> bytes:
        """Read a file in the root of the export, as an NFS client. Raises Status."""
        with Client(self.port) as client:
            return client.read(client.handle("checkpoints", name), 0, 4096)

    def until_drained(self) -> None:
        """Wait until the bucket has everything that is not damaged."""
        self.run("spillway drain --wait --timeout 120")

    def until_copied(self) -> None:
        """Wait until the bucket has the names and the settings as they are now."""
        now_ns = time.time_ns()

        def is_copied() -> bool:
            text = self.run("cat /var/lib/spillway/run/recovery.json || :")
            report = json.loads(text or "{}")
            names, settings = report.get("names", {}), report.get("settings", {})
            is_whole = names.get("base_ns", 0) > 0 and names["copied_ns"] > now_ns
            return bool(is_whole and settings.get("copied_ns", 0) > 0)

        until(is_copied, "names and settings in the bucket", 60.0)
