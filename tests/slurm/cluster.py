"""Slurm of one node on loopback, without systemd: munged, slurmctld and slurmd in a directory."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.clisite import Running, environ
from tests.support.ports import free_port
from tests.support.tools import tool
from tests.support.waiting import until

EXAMPLES = ROOT / "examples/slurm"
INSTALLED = "/etc/slurm/spillway"
"""Where the examples are on a cluster."""
NODE = "node1"
SECONDS = 90.0
STOP_SECONDS = 20.0
_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=2
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def install(directory: Path, settings: str) -> None:
    """Copy the examples to a directory.

    Args:
        settings: lines that are added to their settings.
    """
    shutil.copytree(EXAMPLES, directory)
    with (directory / "settings").open("a") as file:
        file.write(settings)


class Cluster:
    """A running Slurm.

    Args:
        directory: of its files.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environ = environ(SLURM_CONF=str(directory / "slurm.conf"))

    @property
    def scripts(self) -> Path:
        """Where the examples are."""
        return self.directory / "spillway"

    def say(self, *command: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Run a command of Slurm. Returns what it prints. Raises CalledProcessError."""
        return subprocess.check_output(
            [tool(str(command[0])), *command[1:]],
            env={**self.environ, **(env or {})},
            cwd=self.directory,
            text=True,
            timeout=SECONDS,
        )

    def submit(self, *command: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Submit a job. Returns its number."""
        return self.say("sbatch", "--parsable", *command, env=env).strip()

    def job(self, number: str) -> dict[str, str]:
        """Return the facts of a job."""
        text = self.say("scontrol", "show", "job", number)
        facts = dict(re.findall(r"(\w+)=(\S*)", text))
        facts.update(re.findall(r"^ *(\w*Comment)=(.*?) *$", text, re.MULTILINE))
        return facts

    def until_job(self, number: str, **wanted: str) -> dict[str, str]:
        """Wait until a job has facts. Returns all of them."""

        def has() -> dict[str, str] | None:
            facts = self.job(number)
            return facts if wanted.items() <= facts.items() else None

        try:
            return until(has, f"{wanted} of the job {number}", SECONDS)
        except AssertionError as exc:
            raise AssertionError(f"{exc}: {self.job(number)}\n{self.logs()}") from None

    def node(self) -> str:
        """Return the state of the node, such as idle or drained."""
        return self.say("sinfo", "--noheader", "--Node", "--format=%T").strip()

    def until_node(self, *states: str) -> None:
        """Wait until the node has one of some states."""
        until(lambda: self.node() in states, f"{states}, not {self.node()}", SECONDS)

    def logs(self) -> str:
        """Return what the daemons said."""
        paths = [self.directory / f"{name}.log" for name in ("slurmctld", "slurmd")]
        return "\n".join(path.read_text() for path in paths)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Run Slurm. Args: directory, with the examples in ``spillway``."""
    made = Cluster(directory)
    for name in ("state", "spool"):
        (directory / name).mkdir()
    _configure(directory)
    key = directory / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    munge = [f"--{what}-file={directory}/munge.{what}" for what in ("key", "pid", "log", "seed")]
    daemons = (
        # --force: parents of a test's directory may be writable for others.
        ("munged", "--foreground", "--force", f"--socket={directory}/munge.socket", *munge),
        ("slurmctld", "-D", "-L", f"{directory}/slurmctld.log"),
        ("slurmd", "-D", "-N", NODE, "-L", f"{directory}/slurmd.log"),
    )
    with _running(made, *daemons):
        made.until_node("idle")
        try:
            yield made
        finally:
            # A job outlives the daemons.
            made.say("scancel", "--full", "--signal=KILL", "--user=root")


@contextmanager
def _running(cluster: Cluster, *daemons: tuple[str, ...]) -> Iterator[None]:
    if not daemons:
        yield
        return
    (name, *options), *others = daemons
    with Running([tool(name), *options], cluster.environ) as daemon:
        if name == "munged":
            until((cluster.directory / "munge.socket").exists, "munged")
        try:
            with _running(cluster, *others):
                yield
        finally:
            # SIGKILL would leave the processes of jobs and scripts.
            daemon.process.terminate()
            daemon.process.wait(STOP_SECONDS)


def _configure(directory: Path) -> None:
    conf = _CONF.format(
        directory=directory,
        host=socket.gethostname().partition(".")[0],
        node=NODE,
        controller_port=free_port(),
        node_port=free_port(),
    )
    lines = (EXAMPLES / "slurm.conf").read_text().replace(INSTALLED, str(directory / "spillway"))
    (directory / "slurm.conf").write_text(conf + lines)
