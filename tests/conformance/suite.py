"""Prepares the pynfs suite from a checkout, runs it against a server, and reads its report."""

from __future__ import annotations

import hashlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.nfsserver import EXPORT, Server
from tests.support.s3server import die_with_parent

PACKAGES = ("ply==3.11", "xdrlib3==0.1.1")
"""What pynfs needs besides Python, as long as no test uses Kerberos. Python has had no xdrlib since
3.13."""
XDR_DIRECTORIES = ("rpc", "nfs4.1/xdrdef", "nfs4.0/lib/rpc", "nfs4.0/lib/rpc/rpcsec")
FOLDERS = {0: "nfs4.0", 1: "nfs4.1"}
STALL_SECONDS = 900.0
"""The limit without output. The longest tests wait for answers, each for up to 300 s."""

_RULE = "*" * 50 + "\n"
_OUTCOME = re.compile(
    r"^(\S+)\s+\S+\s+: (PASS|FAILURE|WARNING|UNSUPPORTED|OMIT|NOT RUN|RUNNING|WAITING TO RUN)$"
)


@dataclass(frozen=True)
class Result:
    """The result that pynfs reports for one test."""

    outcome: str
    """The outcome: PASS, WARNING (a pass), UNSUPPORTED, OMIT (a dependency failed) or FAILURE."""
    message: str

    @property
    def failed(self) -> bool:
        return self.outcome not in ("PASS", "WARNING", "UNSUPPORTED", "OMIT")


class Suite:
    """A built copy of a pynfs checkout.

    Raises RuntimeError if checkout is no checkout of pynfs, or a step of the preparation fails.

    Args:
        checkout: checkout of pynfs, which is not changed.
        build: the directory for the copy and its virtual environment, both kept for the next run.
    """

    def __init__(self, checkout: Path, build: Path) -> None:
        if not (checkout / "nfs4.0" / "testserver.py").is_file():
            raise RuntimeError(f"{checkout} is not a checkout of pynfs")
        self._python = build / "venv" / "bin" / "python"
        self._copy = build / "pynfs"
        build.mkdir(parents=True, exist_ok=True)
        stamp = build / "built"
        wanted = _fingerprint(checkout)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        stamp.unlink(missing_ok=True)
        for old in (self._copy, build / "venv"):
            if old.exists():
                shutil.rmtree(old)
        _run("/usr/bin/python3", "-m", "venv", build / "venv")
        pip = (self._python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        _run(*pip, *PACKAGES)
        shutil.copytree(checkout, self._copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        generator = self._copy / "xdr" / "xdrgen.py"
        for folder in XDR_DIRECTORIES:
            for source in sorted((self._copy / folder).glob("*.x")):
                _run(self._python, generator, source.name, cwd=source.parent)
        stamp.write_text(wanted)

    def run(
        self, server: Server, minor: int, tests: Iterable[str], output: Path
    ) -> dict[str, Result]:
        """Run tests against a running server, and restart it with kill -9 when a test asks for it.

        Returns the results by code. Raises RuntimeError if the suite crashes or stalls, or if the
        server dies.

        Args:
            minor: 0 or 1.
            tests: flags and codes of pynfs.
            output: a file for the output of pynfs.
        """
        folder = self._copy / FOLDERS[minor]
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        try:
            with output.open("wb") as out:
                suite = subprocess.Popen(
                    [
                        *(self._python, "-u", "-W", "ignore", "testserver.py"),
                        f"127.0.0.1:{server.port}{EXPORT}",
                        *("--maketree", "--rundeps", "--showomit", "--verbose"),
                        *("--uid", "0", "--gid", "0", "--minorversion", str(minor)),
                        *("--json", output.with_suffix(".json").absolute()),
                        *("--serverhelper", _helper(ask, answered)),
                        *tests,
                    ],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=(ask, answered),
                    # The processes that pynfs starts must end with it, so it leads a group.
                    process_group=0,
                    preexec_fn=die_with_parent,
                )
            try:
                _attend(suite, server, output, asked, answer)
            finally:
                if suite.poll() is None:
                    os.killpg(suite.pid, signal.SIGKILL)
                    suite.wait()
        finally:
            for descriptor in (asked, ask, answered, answer):
                os.close(descriptor)
        return read_report(output.read_text(errors="replace"))


def read_report(text: str) -> dict[str, Result]:
    """Return results by code from the output of pynfs. Raises RuntimeError without a report."""
    blocks = text.split(_RULE)
    if len(blocks) < 3:
        raise RuntimeError(f"pynfs came to no end:\n{text[-4000:]}")
    report: dict[str, Result] = {}
    code = ""
    for line in blocks[-2].splitlines():
        if match := _OUTCOME.match(line):
            code = match[1]
            report[code] = Result(match[2], "")
        elif code:
            before = report[code]
            report[code] = Result(before.outcome, f"{before.message} {line.strip()}".strip())
    return report


def _attend(
    suite: subprocess.Popen[bytes], server: Server, output: Path, asked: int, answer: int
) -> None:
    """Wait for the suite's end, and restart the server whenever the suite asks for it."""
    size_bytes, changed = 0, time.monotonic()
    while suite.poll() is None:
        if select.select([asked], [], [], 0.2)[0]:
            os.read(asked, 4096)
            server.crash()
            os.write(answer, b"\n")
        server.require_alive()
        if (now_bytes := output.stat().st_size) != size_bytes:
            size_bytes, changed = now_bytes, time.monotonic()
        elif time.monotonic() - changed > STALL_SECONDS:
            raise RuntimeError(f"pynfs has been silent for {STALL_SECONDS:g} s: read {output}")


def _helper(ask: int, answered: int) -> str:
    """Return the start of a shell command that asks for a restart and waits for it.

    pynfs appends the reason to the command.
    """
    return f"echo > /dev/fd/{ask}; read -r done < /dev/fd/{answered}; :"


def _fingerprint(checkout: Path) -> str:
    digest = hashlib.sha256(" ".join(PACKAGES).encode())
    for path in sorted(checkout.rglob("*")):
        if path.suffix in (".py", ".x") and path.is_file():
            digest.update(str(path.relative_to(checkout)).encode() + path.read_bytes())
    return digest.hexdigest()


def _run(*argv: str | Path, cwd: Path | None = None) -> None:
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")[-4000:]
        raise RuntimeError(f"{shlex.join(words)} failed:\n{said}")
