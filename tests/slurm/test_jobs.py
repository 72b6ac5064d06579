"""Jobs of a real Slurm mount, save, are requeued, resume, and wait for the bucket."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.slurm.carrier import Carrier
from tests.slurm.cluster import Cluster, cluster, install
from tests.support.clisite import PROGRAM
from tests.support.gateway import Gateway, running
from tests.support.ports import free_port
from tests.support.waiting import background, until

RUN = "jobs/llama"
COMMENT = f"--comment=of team a spillway:{RUN}"
TRAIN = Path(__file__).with_name("train")
WAIT_SECONDS, GRACE_SECONDS = 3, 2
SETTINGS = """
# What a cluster has at these places is the test's own here. The kernel may have no NFS client.
mount={mount}
source=spillway-test
fstype=tmpfs
options=size=64m
lock={directory}/lock
mount_seconds=5
answer_seconds=2
unset SPILLWAY_CA
export SPILLWAY_GATEWAY=http://127.0.0.1:{port}
export SPILLWAY_TOKEN_FILE={token}
wait_seconds={wait}
grace_seconds={grace}
export SLURM_CONF={directory}/slurm.conf
PATH={directory}/bin:{programs}:$PATH
"""


class Lab(NamedTuple):
    """A gateway, and a cluster whose jobs save through it."""

    gateway: Gateway
    cluster: Cluster
    mount: Path
    environ: dict[str, str]
    """What a user has set who submits a job."""

    def submit(self, *command: str | Path) -> str:
        """Submit the example job. Returns its number."""
        job = self.cluster.scripts / "job.sh"
        output = f"--output={self.cluster.directory}/job.txt"
        return self.cluster.submit(COMMENT, output, job, *command, env=self.environ)

    def said(self) -> list[str]:
        """Return what the example job has said."""
        path = self.cluster.directory / "job.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith("slurmstepd-")]

    @contextmanager
    def program(self, name: str, text: str) -> Iterator[None]:
        """Put a program before the system's one of the same name, for the scripts."""
        path = self.cluster.directory / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        yield
        path.unlink()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    assert os.geteuid() == 0, "run it as root: make slurm"
    directory = tmp_path_factory.mktemp("slurm")
    port, mount, token = free_port(), directory / "mnt", directory / "token"
    settings = SETTINGS.format(
        mount=mount,
        directory=directory,
        port=port,
        token=token,
        programs=PROGRAM.parent,
        wait=WAIT_SECONDS,
        grace=GRACE_SECONDS,
    )
    install(directory / "spillway", settings)
    (directory / "bin").mkdir()
    environ = {
        "MOUNT": str(mount),
        "RUN": RUN,
        "SPILLWAY_GATEWAY": f"http://127.0.0.1:{port}",
        "SPILLWAY_TOKEN_FILE": str(token),
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
    }
    admin = {"enabled": True, "port": port}
    with running(directory / "site", {"admin": admin}) as gateway:
        made = gateway.spillway("token", "create", "--role", "operator", "--name", "slurm")
        token.touch(0o600)
        token.write_text(made.stdout)
        carrier = Carrier(mount, gateway.port, RUN)
        try:
            with cluster(directory) as slurm, background(carrier.carry):
                yield Lab(gateway, slurm, mount, environ)
        finally:
            subprocess.run(["umount", "--lazy", mount], capture_output=True)


def test_a_requeued_job_resumes_from_what_the_bucket_has(lab: Lab) -> None:
    job = lab.submit(TRAIN)
    until(lambda: "train: saved step 1" in lab.said(), f"the first save: {lab.said()}", 60)
    assert lab.mount.is_mount()
    # What Slurm sends before the time limit (--signal=B:USR1@300).
    lab.cluster.say("scancel", "--batch", "--signal=USR1", job)
    facts = lab.cluster.until_job(job, JobState="COMPLETED", Restarts="1")
    assert lab.said() == [
        "job.sh: start 0: from the beginning",
        "train: saved step 1",
        "train: saved step 2",
        f"job.sh: start 1: {lab.mount}/{RUN}/step-2",
        "step 2",
        "train: saved step 3",
    ]
    assert facts["AdminComment"] == f"{RUN} is durable"
    assert lab.cluster.node() == "idle"
    # The bucket has all of it, not only says so.
    saved = {
        f"{RUN}/step-{step}/{name}" for step in (1, 2, 3) for name in (".metadata", "__0_0.distcp")
    }
    assert saved <= lab.gateway.objects().keys()
    # Before the second run the gateway was asked to have the checkpoint on its disk.
    jobs = lab.gateway.spillway("job", "list", "--json").stdout
    assert f".spillway/runs/{RUN}/latest-durable" in jobs


def test_a_wait_for_a_gateway_that_does_not_answer_ends_and_drains_no_node(lab: Lab) -> None:
    job = lab.cluster.submit(COMMENT, "--wrap", "sleep 600")
    lab.cluster.until_job(job, JobState="RUNNING")
    pid = lab.gateway.pid("admin")
    os.kill(pid, signal.SIGSTOP)
    try:
        lab.cluster.say("scontrol", "requeue", job)
        lab.cluster.until_node("idle")  # others may have it, while the wait lasts
        facts = lab.cluster.job(job)
        assert "AdminComment" not in facts, facts
        while "AdminComment" not in facts:
            assert facts["JobState"] in ("PENDING", "COMPLETING"), "it starts after the wait only"
            facts = lab.cluster.job(job)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert facts["AdminComment"].startswith(f"{RUN}: the gateway did not answer in time")
    assert lab.cluster.node() == "idle"
    lab.cluster.say("scancel", job)


@pytest.mark.parametrize(
    ("name", "is_mounted", "why"),
    [("stat", True, "does not answer"), ("mount", False, "cannot mount")],
)
def test_no_job_starts_where_the_gateway_does_not_answer(
    lab: Lab, name: str, is_mounted: bool, why: str
) -> None:
    if not is_mounted:
        subprocess.run(["umount", lab.mount], check=True)
    with lab.program(name, "exec sleep 600"):
        job = lab.cluster.submit("--wrap", "echo started", "--output=started.txt")
        lab.cluster.until_node("drained")
    assert why in lab.cluster.say("sinfo", "--list-reasons", "--format=%E")
    facts = lab.cluster.until_job(job, JobState="PENDING")
    assert facts["Priority"] == "0", "it is held"
    assert not (lab.cluster.directory / "started.txt").exists()
    # What the page says to do then.
    lab.cluster.say("scontrol", "update", "NodeName=node1", "State=RESUME")
    lab.cluster.say("scontrol", "release", job)
    lab.cluster.until_job(job, JobState="COMPLETED")
    assert lab.mount.is_mount()
    (lab.cluster.directory / "started.txt").unlink()


def test_a_script_gets_its_signal_before_the_time_is_over(lab: Lab) -> None:
    options = ("--time=1", "--signal=B:USR1@50", "--output=signal.txt")
    script = "trap 'echo heard; exit 0' USR1; sleep 600 & wait"
    job = lab.cluster.submit(*options, "--wrap", script)
    lab.cluster.until_job(job, JobState="COMPLETED")
    said = (lab.cluster.directory / "signal.txt").read_text().splitlines()
    assert said[:1] == ["heard"]  # Slurm may say more
