"""Runs nfsload, and the same work on local files."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from tests.support.nfsserver import EXPORT

PROGRAMS = Path(__file__).parents[2] / "build" / "bench"
MIB = 1 << 20
DEADLINE_SECONDS = 900.0
CLAIMED_BYTES = 1536 * MIB


@dataclass(frozen=True)
class Load:
    """The values that nfsload prints; its C source defines them."""

    ops: int
    bytes: int
    seconds: float
    ops_per_second: float
    mib_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    delays: int
    lost_leases: int
    errors: int
    first_error: str
    client_cpu_seconds: float


def claim_memory() -> None:
    """Take free memory from the host, and release it.

    A virtual machine returns memory that is free for seconds to its host, and has to wait for it
    later. Without this the first writer after a pause would pay for the memory of both.
    """
    mmap.mmap(-1, CLAIMED_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def run(
    program: str,
    *arguments: object,
    errors_allowed: bool = False,
    under: Sequence[object] = (),
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Load:
    """Run nfsload or nfs3save. Raises RuntimeError if the program failed or counted errors.

    Args:
        under: a command that runs the program.
    """
    words = [*map(str, under), str(PROGRAMS / program), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=deadline_seconds)
    if done.returncode != 0 and not (errors_allowed and done.returncode == 1):
        said = f"{done.stdout}{done.stderr}"
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{said}")
    values = json.loads(done.stdout)
    return Load(**{field.name: values[field.name] for field in fields(Load)})


def nfs(
    port: int,
    workload: str,
    *options: object,
    export: str = EXPORT,
    errors_allowed: bool = False,
    under: Sequence[object] = (),
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Load:
    """Run a workload of nfsload against a server on loopback."""
    words = ("127.0.0.1", port, export, workload, *options)
    return run(
        "nfsload",
        *words,
        errors_allowed=errors_allowed,
        under=under,
        deadline_seconds=deadline_seconds,
    )


def local_save(directory: Path, ranks: int, file_bytes: int) -> float:
    """Let every rank write a .tmp in writes of 1 MiB, sync it and rename it. Returns the seconds.

    Raises the OSError of the first rank that failed.
    """
    block = os.urandom(MIB)
    failed: list[OSError] = []

    def save(rank: int) -> None:
        try:
            temporary = directory / f"f{rank}.tmp"
            with temporary.open("wb", buffering=0) as file:
                for _ in range(file_bytes // MIB):
                    file.write(block)
                os.fsync(file.fileno())
            temporary.rename(directory / f"f{rank}")
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(rank,)) for rank in range(ranks)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return time.perf_counter() - started


def local_appends(directory: Path, count: int, size_bytes: int) -> float:
    """Append with one thread, with an fdatasync after each. Returns the appends per second."""
    path = directory / "log"
    block = os.urandom(size_bytes)
    with path.open("wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(block)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - started
    path.unlink()
    return count / seconds
