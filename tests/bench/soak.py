"""Runs mixed work of many clients for a long time: ``python -m tests.bench.soak DIRECTORY``.

Each client reads back what it wrote, and checks sizes and listings. The server's memory is printed
over time. The run fails on an error, on a lost lease, and if the memory grows after the warm-up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import load
from tests.bench.load import Load
from tests.conformance.server import KINDS, Server

SAMPLES = 60
WARM_UP_SHARE = 0.25
"""The share of the time in which caches fill and threads start."""
GROWTH_MIB_MAX = 48.0
"""The largest growth from the quarter after the warm-up to the last quarter."""


def soak(server: Server, clients: int, seconds: float, say: Callable[[str], None]) -> list[str]:
    """Run against a fresh server. Returns what is wrong. Raises RuntimeError if the server died."""
    results: list[Load] = []
    work = threading.Thread(
        target=lambda: results.append(
            load.nfs(
                server.port,
                *("mixed", "--connections", clients, "--seconds", seconds, "--dir", "soak"),
                errors_allowed=True,
            )
        )
    )
    samples: list[float] = []
    started = time.monotonic()
    work.start()
    while work.is_alive():
        work.join(seconds / SAMPLES)
        server.require_alive()
        samples.append(server.resident_mib())
        say(f"{time.monotonic() - started:6.0f} s  ganesha {samples[-1]:6.0f} MiB")
    if not results:
        return ["the load generator failed"]
    [result] = results
    say(
        f"{result.ops:,} operations, {result.ops_per_second:,.0f}/s, "
        f"{result.mib_per_second:,.0f} MiB/s, p99 {result.p99_ms:.0f} ms, "
        f"longest {result.max_ms:.0f} ms, {result.delays} delays"
    )
    return [*_errors(result), *_growth(samples, say)]


def _errors(result: Load) -> list[str]:
    found = []
    if result.errors:
        found.append(f"{result.errors} errors, the first: {result.first_error}")
    if result.lost_leases:
        found.append(f"{result.lost_leases} leases lost")
    return found


def _growth(samples: list[float], say: Callable[[str], None]) -> list[str]:
    warm = samples[int(len(samples) * WARM_UP_SHARE) :]
    part = max(1, len(warm) // 3)
    growth_mib = statistics.median(warm[-part:]) - statistics.median(warm[:part])
    say(f"memory after the warm-up: {growth_mib:+.0f} MiB (at most {GROWTH_MIB_MAX:+.0f})")
    return [f"memory grew by {growth_mib:.0f} MiB"] if growth_mib > GROWTH_MIB_MAX else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="on an ext4")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--server", choices=KINDS, default=KINDS[0])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory.absolute()) as name:
        directory = Path(name)
        with Server(args.server, directory, directory / "ganesha.log") as server:
            wrong = soak(server, args.clients, args.seconds, lambda line: print(line, flush=True))
    if wrong:
        sys.exit("FAILED: " + "; ".join(wrong))
    print("passed")


if __name__ == "__main__":
    main()
