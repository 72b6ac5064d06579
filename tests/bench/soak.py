"""Works with a server for a long time: ``python -m tests.bench.soak DIRECTORY``.

First many clients of ``nfsload`` do mixed work: each reads back what it wrote, and checks sizes and
listings. Then two clients with a kernel contend for files (``sharing.py``). The server's memory is
printed over time. The run fails on an error, on a lost lease, if a process of a kernel's client
waits longer than 10 s, and if the memory grows after the warm-up.
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
from tests.bench.sharing import Say, Watch, share
from tests.support.nfsserver import KINDS, Server
from tests.support.vm.build import build_image

MIXED, SHARING = PARTS = ("mixed", "sharing")
SAMPLES = 60
WARM_UP_SHARE = 0.25
"""The share of the time in which caches fill and threads start."""
GROWTH_MIB_MAX = 48.0
"""The largest growth from the quarter after the warm-up to the last quarter."""


def mixed(server: Server, clients: int, seconds: float, watch: Watch, say: Say) -> list[str]:
    """Run mixed work of ``nfsload``. Returns what is wrong."""
    results: list[Load] = []
    work = threading.Thread(
        target=lambda: results.append(
            load.nfs(
                server.port,
                *("mixed", "--connections", clients, "--seconds", seconds, "--dir", "soak"),
                errors_allowed=True,
                deadline_seconds=seconds + load.DEADLINE_SECONDS,
            )
        )
    )
    work.start()
    watch(work.is_alive)
    if not results:
        return ["the load generator failed"]
    [result] = results
    say(
        f"{result.ops:,} operations, {result.ops_per_second:,.0f}/s, "
        f"{result.mib_per_second:,.0f} MiB/s, p99 {result.p99_ms:.0f} ms, "
        f"longest {result.max_ms:.0f} ms, {result.delays} delays"
    )
    return _errors(result)


def soak(server: Server, work: Callable[[Watch], list[str]], seconds: float, say: Say) -> list[str]:
    """Run work against a fresh server. Returns what is wrong. Raises RuntimeError if it died."""
    samples: list[float] = []
    started = time.monotonic()

    def watch(running: Callable[[], bool]) -> None:
        while running():
            time.sleep(max(seconds / SAMPLES, 1.0))
            server.require_alive()
            samples.append(server.resident_mib())
            say(f"{time.monotonic() - started:6.0f} s  ganesha {samples[-1]:6.0f} MiB")

    return [*work(watch), *_growth(samples, say)]


def _errors(result: Load) -> list[str]:
    errors = []
    if result.errors:
        errors.append(f"{result.errors} errors, the first: {result.first_error}")
    if result.lost_leases:
        errors.append(f"{result.lost_leases} leases lost")
    return errors


def _growth(samples: list[float], say: Say) -> list[str]:
    warm = samples[int(len(samples) * WARM_UP_SHARE) :]
    part = max(1, len(warm) // 3)
    growth_mib = statistics.median(warm[-part:]) - statistics.median(warm[:part])
    say(f"memory after the warm-up: {growth_mib:+.0f} MiB (at most {GROWTH_MIB_MAX:+.0f})")
    return [f"memory grew by {growth_mib:.0f} MiB"] if growth_mib > GROWTH_MIB_MAX else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="on an ext4")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--clients", type=int, default=64, help="of the mixed work")
    parser.add_argument("--seconds", type=float, default=600.0, help="of each part")
    parser.add_argument("--server", choices=KINDS, default=KINDS[0])
    parser.add_argument("--kernel", type=Path, help="the second client's, a package of Debian")
    args = parser.parse_args()
    wrong = []
    for part in args.parts:
        print(f"---- {part}, {args.seconds:g} s", flush=True)
        wrong += [f"{part}: {fault}" for fault in _run(part, args)]
    if wrong:
        sys.exit("FAILED:\n" + "\n".join(wrong))
    print("passed")


def _run(part: str, args: argparse.Namespace) -> list[str]:
    def say(line: str) -> None:
        print(line, flush=True)

    with tempfile.TemporaryDirectory(dir=args.directory.absolute()) as name:
        directory = Path(name)
        with Server(args.server, directory, directory / "ganesha.log") as server:

            def work(watch: Watch) -> list[str]:
                if part == MIXED:
                    return mixed(server, args.clients, args.seconds, watch, say)
                cache = args.directory / "vm"
                images = [build_image(cache), build_image(cache, args.kernel)]
                return share(server, images, args.seconds, directory, watch, say)

            try:
                return soak(server, work, args.seconds, say)
            except RuntimeError as error:  # The server died.
                return [str(error)]


if __name__ == "__main__":
    main()
