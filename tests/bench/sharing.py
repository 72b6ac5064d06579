"""Two clients with a kernel's NFS client, whose processes contend for files of one server.

Each client has three processes that take a lock file, rename a new version of a table over the old
one and unlink the lock file, as generic/089 of xfstests does; two that append to one file under
locks; and one that appends to a file which the other client appends to as well.
``tests/support/guest/share.py`` is what they run. A client is an emulated machine, which stands
still when this machine is busy, and the server waits for this machine's disk. Both are measured:
the time in which a client stood still is no wait for the server.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.client import MOUNT, start_program
from tests.support.guest.share import GRACE_SECONDS, Records, Report
from tests.support.nfsserver import EXPORT, Server
from tests.support.vm.build import Image
from tests.support.vm.client import ClientVm, Command
from tests.support.waiting import background

WAIT_SECONDS_MAX = 10.0
OPTIONS = "hard,timeo=50,retrans=1"
"""With these the kernel says "not responding" when a call was not answered for 10 s."""
TABLE_PROCESSES = 3
PROBE_SECONDS = 0.1
CLIENT_TROUBLE = re.compile(
    r"\b(nfs4?|sunrpc|rpc)\b|not responding|blocked for more|BUG|Call Trace", re.IGNORECASE
)
SERVER_TROUBLE = re.compile(r":(WARN|MAJ|CRIT|FATAL) :|Traceback")
SHOWN_LINES_MAX = 10

Say = Callable[[str], None]
Watch = Callable[[Callable[[], bool]], None]


@dataclass(frozen=True)
class Client:
    """A client that has the server mounted. It has a directory of its own name."""

    name: str
    vm: ClientVm
    release: str

    @classmethod
    def boot(
        cls, number: int, image: Image, server: Server, logs: Path, stack: ExitStack
    ) -> Client:
        """Boot and mount; ``stack`` undoes it. The console is written to a file in ``logs``."""
        name = f"client-{number}"
        console = logs / f"{name}.log"
        vm = stack.enter_context(ClientVm.boot(image, console_log=console, hostname=name))
        vm.mount(server.port, EXPORT, options=OPTIONS)
        vm.run(["mkdir", "-p", str(MOUNT / name / "table")])
        vm.run("dmesg --clear")
        return cls(name, vm, image.release)

    def start(self, pattern: str, path: str, seconds: float, *who: str | int) -> Running:
        words = [pattern, str(MOUNT / path), str(seconds), *map(str, who)]
        limit = seconds + 2 * GRACE_SECONDS
        command = start_program(self.vm, "share.py", *words, timeout_seconds=limit)
        return Running(self, pattern, path, command)

    def records(self, path: str) -> Records:
        done = start_program(self.vm, "share.py", "records", MOUNT / path).wait()
        return Records(**json.loads(done.stdout))


@dataclass(frozen=True)
class Running:
    """A pattern that runs in a client."""

    client: Client
    pattern: str
    path: str
    command: Command

    def __str__(self) -> str:
        return f"{self.client.name} (Linux {self.client.release}), {self.pattern} {self.path}"

    def report(self) -> Report:
        done = self.command.wait(check=False)
        if done.exit_status == 0:
            return Report(**json.loads(done.stdout))
        return Report(errors=[f"ended with {done.exit_status}: {done.stderr}"])


def share(
    server: Server, images: Sequence[Image], seconds: float, logs: Path, watch: Watch, say: Say
) -> list[str]:
    """Run all patterns in a client of each image, at the same time. Returns what is wrong.

    Args:
        watch: looks at the server while its argument returns true.
    """
    began = server.log.stat().st_size
    with ExitStack() as stack:
        clients = [
            Client.boot(number, image, server, logs, stack)
            for number, image in enumerate(images, start=1)
        ]
        with probed(logs / "probe") as syncs:
            running = [one for client in clients for one in _start(client, seconds)]
            watch(lambda: not all(client.command.done for client in running))
        reports = {client: client.report() for client in running}
        wrong = [
            f"{client}: {fault}" for client, report in reports.items() for fault in faults(report)
        ]
        for one, report in reports.items():
            say(f"{one}: {told(report)}")
        say(f"this machine's disk: longest fsync of a small file {max(syncs, default=0):.1f} s")
        wrong += _records_wrong(clients, reports)
        for client in clients:
            lines = trouble(client.vm.run("dmesg").stdout, CLIENT_TROUBLE)
            wrong += [f"{client.name}'s kernel said: {line}" for line in lines]
    lines = trouble(server.log.read_bytes()[began:].decode(errors="replace"), SERVER_TROUBLE)
    return [*wrong, *(f"the server said: {line}" for line in lines)]


def _start(client: Client, seconds: float) -> Iterator[Running]:
    yield client.start("table", f"{client.name}/table", seconds, TABLE_PROCESSES)
    yield client.start("append", f"{client.name}/appended", seconds, "a", "b")
    yield client.start("ask", "appended", seconds, client.name)


@contextmanager
def probed(path: Path) -> Iterator[list[float]]:
    """Write a block and sync it, again and again. Yields how long each sync takes, in seconds."""
    syncs = list[float]()

    def probe(ended: threading.Event) -> None:
        with path.open("wb", buffering=0) as file:
            while not ended.wait(PROBE_SECONDS):
                os.pwrite(file.fileno(), os.urandom(4096), 0)
                began = time.monotonic()
                os.fsync(file.fileno())
                syncs.append(time.monotonic() - began)

    with background(probe):
        yield syncs


def faults(report: Report) -> list[str]:
    """Return what is wrong with what the processes of a pattern did."""
    idle = [name for name, rounds in report.rounds.items() if not rounds]
    return [
        *report.errors,
        *(f"{name} did nothing" for name in idle),
        *(
            f"{step} took {seconds:.1f} s, without what the client stood still"
            for step, seconds in report.longest_wait_seconds.items()
            if seconds > WAIT_SECONDS_MAX
        ),
    ]


def told(report: Report) -> str:
    """Return a report as a line of text."""
    rounds = " + ".join(map(str, report.rounds.values()))
    steps = ", ".join(
        f"{name} {seconds:.2f}" + f" (for the server {wait:.2f})" * (seconds - wait >= 0.01)
        for name, seconds in report.longest_seconds.items()
        for wait in [report.longest_wait_seconds[name]]
    )
    return (
        f"{rounds} rounds; longest, in seconds: {steps}; the client stood still for "
        f"{report.stood_still_seconds:.2f}"
    )


def _records_wrong(clients: Sequence[Client], reports: dict[Running, Report]) -> list[str]:
    """Let each client read each file of records, and compare it with what was appended."""
    appended: dict[str, dict[str, int]] = {}
    for one, report in reports.items():
        if one.pattern != "table":
            appended.setdefault(one.path, {}).update(report.rounds)
    wrong = []
    for client in clients:
        for path, rounds in appended.items():
            records = client.records(path)
            if records.counts != rounds:
                records.errors.append(f"has {records.counts}, and {rounds} were appended")
            wrong += [f"{path}, read by {client.name}: {error}" for error in records.errors]
    return wrong


def trouble(log: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the first lines of a log that tell of trouble, and how many more there are."""
    lines = [line for line in log.splitlines() if pattern.search(line)]
    more = len(lines) - SHOWN_LINES_MAX
    return [*lines[:SHOWN_LINES_MAX], *([f"{more} more lines"] if more > 0 else [])]
