"""The prolog by itself."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from tests.slurm.cluster import install


def test_two_jobs_that_start_together_mount_once(tmp_path: Path) -> None:
    mount, slow = tmp_path / "mnt", tmp_path / "bin"
    lines = [
        *(f"mount={mount}", "source=spillway-test", "fstype=tmpfs", "options=size=1m"),
        *(f"lock={tmp_path}/lock", f"PATH={slow}:$PATH"),
    ]
    install(tmp_path / "spillway", "\n".join(lines) + "\n")
    slow.mkdir()
    program = slow / "mount"
    program.write_text('#!/bin/sh\nsleep 1\nexec /bin/mount "$@"\n')
    program.chmod(0o755)
    prolog = shlex.quote(str(tmp_path / "spillway/prolog"))
    script = f"{prolog} & {prolog} & wait; grep -c spillway-test /proc/mounts"
    # A mount namespace: what is mounted in it goes with it.
    said = subprocess.check_output(["unshare", "--mount", "sh", "-c", script], text=True)
    assert said.strip() == "1"
