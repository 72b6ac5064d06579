"""POSIX conformance: pjdfstest on a mount of our gateway in the kernel's NFS client.

``python -m tests.conformance.posix CHECKOUT [--server spillway|vfs] [--minor 0|1] [--only DIR …]``

CHECKOUT is a checkout of pjdfstest; ``vfs`` is the same Ganesha on a local ext4, as the reference.
Prints a table and the failures. The exit status is 1 if our gateway fails a test that
``posix-expected.txt`` does not list, and 2 if a run did not end. A run takes a quarter of an hour,
because the client is an emulated machine. It needs root, autoconf and automake. The output of the
tests and of the server is kept in ``build/pjdfstest/results``.

The client's kernel decides some calls itself, for example in sticky directories, and makes a rename
of the unlink of an open file. pynfs and the tests of the namespace cover what this suite misses.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support.nfsserver import EXPORT, KINDS, Server
from tests.support.vm.build import BuildError, build_image
from tests.support.vm.client import ClientVm, Completed

BUILD = Path(__file__).parents[2] / "build" / "pjdfstest"
VM = BUILD.with_name("vm")
EXPECTED = Path(__file__).with_name("posix-expected.txt")
MOUNT = "/mnt/posix"
GUEST = "/dev/shm/pjdfstest"
INSTALL = f"""
mkdir -p {GUEST}/bin && cp -r "$1/tests" "$1/pjdfstest" {GUEST} || exit
cp "$(command -v busybox)" {GUEST}/bin/busybox || exit
printf '#!{GUEST}/bin/busybox sh\\nmd5sum | cut -c -32\\n' > {GUEST}/bin/openssl &&
chmod 755 {GUEST}/bin/openssl && echo fs=EXT4 >> {GUEST}/tests/conf
"""
"""Copies the suite into the client's memory, with a shell that has all its tools built in. The
tests start a hundred thousand processes. Without this, each of them would wait for the host's file
system and for the dynamic linker. busybox lacks only ``openssl md5``, the source of names. With the
type ext4 the suite also requires that a rename changes ctime; nothing else depends on the type."""
JOBS = 2
"""The number of test files that run at a time: one for each processor of the client."""
FILE_SECONDS = 900.0
"""The limit for one test file; the longest, rename/09.t, has 2353 tests."""

_RANGE = r"\d+(?:-\d+)?"
_PLAN = re.compile(r"^1\.\.(\d+)$")
_TEST = re.compile(r"^(not )?ok (\d+)(?: - | )?(.*)$")


@dataclass(frozen=True)
class Report:
    """The result of one test file."""

    planned: int
    """The number of tests in the file's plan, or 0 without a plan."""
    failed: Mapping[int, str]
    """Messages by number, of the tests that failed and of those that did not run."""
    skipped: bool
    """Whether the file found that the system lacks the tested feature."""
    seconds: float


def read_tap(text: str, seconds: float) -> Report:
    """Read a test file's output. A file without a plan gets a failure of test 0."""
    planned = 0
    failed: dict[int, str] = {}
    seen: set[int] = set()
    for line in text.splitlines():
        if match := _PLAN.match(line):
            planned = int(match[1])
        elif match := _TEST.match(line):
            number = int(match[2])
            seen.add(number)
            if match[1] and "# TODO" not in match[3]:
                failed[number] = match[3]
    if not planned:
        failed[0] = f"no plan: {text[-200:]!r}"
    for number in {*range(1, planned + 1)} ^ seen:
        failed.setdefault(number, "did not run" if number <= planned else "not in the plan")
    return Report(planned, dict(sorted(failed.items())), (planned, len(seen)) == (1, 1), seconds)


class Suite:
    """A built copy of a pjdfstest checkout.

    Raises RuntimeError if checkout is no checkout of pjdfstest, or a step fails.

    Args:
        checkout: which is not changed.
        build: the directory for copies, each kept for the next run under the hash of its content.
    """

    def __init__(self, checkout: Path, build: Path) -> None:
        if not (checkout / "pjdfstest.c").is_file():
            raise RuntimeError(f"{checkout} is not a checkout of pjdfstest")
        self._copy = build / _fingerprint(checkout)
        if self._copy.exists():
            return
        build.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=build) as scratch:
            copy = Path(scratch) / "copy"
            shutil.copytree(checkout, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            _run("autoreconf", "-i", cwd=copy)
            # The tests start the program ten thousand times, and dynamic linking is slow in the
            # emulated machine.
            _run("./configure", "LDFLAGS=-static", cwd=copy)
            _run("make", "-s", "pjdfstest", cwd=copy)
            copy.rename(self._copy)

    def install(self, vm: ClientVm) -> None:
        """Prepare a client to run the tests. Raises ClientError."""
        vm.run(["/bin/sh", "-c", INSTALL, "sh", str(self._copy.absolute())])

    def files(self, only: Sequence[str]) -> list[str]:
        """Return test files as DIR/NAME.t.

        Args:
            only: files or directories to choose; empty for all.

        Raises:
            RuntimeError: one of them does not exist.
        """
        tests = self._copy / "tests"
        names = sorted(str(path.relative_to(tests)) for path in tests.glob("*/*.t"))
        unknown = {*only} - {*names} - {name.split("/")[0] for name in names}
        if unknown:
            raise RuntimeError(f"pjdfstest has no {', '.join(sorted(unknown))}")
        return [name for name in names if not only or {name, name.split("/")[0]} & {*only}]


def run(suite: Suite, kind: str, minor: int, names: Sequence[str]) -> Iterator[tuple[str, Report]]:
    """Run test files against a fresh server in a fresh client. Yields the reports in this order.

    Raises RuntimeError if the server or the client dies.
    """
    results = BUILD / "results" / f"{kind}-4.{minor}"
    results.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=BUILD) as directory,
        Server(kind, Path(directory), results / "ganesha.log") as server,
        ClientVm.boot(build_image(VM), console_log=results / "console.log") as vm,
        ThreadPoolExecutor(JOBS) as pool,
    ):
        suite.install(vm)
        vm.mount(server.port, export=EXPORT, target=MOUNT, version=f"4.{minor}")

        def run_file(name: str) -> Report:
            started = time.monotonic()
            done = _run_file(vm, name)
            server.require_alive()
            (results / f"{name.replace('/', '-')}ap").write_text(done.stdout + done.stderr)
            return read_tap(done.stdout, time.monotonic() - started)

        try:
            yield from zip(names, pool.map(run_file, names), strict=True)
        except BaseException:
            # Without the kill, test files that still run would wait until their limit.
            pool.shutdown(wait=False, cancel_futures=True)
            vm.kill()
            raise


