"""One run: a gateway and its bucket, writers, kills, and the comparison at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.gateway import BUCKET, Gateway
from tests.support.postgres import PostgresServer
from tests.support.s3server import RcloneServer, die_with_parent
from tests.support.waiting import until
from tests.torture import verify
from tests.torture.killer import Answers, Killer

NFSLOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"
ENGINES = ("sqlite", "postgres")
TOP = "torture"
DRAIN_SECONDS = 180.0
STOP_SECONDS = 120.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Args:
        seed: seed of all random choices.
        engine: one of ENGINES.
    """

    seed: int
    engine: str
    seconds: float
    kills_max: int = 200
    writers: int = 8


def run(directory: Path, plan: Plan, say: Say) -> str:
    """Carry out a plan. Returns the result in one line.

    Raises AssertionError if anything that was answered is lost, with the writer's lines about it.

    Args:
        directory: empty.
        say: called with a line for each kill.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        postgres = None
        if plan.engine == "postgres":
            postgres = stack.enter_context(PostgresServer(directory / "postgres"))
        gateway = _gateway(directory, server, postgres)
        with gateway:
            kills = _tortured(gateway, postgres, directory, plan, say)
            stuck = drain_error(gateway)
        say(f"{time.monotonic():.6f} stopped; comparing")
        # A loss may be the cause of all other errors, so the names are compared first.
        tree = verify.tree(gateway.settings, TOP)
        outcome = verify.verify_names(_logs(directory, plan), tree)
        reclaimed = verify.verify_fsck(gateway)
        if stuck:
            raise verify.Lost(stuck)
        verify.verify_bucket(tree, server.files(f"{BUCKET}/{TOP}"))
    return (
        f"{plan.engine}: {kills.total()} kills ({_counted(kills)}), "
        f"{outcome.acknowledged} requests acknowledged, "
        f"{outcome.unanswered} unanswered, {outcome.expired} of a lost lease, "
        f"{outcome.files} files at the end, {reclaimed} data files of reclaimed rows: nothing lost"
    )


def _counted(kills: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(kills.items()))


def _gateway(directory: Path, server: RcloneServer, postgres: PostgresServer | None) -> Gateway:
    values: dict[str, dict[str, object]] = {
        "nfs": {
            # New opens wait for half a lease after a restart, so these are the least values.
            "lease_seconds": 5,
            "grace_seconds": 5,
        }
    }
    if postgres is not None:
        values["namespace"] = {"url": postgres.create_database()}
    return Gateway(
        directory / "gateway",
        server,
        values=values,
    )


def _logs(directory: Path, plan: Plan) -> list[Path]:
    return [directory / f"w{writer}.log" for writer in range(plan.writers)]


@contextmanager
def _writers(gateway: Gateway, directory: Path, plan: Plan) -> Iterator[Answers]:
    export = gateway.settings.nfs.export
    writers = subprocess.Popen(
        [
            *(NFSLOAD, "127.0.0.1", str(gateway.port), export, "torture"),
            *("--connections", str(plan.writers), "--dir", TOP),
            *("--log", directory, "--seed", str(plan.seed)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    try:
        logs = _logs(directory, plan)
        until(lambda: all(log.exists() and log.stat().st_size for log in logs), "the writers")
        yield Answers(logs)
        writers.send_signal(signal.SIGTERM)
        # Status 1 means errors. The logs have them, with the requests that led to them.
        _output, said = writers.communicate(timeout=STOP_SECONDS)
        if writers.returncode not in (0, 1):
            raise AssertionError(f"the writers ended with {writers.returncode}: {said}")
    finally:
        writers.kill()
        writers.wait()


def _tortured(
    gateway: Gateway, postgres: PostgresServer | None, directory: Path, plan: Plan, say: Say
) -> Counter[str]:
    deadline = time.monotonic() + plan.seconds
    with _writers(gateway, directory, plan) as answers:
        killer = Killer(gateway, postgres, answers, plan.seed, say)
        killer.run(deadline, plan.kills_max)
    return killer.kills


def drain_error(gateway: verify.Commands, seconds: float = DRAIN_SECONDS) -> str:
    """Return why the drain does not converge in some time, or an empty text if it has and nothing
    is queued."""
    done = gateway.spillway(
        *("drain", "--wait", "--json", "--timeout", str(seconds)),
        check=False,
        timeout_seconds=seconds + 60.0,
    )
    if done.returncode != 0:
        return f"the drain did not converge: {done.stdout}{done.stderr}"
    try:
        # The command above does not wait for moves and deletions. Held files stay dirty for ever.
        until(lambda: not any(gateway.status()["queued"].values()), "the queue", DRAIN_SECONDS)
    except AssertionError as error:
        return f"{error}: {json.dumps(gateway.status(), indent=2)}"
    return ""
