"""Compares the hydrator in a process of its own with the hydrator and the drain in one process.

``unshare --mount python -m tests.bench.apart DIRECTORY`` prints the rows. Files are read from the
bucket while the drain sends thousands of small objects, which keeps the lock of its interpreter
busy. The one process is the hydrator's, with the drain in a thread; the drain's own does nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.bench import report
from tests.bench.cold import Files, Site
from tests.bench.experiments import Experiment
from tests.bench.rows import Row

PAIRS = 5
FILES = Files(8, 64)
SMALL = 40_000
"""They must outlast both reads: the drain sends one or two thousand in a second."""
PEER = "one process for both"
SITECUSTOMIZE = """
import sys
module = dict(zip(sys.orig_argv, sys.orig_argv[1:])).get("-m")
if module == "gateway.drain":
    import signal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()
if module == "gateway.cache":
    import threading
    def run():
        from pathlib import Path
        from gateway import config
        from gateway.drain.worker import Drain
        Drain(config.load(Path(sys.orig_argv[-1])), stop=threading.Event()).run()
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


def measured(site: Site, number: int) -> Sequence[float]:
    """Read cold files beside the drain. Returns MiB/s, and milliseconds to the first byte."""
    site.run("create", "--dir", f"small{number}", "--connections", 16, "--count", SMALL)
    # The first bytes take longer: each file is warmed after its first byte.
    [rate, _processors] = site.cold(FILES, number)
    [first] = site.first_byte(FILES, number)
    left = site.gateway.status()["dirty"]["files"]
    if left == 0:
        raise RuntimeError("the drain had ended before the reads: give it more files")
    site.gateway.until_drained(300.0)
    return [rate, first]


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
            site.make(FILES)
        setting = f"while the drain sends {SMALL:,} small objects"
        rows = (
            Row(f"cold read of {FILES.name}", setting, PEER, "MiB/s"),
            Row(f"first byte of {FILES.name}", setting, PEER, "ms"),
        )
        experiment = Experiment(rows, partial(measured, apart), partial(measured, one))
        print(report.line(report.COLUMNS))
        for row in experiment.run(PAIRS):
            print(report.line(row.cells()))


if __name__ == "__main__":
    main()
