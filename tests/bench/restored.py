"""Measures the copy of the names: ``python -m tests.bench.restored DIRECTORY --files N``.

A gateway with so many drained files copies its names into an S3 server of this machine: a base,
while names are made beside it, and its log. Then the gateway is gone, and another one is
restored. It prints rates, the memory of each process, and the longest change of a name.

With ``--start`` only the start of an NFS server of so many files is measured. With ``--drill`` the
bucket has no objects of files, and the names are restored by a drill. A server that lists a bucket
as slowly as rclone's, which reads all of it for each page, then bounds nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.models import ROOT_INO
from gateway.objectstore.request import Conditions
from gateway.service import reports
from tests.bench import manyfiles
from tests.support.clisite import PROGRAM
from tests.support.namespace import Namespace
from tests.support.nfsserver import Server
from tests.support.owner import own
from tests.support.processes import process
from tests.support.s3server import RcloneServer, credentials
from tests.support.volumes import make_volume, write_settings
from tests.support.waiting import until

BUCKET = "bench"
FILES_IN_STEP = 100
DEADLINE_SECONDS = 7200.0
PAUSE_SECONDS = 0.02
MIB = 1 << 20


def gateway_at(directory: Path, s3: RcloneServer) -> Settings:
    """Make the configuration of a gateway."""
    bucket = {"name": BUCKET, "endpoint_url": s3.url, "checksum": "md5"}
    settings = write_settings(directory, {"bucket": bucket})
    for made in (settings.run_dir, settings.log_dir):
        made.mkdir(parents=True, exist_ok=True)
    settings.credentials_file.touch(0o600)
    settings.credentials_file.write_text(credentials())
    return settings


def store(settings: Settings, bucket: Path) -> None:
    """Put the objects of all rows into the directory of a bucket. They are empty, as the files."""
    with closing(sqlite3.connect(settings.data_dir / "namespace.db")) as database, database:
        database.execute("UPDATE object SET etag = ?", (hashlib.md5(b"").hexdigest(),))
        made = set()
        for (key,) in database.execute("SELECT key FROM object ORDER BY key"):
            path = bucket / key
            if path.parent not in made:
                path.parent.mkdir(parents=True)
                made.add(path.parent)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def longest_ms(ns: Namespace, seconds: float) -> float:
    """Make names for so long, one at a time. Returns the longest time that one took."""
    parent = ns.mkdir(ROOT_CRED, ROOT_INO, b"beside-%d" % time.monotonic_ns(), SetAttr()).ino
    longest, number, end = 0.0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        started = time.perf_counter()
        ns.create(ROOT_CRED, parent, b"f%d" % number, SetAttr(mode=0o644), for_writing=False)
        longest = max(longest, time.perf_counter() - started)
        number += 1
        time.sleep(PAUSE_SECONDS)
    return longest * 1000


@contextmanager
def copying(settings: Settings, output: Path) -> Iterator[int]:
    """Run the process that copies the names. Yields its pid."""
    with process("recovery", settings, output) as started:
        yield started.pid


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kib) / 1024


def measure(directory: Path, files: int, is_drill: bool) -> None:
    """Print the figures for a namespace of so many files."""
    with RcloneServer(directory / "s3") as s3:
        s3.client().create_bucket(Bucket=BUCKET)
        settings = gateway_at(directory / "lost", s3)
        make_volume(settings)
        _fill(settings.data_dir / "namespace.db", files)
        if not is_drill:
            store(settings, directory / "s3" / BUCKET)
        own(settings, Conditions.NONE)
        ns = Namespace(settings)
        print(f"longest create, nothing beside it: {longest_ms(ns, 10):.1f} ms", flush=True)
        with copying(settings, directory / "recovery.log") as pid:
            started = time.monotonic()
            longest = 0.0
            while reports.of_names(settings).base_ns is None:
                longest = max(longest, longest_ms(ns, 2))
                if time.monotonic() - started > DEADLINE_SECONDS:
                    raise TimeoutError("no base")
            seconds = time.monotonic() - started
            print(f"base: {files / seconds:,.0f} files/s, {seconds:.0f} s, {peak_mib(pid):.0f} MiB")
            print(f"longest create beside it: {longest:.1f} ms", flush=True)
            until(lambda: reports.of_names(settings).waiting == 0, "the log", 60.0)
            if is_drill:
                drill(settings, files)
        ns.close()
        if is_drill:
            return
        restored = gateway_at(directory / "restored", s3)
        command: list[str | Path] = [PROGRAM, "restore", "--is-gone"]
        started = time.monotonic()
        subprocess.run(
            [*command, "--config", restored.source], check=False, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - started
        most_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"restore: {files / seconds:,.0f} files/s, {seconds:.0f} s, {most_mib:.0f} MiB")


def drill(settings: Settings, files: int) -> None:
    """Restore the names beside the gateway, and print how long that took."""
    command: list[str | Path] = [PROGRAM, "restore", "--drill", "--json"]
    ended = subprocess.run(
        [*command, "--config", str(settings.source)], check=False, stdout=subprocess.PIPE
    )
    most_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    report = json.loads(ended.stdout)
    # No object of a file is there, which the drill says of the few at which it looks.
    print("; ".join(report["problems"]))
    seconds = report["restore_seconds"]
    print(f"names restored: {files / seconds:,.0f} files/s, {seconds:.0f} s, {most_mib:.0f} MiB")
    print(f"compared with the living ones in {report['compare_seconds']:.0f} s")


def start(directory: Path, files: int) -> None:
    """Print how long a server of so many files takes until it serves."""
    server = Server("spillway", directory, directory / "ganesha.log")
    _fill(directory / "data" / "namespace.db", files)
    started = time.monotonic()
    with server:
        seconds = time.monotonic() - started
        print(f"start of the NFS server: {seconds:.1f} s")


def _fill(database: Path, files: int) -> None:
    runs = max(1, files // manyfiles.RUNS // FILES_IN_STEP)
    manyfiles.fill(database, runs, FILES_IN_STEP)


def main() -> int:
    """Run it. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.restored", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--drill", action="store_true")
    parser.add_argument("--start", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory.resolve()) as directory:
        if args.start:
            start(Path(directory), args.files)
        else:
            measure(Path(directory), args.files, args.drill)
    return 0


if __name__ == "__main__":
    sys.exit(main())
