"""POSIX conformance: pjdfstest on a mount of our gateway in the kernel's NFS client.

``python -m tests.conformance.posix CHECKOUT [--server spillway|vfs] [--minor 0|1] [--only DIR …]``

CHECKOUT is one of pjdfstest; ``vfs`` is the same Ganesha on a local ext4, as the reference. Prints
a table and the failures; exits with 1 when our gateway fails a test that ``posix-expected.txt``
does not list, with 2 when a run did not come to its end. Takes a quarter of an hour: the client is
an emulated machine. Needs root, autoconf and automake. What the tests and the server said is kept
in ``build/pjdfstest/results``.

The client's kernel judges some calls itself, sticky directories among them, and takes an open
file's unlink for a rename: what this suite cannot see is for pynfs and the namespace's own tests.
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

from tests.conformance.server import EXPORT, KINDS, Server
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
"""Puts the suite into the client's memory, and a shell with all its tools built in: the tests start
a hundred thousand processes, each of which would wait for the host's file system and be linked.
Only ``openssl md5``, the source of names, is in no busybox. Of the type ext4 a rename is required
to move ctime, too; nothing else depends on it."""
JOBS = 2
"""Test files at a time: the client's processors."""
FILE_SECONDS = 900.0
"""The longest test file, rename/09.t, has 2353 tests."""

_RANGE = r"\d+(?:-\d+)?"
_PLAN = re.compile(r"^1\.\.(\d+)$")
_TEST = re.compile(r"^(not )?ok (\d+)(?: - | )?(.*)$")


@dataclass(frozen=True)
class Report:
    """What one test file said."""

    planned: int
    """How many tests it has by its own plan; 0 when it gave none."""
    failed: Mapping[int, str]
    """Messages by number of those that failed, and of those that it did not come to."""
    skipped: bool
    """It found that the system cannot do what it tests."""
    seconds: float


def read_tap(text: str, seconds: float) -> Report:
    """Read a test file's output. A file without a plan has one failure, of test 0."""
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

    Parameters: checkout, left as it is; build, the directory for copies, each kept for the next
    time under a name of its contents. Raises RuntimeError when it is no checkout, or a step fails.
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
            # The tests start it ten thousand times, and an emulated machine is slow to link.
            _run("./configure", "LDFLAGS=-static", cwd=copy)
            _run("make", "-s", "pjdfstest", cwd=copy)
            copy.rename(self._copy)

    def install(self, vm: ClientVm) -> None:
        """Make a client ready to run the tests. Raises ClientError."""
        vm.run(["/bin/sh", "-c", INSTALL, "sh", str(self._copy.absolute())])

    def files(self, only: Sequence[str]) -> list[str]:
        """Test files as DIR/NAME.t; only: these or of these directories, all when empty.

        Raises RuntimeError when there is no such file or directory.
        """
        tests = self._copy / "tests"
        found = sorted(str(path.relative_to(tests)) for path in tests.glob("*/*.t"))
        unknown = {*only} - {*found} - {name.split("/")[0] for name in found}
        if unknown:
            raise RuntimeError(f"pjdfstest has no {', '.join(sorted(unknown))}")
        return [name for name in found if not only or {name, name.split("/")[0]} & {*only}]


def run(suite: Suite, kind: str, minor: int, names: Sequence[str]) -> Iterator[tuple[str, Report]]:
    """Run test files against a fresh server in a fresh client; yields reports in their order.

    Raises RuntimeError when the server or the client died.
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
            # Files that are under way would wait out their limit.
            pool.shutdown(wait=False, cancel_futures=True)
            vm.kill()
            raise


def _run_file(vm: ClientVm, name: str) -> Completed:
    """Run a test file in a directory of its own below the mount; failures are in its output."""
    shell = f"{GUEST}/bin/busybox sh {GUEST}/tests/{name}"
    return vm.run(
        f"at=$(mktemp -d -p {MOUNT}) && chmod 755 $at && cd $at && exec {shell}",
        timeout_seconds=FILE_SECONDS,
        env={"PATH": f"{GUEST}/bin:/usr/bin:/bin"},
        check=False,
    )


def read_expected(text: str) -> dict[tuple[str, int | None], str]:
    """Reasons by file and number (None: all), of lines ``DIR/NAME.t[:NUMBERS] reason``.

    NUMBERS are as in ``1,4-7``. Raises ValueError.
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
    """Ascending numbers as ``1,4-7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def print_table(reports: Mapping[str, Report]) -> None:
    """Print counts by directory, and in all."""
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
    """Print the failures that are not expected, and what is expected and passed.

    Returns the former: numbers by file.
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
    """Returns the exit code."""
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
    """Run a step of the build. Raises RuntimeError with what it said."""
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