def _run_file(vm: ClientVm, name: str) -> Completed:
    """Run a test file in a directory of its own below the mount. Its output has the failures."""
    shell = f"{GUEST}/bin/busybox sh {GUEST}/tests/{name}"
    return vm.run(
        f"at=$(mktemp -d -p {MOUNT}) && chmod 755 $at && cd $at && exec {shell}",
        timeout_seconds=FILE_SECONDS,
        env={"PATH": f"{GUEST}/bin:/usr/bin:/bin"},
        check=False,
    )


def read_expected(text: str) -> dict[tuple[str, int | None], str]:
    """Read lines ``DIR/NAME.t[:NUMBERS] reason``, with NUMBERS as in ``1,4-7``.

    Returns the reasons by file and number (None for all numbers). Raises ValueError.
    """
    found: dict[tuple[str, int | None], str] = {}
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where, _, reason = line.partition(" ")
        match = re.fullmatch(rf"(\w+/\w+\.t)(?::({_RANGE}(?:,{_RANGE})*))?", where)
        if match is None or not reason.strip():
            raise ValueError(f"line {at}: not 'DIR/NAME.t[:NUMBERS] reason': {line!r}")
        if match[2] is None:
            found[match[1], None] = reason.strip()
            continue
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                found[match[1], number] = reason.strip()
    return found


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in the form ``1,4-7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def print_table(reports: Mapping[str, Report]) -> None:
    """Print the counts of each directory, and their sums."""
    rows: dict[str, list[float]] = defaultdict(lambda: [0] * 6)
    for name, report in reports.items():
        failed = len(report.failed)
        counts = (1, report.skipped, report.planned, report.planned - failed, failed)
        for row in (rows[name.split("/")[0]], rows["~all"]):
            row[:] = [a + b for a, b in zip(row, (*counts, report.seconds), strict=True)]
    print(f"{'':<16}{'files':>7}{'skipped':>9}{'tests':>7}{'passed':>8}{'failed':>8}{'s':>7}")
    for name, (files, skipped, tests, passed, lost, seconds) in sorted(rows.items()):
        print(
            f"{name.strip('~'):<16}{files:>7.0f}{skipped:>9.0f}{tests:>7.0f}{passed:>8.0f}"
            f"{lost:>8.0f}{seconds:>7.0f}"
        )


def unexpected(
    reports: Mapping[str, Report], expected: Mapping[tuple[str, int | None], str]
) -> dict[str, list[int]]:
    """Print the failures that are not expected, and the expected ones that passed.

    Returns the unexpected failures: their numbers by file.
    """
    found: dict[str, list[int]] = {}
    for name, report in reports.items():
        numbers = [n for n in report.failed if not {(name, n), (name, None)} & expected.keys()]
        if numbers:
            found[name] = numbers
            print(f"{name}:{ranges(numbers)}")
            for number in numbers:
                print(f"  {number:>5} {report.failed[number]}")
        passed = [n for at, n in expected if at == name and n and n not in report.failed]
        if passed:
            print(f"{name}:{ranges(sorted(passed))} passed, although {EXPECTED.name} lists it")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.posix")
    parser.add_argument("checkout", type=Path, help="of pjdfstest")
    parser.add_argument(
        "--server", choices=KINDS, default="spillway", help="vfs needs the package nfs-ganesha-vfs"
    )
    parser.add_argument("--minor", type=int, choices=(0, 1), default=1, help="of NFSv4")
    parser.add_argument("--only", nargs="+", metavar="DIR", default=[], help="or DIR/NAME.t")
    args = parser.parse_args(arguments)
    expected = read_expected(EXPECTED.read_text()) if args.server == "spillway" else {}
    reports: dict[str, Report] = {}
    try:
        suite = Suite(args.checkout, BUILD)
        for name, report in run(suite, args.server, args.minor, suite.files(args.only)):
            reports[name] = report
            print(f"{name}: {report.planned} tests, {len(report.failed)} failed", flush=True)
    except (RuntimeError, AssertionError, BuildError) as exc:
        print(exc, file=sys.stderr)
        return 2
    print_table(reports)
    return 1 if unexpected(reports, expected) and args.server == "spillway" else 0


def _fingerprint(checkout: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(checkout.rglob("*")):
        relative = path.relative_to(checkout)
        if path.is_file() and ".git" not in relative.parts:
            digest.update(str(relative).encode() + b"\0" + path.read_bytes())
    return f"built-{digest.hexdigest()[:16]}"


def _run(*argv: str, cwd: Path) -> None:
    """Run a step of the build. Raises RuntimeError with its output."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError as exc:
        raise RuntimeError(f"{argv[0]} is not installed") from exc
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(argv)} failed:\n{done.stdout[-4000:]}")


if __name__ == "__main__":
    sys.exit(main())
