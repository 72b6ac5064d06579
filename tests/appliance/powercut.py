"""Cuts the power of the image at random moments: ``python -m tests.appliance.powercut IMAGE VM``.

Eight writers log each answer (tests/torture), and a client of another machine saves through the
kernel's mount and tells us of each confirmed step. They continue by themselves after each cut. At
the end everything that was answered must be there, fsck must find nothing, and the bucket must
have every file. The disk loses what was not flushed to it.

With --without-fsync the NFS server's calls of fsync do nothing, and the loss must be found: the
test is then known to see one.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.appliance import site
from tests.appliance.gateway import ADDRESS, CLIENT_ADDRESS, Appliance
from tests.appliance.machine import Machine
from tests.appliance.remote import RemoteGateway
from tests.appliance.steps import timed
from tests.appliance.volatile import VolatileDisk
from tests.support.client import MOUNT, start_program
from tests.support.confirmed import check, files_in
from tests.support.owner import SIGN_SECONDS
from tests.support.s3server import RcloneServer, die_with_parent
from tests.support.vm.build import build_image
from tests.support.vm.client import HOST_ADDRESS, ClientVm, Completed
from tests.support.waiting import until
from tests.torture import verify
from tests.torture.killer import Answers
from tests.torture.run import DRAIN_SECONDS, NFSLOAD, TOP, drain_error

NFS_PORT = 2049
WRITERS = 8
BACK_SECONDS = 1200.0
FIRST_SECONDS, LAST_SECONDS = 1.0, 15.0
"""The range of the delay of a cut after the first answer since the cut before."""
DIRECTORY = "steps"
_WITHOUT_FSYNC = """\
int fsync(int fd) { return 0; }
int fdatasync(int fd) { return 0; }
"""
_DROP_IN = "/etc/systemd/system/spillway-nfs.service.d/without-fsync.conf"


class Confirmed:
    """Counts the steps that the client in the VM confirms.

    Args:
        client: client with the mount.
    """

    def __init__(self, client: ClientVm) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(BACK_SECONDS)
        arguments = (MOUNT / DIRECTORY, HOST_ADDRESS, str(listener.getsockname()[1]))
        self._program = start_program(client, "confirm.py", *arguments, timeout_seconds=86_400)
        self._connection, _ = listener.accept()
        listener.close()
        self._connection.setblocking(False)
        self.steps = 0

    def read(self) -> int:
        """Read what has come. Returns how many steps were confirmed so far. Raises Lost with what
        the program says if it has ended: what it made may be gone, as it must continue by itself.
        Raises ClientError if the VM has ended."""
        if self._program.done:
            raise _lost(self._program.wait(check=False))
        try:
            while data := self._connection.recv(65_536):
                self.steps += data.count(b"\n")
        except BlockingIOError:
            pass
        return self.steps

    def end(self) -> int:
        """End the program after its present step. Returns how many steps it confirmed. Raises Lost
        and ClientError as ``read`` does."""
        self._connection.shutdown(socket.SHUT_WR)
        self._connection.settimeout(BACK_SECONDS)
        while data := self._connection.recv(65_536):
            self.steps += data.count(b"\n")
        self._connection.close()
        ended = self._program.wait(BACK_SECONDS, check=False)
        if ended.exit_status != 0:
            raise _lost(ended)
        return self.steps


def _lost(ended: Completed) -> verify.Lost:
    return verify.Lost(f"the client ended with {ended.exit_status}: {ended.stderr}")


class Run:
    """A run.

    Args:
        server: server of the bucket.
        cache: cache of the client's image.
        stack: switches off what runs.
    """

    def __init__(
        self, appliance: Appliance, server: RcloneServer, cache: Path, seed: int, stack: ExitStack
    ) -> None:
        self._appliance = appliance
        self._server = server
        self._cache = cache
        self._seed = seed
        self._random = random.Random(seed)
        self._stack = stack
        self._directory = appliance.directory
        self._disk = VolatileDisk(appliance.data, appliance.directory / "nbd")
        self._logs = [self._directory / f"w{writer}.log" for writer in range(WRITERS)]
        stack.callback(self._disk.cut)

    def boot(self) -> None:
        """Make a gateway of the image."""
        self._appliance.write_drive(
            site.text(self._appliance.key, self._server.port, retention=False)
        )
        self._start("first")
        self._machine.until_reached()
        self._machine.until_active("spillway-nfs", "spillway-drain")

    def switch_fsync_off(self) -> None:
        """Have the NFS server's calls of fsync do nothing."""
        source, library = self._directory / "no.c", self._directory / "no.so"
        source.write_text(_WITHOUT_FSYNC)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
        self._machine.put(library, "/usr/local/lib/without-fsync.so")
        unit = "[Service]\\nEnvironment=LD_PRELOAD=/usr/local/lib/without-fsync.so\\n"
        self._machine.ssh(f"mkdir -p {Path(_DROP_IN).parent} && printf '{unit}' > {_DROP_IN}; sync")
        self._machine.ssh("systemctl daemon-reload && systemctl restart spillway-nfs")
        pid = "$(systemctl show -P MainPID spillway-nfs)"
        until(
            lambda: (
                "without-fsync" in self._machine.ssh(f"cat /proc/{pid}/maps", check=False).stdout
            ),
            "the NFS server without fsync",
            BACK_SECONDS,
        )
        self._machine.until_active("spillway-nfs", "spillway-drain")

    def begin_to_write(self) -> None:
        """Start the writers on this machine, and the client of another one."""
        client = self._stack.enter_context(
            ClientVm.boot(
                build_image(self._cache),
                console_log=self._directory / "console-client.log",
                hardware=self._appliance.client_cable(),
                deadline_seconds=BACK_SECONDS,
            )
        )
        client.run(f"ip addr add {CLIENT_ADDRESS}/24 dev eth1 && ip link set eth1 up")
        client.mount(NFS_PORT, address=ADDRESS, timeout_seconds=BACK_SECONDS)
        self._client = client
        self._confirmed = Confirmed(client)
        self._writers = subprocess.Popen(
            [
                *(NFSLOAD, "127.0.0.1", str(self._appliance.ports[NFS_PORT]), "/checkpoints"),
                *("torture", "--connections", str(WRITERS), "--dir", TOP),
                *("--log", self._directory, "--seed", str(self._seed)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        self._stack.callback(self._writers.kill)
        until(self._all_logged, "the writers", BACK_SECONDS)
        self._answers = Answers(self._logs)

    def cut(self, number: int) -> str:
        """Cut the power when both have got an answer since the cut before, and switch it on."""
        self._until_answered()
        time.sleep(self._random.uniform(FIRST_SECONDS, LAST_SECONDS))
        self._machine.kill()
        self._disk.cut()
        self._start(str(number))
        self._machine.until_reached()
        return f"{self._answers.read()} answers, {self._confirmed.read()} steps"

    def compare(self) -> str:
        """Compare everything with the answers. Returns the result. Raises Lost."""
        self._until_answered()
        self._writers.send_signal(signal.SIGTERM)
        _, said = self._writers.communicate(timeout=BACK_SECONDS)
        if self._writers.returncode not in (0, 1):
            raise AssertionError(f"the writers ended with {self._writers.returncode}: {said!r}")
        steps = self._confirmed.end()
        self._client.drop_caches(timeout_seconds=BACK_SECONDS)
        check(files_in(self._client, DIRECTORY), steps)
        gateway = RemoteGateway(self._machine)
        # The clients may be served a minute before the drain has started.
        self._machine.until_active("spillway-drain")
        # After a cut the drain sends nothing while a copy of the gateway could give a sign.
        stuck = drain_error(gateway, SIGN_SECONDS + DRAIN_SECONDS)
        self._machine.ssh("systemctl stop spillway.target 'spillway-*'")
        tree = verify.tree(gateway.copied(self._directory), TOP)
        outcome = verify.verify_names(self._logs, tree)
        reclaimed = verify.verify_fsck(gateway)
        if stuck:
            raise verify.Lost(stuck)
        verify.verify_bucket(tree, self._server.files(f"{site.BUCKET}/{TOP}"))
        return (
            f"{outcome.acknowledged} requests acknowledged, {outcome.unanswered} unanswered, "
            f"{steps} steps confirmed, {outcome.files} files at the end, {reclaimed} data files "
            "of reclaimed rows: nothing lost"
        )

    def _start(self, name: str) -> None:
        self._disk.start()
        self._machine: Machine = self._appliance.machine(name, self._disk.drive)
        self._stack.callback(self._machine.kill)
        self._machine.start()

    def _all_logged(self) -> bool:
        return all(log.exists() and log.stat().st_size for log in self._logs)

    def _until_answered(self) -> None:
        answers, steps = self._answers.read(), self._confirmed.read()

        def both() -> bool:
            if self._answers.failed:
                raise verify.Lost(self._answers.failed)
            return self._answers.read() > answers and self._confirmed.read() > steps

        until(both, "an answer to each", BACK_SECONDS)


def main() -> None:
    """Run it. Exits with a message if something was lost, or was not although it had to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.appliance.powercut", description=__doc__)
    parser.add_argument("image", type=Path, help="the directory of make image")
    parser.add_argument("vm", type=Path, help="the cache of the client's image")
    parser.add_argument("--cycles", type=int, default=20, help="power cuts")
    parser.add_argument("--seed", default="", help="of a run to be repeated")
    parser.add_argument("--without-fsync", action="store_true", help="a loss must be found")
    args = parser.parse_args()
    seed = int(args.seed) if args.seed else secrets.randbits(32)
    print(f"SEED={seed}", flush=True)
    [image] = args.image.glob("*.qcow2")
    directory = Path(tempfile.mkdtemp(prefix="powercut-"))
    try:
        with ExitStack() as stack:
            server = stack.enter_context(RcloneServer(directory / "s3"))
            server.client().create_bucket(Bucket=site.BUCKET)
            appliance = Appliance(image, directory / "machine", [NFS_PORT])
            run = Run(appliance, server, args.vm, seed, stack)
            print(_result(run, args.cycles, args.without_fsync), flush=True)
    except AssertionError as error:
        if not args.without_fsync:
            sys.exit(f"FAILED with SEED={seed}; logs and data are in {directory}\n{error}")
        print(f"without fsync a loss was found, as it must be: {str(error)[:2000]}")
    else:
        if args.without_fsync:
            sys.exit(f"FAILED: without fsync nothing was lost; {directory}")
    shutil.rmtree(directory)


def _result(run: Run, cycles: int, without_fsync: bool) -> str:
    steps: list[Callable[[], object]] = [run.boot]
    if without_fsync:
        steps.append(run.switch_fsync_off)
    for step in (*steps, run.begin_to_write):
        timed(step.__name__.replace("_", " "), step)
    for number in range(1, cycles + 1):
        print(timed(f"cut {number}", partial(run.cut, number)), flush=True)
    return f"{cycles} cuts: {timed('compare', run.compare)}"


if __name__ == "__main__":
    main()
