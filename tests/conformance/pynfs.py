"""Protocol conformance: pynfs against our gateway, or against Ganesha's FSAL_VFS as the reference.

``python -m tests.conformance.pynfs CHECKOUT [--server spillway|vfs] [--minor 0 1]``

Prints counts and failures. The exit status is 1 if our gateway fails a test that
``pynfs-expected.txt`` does not list, and 2 if a run did not end. A run takes 10 to 30 minutes,
because the suite waits for the end of leases and grace periods. It restarts the server with kill -9
and needs root. The output of the suite and of the server is kept in ``build/pynfs/results``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.config.settings import NfsSettings
from gateway.nfs import ganesha_conf
from tests.conformance.suite import Result, Suite
from tests.support.nfsserver import KINDS, Server

BUILD = Path(__file__).parents[2] / "build" / "pynfs"
EXPECTED = Path(__file__).with_name("pynfs-expected.txt")
TESTS = ("all", "ganesha", "reboot")
"""Groups of pynfs: tests for every server, tests that Ganesha adds, and recovery."""
TOO_LARGE = {0: (), 1: ("noREBT2c", "noREBT3c", "noREBT4c")}
"""Tests that are left out: their thousand clients must all reclaim within grace, which only tests
the speed of the machine."""

Expected = Mapping[tuple[int, str], str]


def read_expected(text: str, release: int) -> dict[tuple[int, str], str]:
    """Read lines ``4.0 CODE any|RELEASE reason``, RELEASE being a major number of Ganesha.

    Raises ValueError.

    Args:
        release: that of the Ganesha that is tested; lines for others are left out.

    Returns:
        The reasons by minor version and code.
    """
    found: dict[tuple[int, str], str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        version, code, of, reason = (*line.split(maxsplit=3), "", "", "")[:4]
        if version not in ("4.0", "4.1") or not (of == "any" or of.isdecimal()) or not reason:
            raise ValueError(f"line {number}: not '4.0 CODE any|RELEASE reason': {line!r}")
        if of == "any" or int(of) == release:
            found[int(version[-1]), code] = reason
    return found


def report(minor: int, results: Mapping[str, Result], expected: Expected) -> list[str]:
    """Print the results. Returns the codes of failures that are not expected."""
    counts = Counter(result.outcome for result in results.values())
    failed = [code for code, result in results.items() if result.failed]
    print(
        f"4.{minor}: {len(results)} tests: {counts['PASS'] + counts['WARNING']} passed "
        f"({counts['WARNING']} of them with a warning), {len(failed)} failed, "
        f"{counts['UNSUPPORTED']} unsupported, {counts['OMIT']} skipped"
    )
    for code in sorted(failed):
        reason = expected.get((minor, code))
        print(f"  {code:<10} {results[code].message}")
        if reason is not None:
            print(f"  {'':<10} expected: {reason}")
    for of_minor, code in sorted(expected):
        if of_minor == minor and code in results and results[code].outcome in ("PASS", "WARNING"):
            print(f"  {code:<10} passed, although {EXPECTED.name} lists it")
    return [code for code in failed if (minor, code) not in expected]


def run(suite: Suite, kind: str, minor: int, tests: Sequence[str]) -> dict[str, Result]:
    """Run the suite on a fresh server. Raises RuntimeError if the run does not end."""
    output = BUILD / "results" / f"{kind}-4.{minor}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=BUILD) as directory:
        log = output.with_suffix(".ganesha.log")
        with Server(kind, Path(directory), log) as server:
            return suite.run(server, minor, tests, output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.pynfs")
    parser.add_argument("checkout", type=Path, help="of pynfs")
    parser.add_argument(
        "--server", choices=KINDS, default="spillway", help="vfs needs the package nfs-ganesha-vfs"
    )
    parser.add_argument("--minor", type=int, nargs="+", choices=(0, 1), default=[0, 1])
    parser.add_argument("--tests", nargs="+", metavar="TEST", help="codes and groups of pynfs")
    args = parser.parse_args(arguments)
    release = ganesha_conf.ganesha_release(NfsSettings().ganesha)
    expected = read_expected(EXPECTED.read_text(), release) if args.server == "spillway" else {}
    unexpected: list[str] = []
    try:
        suite = Suite(args.checkout, BUILD)
        for minor in args.minor:
            tests = args.tests or [*TESTS, *TOO_LARGE[minor]]
            results = run(suite, args.server, minor, tests)
            unexpected += [f"4.{minor} {code}" for code in report(minor, results, expected)]
    except (RuntimeError, AssertionError) as exc:
        print(exc, file=sys.stderr)
        return 2
    if args.server == "spillway" and unexpected:
        print(f"unexpected failures: {', '.join(unexpected)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
