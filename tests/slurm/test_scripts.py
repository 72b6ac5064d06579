"""The scripts by themselves, without Slurm."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.slurm.cluster import EXAMPLES, install
from tests.support.clisite import environ

RUN = "jobs/llama"


def programs(directory: Path, **texts: str) -> Path:
    """Make programs of shell, and return their directory."""
    directory.mkdir()
    for name, text in texts.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    return directory


def test_two_jobs_that_start_together_mount_once(tmp_path: Path) -> None:
    slow = programs(tmp_path / "bin", mount='sleep 1\nexec /bin/mount "$@"')
    lines = [
        *(f"mount={tmp_path}/mnt", "source=spillway-test", "fstype=tmpfs", "options=size=1m"),
        *(f"lock={tmp_path}/lock", f"PATH={slow}:$PATH"),
    ]
    install(tmp_path / "spillway", "\n".join(lines) + "\n")
    prolog = shlex.quote(str(tmp_path / "spillway/prolog"))
    script = f"{prolog} & {prolog} & wait; grep -c spillway-test /proc/mounts"
    # A mount namespace: what is mounted in it goes with it.
    said = subprocess.check_output(["unshare", "--mount", "sh", "-c", script], text=True)
    assert said.strip() == "1"


@pytest.mark.parametrize(
    ("comment", "run"),
    [
        ("of team a spillway:jobs/llama-7/step=1", "jobs/llama-7/step=1"),
        ("spillway:a spillway:b", "b"),
        ("nospillway:a", ""),
        ("", ""),
        ("spillway:--help", ""),
        ("spillway:$(id)", ""),
        ("spillway:`id` *", ""),
        ("spillway:a;id", ""),
    ],
)
def test_nothing_but_a_path_of_a_comment_is_used(comment: str, run: str) -> None:
    script = f'. {EXAMPLES}/settings; printf %s "$run"'
    env = environ(SLURM_JOB_COMMENT=comment)
    assert subprocess.check_output(["sh", "-uc", script], env=env, text=True) == run


def ran(tmp_path: Path, env: Mapping[str, str], status: int = 0) -> tuple[int, list[str]]:
    """Run the job script with a command that ends with a status. A pause of the script makes the
    link of its run. Returns its status, and its lines."""
    links, saved = tmp_path / ".spillway/runs" / RUN, tmp_path / RUN / "step-5"
    links.mkdir(parents=True, exist_ok=True)
    saved.mkdir(parents=True)
    bin = programs(
        tmp_path / "bin",
        srun='"$@"',
        sleep=f"ln -s {saved} {links}/latest-durable",
        spillway='echo "asked: $*" >&2; exit 1',
    )
    command = [str(EXAMPLES / "job.sh"), "sh", "-c", f"exit {status}"]
    more = {"MOUNT": str(tmp_path), "PATH": f"{bin}:/usr/bin:/bin", **env}
    done = subprocess.run(command, env=environ(**more), capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_a_run_that_was_requeued_asks_again_for_its_link(tmp_path: Path) -> None:
    _status, lines = ran(tmp_path, {"SLURM_RESTART_COUNT": "2"})
    assert lines[0] == f"job.sh: start 2: {tmp_path}/{RUN}/step-5"


def test_a_first_run_does_not_wait_for_a_link(tmp_path: Path) -> None:
    _status, lines = ran(tmp_path, {})
    assert lines[0] == "job.sh: start 0: from the beginning"


def test_without_a_durable_checkpoint_a_run_begins_with_what_is_complete(tmp_path: Path) -> None:
    links = tmp_path / ".spillway/runs" / RUN
    links.mkdir(parents=True)
    (links / "latest-complete").symlink_to(tmp_path)
    _status, lines = ran(tmp_path, {})
    assert lines[0] == f"job.sh: start 0: {tmp_path}"


@pytest.mark.parametrize("status", [0, 3])
def test_the_status_of_a_job_is_that_of_its_command(tmp_path: Path, status: int) -> None:
    ended, lines = ran(tmp_path, {}, status)
    assert ended == status
    # What failed has nothing new to wait for; a failed wait is only said.
    asked = f"asked: wait --durable --timeout 600 {RUN}"
    assert lines[1:2] == ([] if status else [asked])
    assert any("the bucket may lack the newest" in line for line in lines) == (status == 0)
