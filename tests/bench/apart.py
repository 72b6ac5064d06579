"""Compares the hydrator in a process of its own with the hydrator and the drain in one process.

``unshare --mount python -m tests.bench.apart DIRECTORY`` prints the rows. Files are read from the
bucket while the drain sends thousands of small objects, which keeps the lock of its interpreter
busy. The one process is the hydrator's, with the drain in a thread; the drain's own does nothing.
It takes some minutes, and prints the values of each side on stderr meanwhile.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from tests.bench import report
from tests.bench.cold import Files, Site
from tests.bench.experiments import Experiment
from tests.bench.rows import Row

PAIRS = 6
FILES = Files(8, 128)
SINGLE = Files(48, 4)
"""Each file has one block: after its first byte nothing is left to be fetched beside the next."""
SMALL = 8_000
"""They must outlast both reads: the drain sends one or two thousand in a second."""
PEER = "one process for both"
SITECUSTOMIZE = """
import sys
module = dict(zip(sys.orig_argv, sys.orig_argv[1:])).get("-m")
if module == "gateway.processes.drain":
    import signal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()
if module == "gateway.processes.cache":
    import threading
    def run():
        from pathlib import Path
        from gateway.config import loader
        from gateway.drain.worker import Drain
        Drain(loader.load(Path(sys.orig_argv[-1])), stop=threading.Event()).run()
    sys.setswitchinterval(0.0005)
    threading.Timer(2.0, run).start()
"""


@contextmanager
def together(directory: Path) -> Iterator[None]:
    """Let gateways that start meanwhile have one process for both."""
    (directory / "sitecustomize.py").write_text(SITECUSTOMIZE)
    os.environ["PYTHONPATH"] = str(directory)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]


def measured(site: Site, name: str, number: int) -> Sequence[float]:
    """Read cold files beside the drain.

    Returns MiB/s, and milliseconds to the first byte: the median, and the ninth decile.

    Raises RuntimeError if the drain ended before the reads.

    Args:
        name: name of the site in the progress.
        number: number of the pair.
    """
    started = time.monotonic()
    # Both commands take seconds of processor time, so they come before the drain has work.
    for files in (FILES, SINGLE):
        site.gateway.evict(files.directory)
    site.run("create", "--dir", f"small{number}", "--connections", 16, "--count", SMALL)
    before = site.gateway.status()["dirty"]["files"]
    first = site.first_bytes(SINGLE)
    values = [median(first), quantiles(first, n=10)[-1]]
    rate = site.read(FILES).mib_per_second
    left = site.gateway.status()["dirty"]["files"]
    if left == 0:
        raise RuntimeError("the drain had ended before the reads: give it more files")
    site.gateway.until_drained(120.0)
    print(
        f"{name} {number}: {rate:.0f} MiB/s, {values[0]:.1f} and {values[1]:.1f} ms, "
        f"{before:,} to {left:,} objects left, {time.monotonic() - started:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return [rate, *values]


def main() -> None:
    values = {"drain": {"settle_seconds": 0.0}}
    with (
        tempfile.TemporaryDirectory(dir=Path(sys.argv[1]).absolute()) as name,
        ExitStack() as stack,
    ):
        directory = Path(name)
        apart = Site(directory / "apart", stack, values=values)
        (directory / "site").mkdir()
        with together(directory / "site"):
            one = Site(directory / "one", stack, values=values)
        for site in (apart, one):
            for files in (FILES, SINGLE):
                site.make(files)
        setting = f"while the drain sends {SMALL:,} small objects"
        rows = (
            Row(f"cold read of {FILES.name}", setting, PEER, "MiB/s"),
            Row(f"first byte of {SINGLE.name}", setting, PEER, "ms"),
            Row("ninth decile of the same", setting, PEER, "ms"),
        )
        experiment = Experiment(
            rows, partial(measured, apart, "apart"), partial(measured, one, "one")
        )
        print(report.line(report.COLUMNS), flush=True)
        for row in experiment.run(PAIRS):
            print(report.line(row.cells()))


if __name__ == "__main__":
    main()
