"""Compares the drain with ``rclone copy``.

Both send the same files to the same server (``rclone serve s3``) at equal concurrency, in turn. The
drain is a daemon: its clock runs from the moment the files are due until none is dirty; rclone's
from start to end. Memory is the largest sum of resident sets of a program and its children.

The cost of the checksums is measured over TLS, as a real store is reached: then no body is signed.
The store is the same server behind a proxy in this process, which verifies the newer checksums. The
proxy makes the store slow, so only the processors of the two programs are compared.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.db.models import ROOT_INO
from gateway.objectstore.checksums import ChecksumKind
from tests.bench.rows import Measured, Row, Target
from tests.support.certificates import certify
from tests.support.namespace import Namespace
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer, credentials
from tests.support.verifier import Verifier
from tests.support.volumes import make_volume, query, write_settings
from tests.support.waiting import until

MIB = 1024 * 1024
BUCKET = "bench"
PEER = "rclone copy"
WORKERS = 4
PARTS = 4
PART_BYTES = 16 * MIB
PER_DIRECTORY = 500
NEVER_NS = 1 << 62
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Load(NamedTuple):
    """Files of one size."""

    name: str
    files: int
    size: int

    @property
    def is_large(self) -> bool:
        """Whether the bytes take the time, and not the number of files."""
        return self.size >= MIB


LOADS = (Load("16 x 64 MiB", 16, 64 * MIB), Load("10,000 x 4 KiB", 10_000, 4096))


class Run(NamedTuple):
    """One measurement."""

    seconds: float
    peak_bytes: int
    store_seconds: float
    """Processor time of the server that took the files."""
    own_seconds: float
    """Processor time of the program that sent them, and its children."""


class Bench:
    """A gateway with files that are not due, a tree of the same files, and an S3 server.

    Args:
        proxy: proxy in front of the server, if any.
        bucket: more keys of the section [bucket].
    """

    def __init__(
        self, directory: Path, load: Load, proxy: S3Proxy | None = None, **bucket: Any
    ) -> None:
        self.load = load
        self.tree = directory / "tree"
        self._log = directory / "drain.log"
        self.server = RcloneServer(directory / "s3")
        url = self.server.url
        if proxy is not None:
            proxy.upstream_port, url = self.server.port, proxy.url
        values: dict[str, dict[str, Any]] = {
            "bucket": {"name": BUCKET, "endpoint_url": url, **bucket},
            "drain": {
                "workers": WORKERS,
                "part_bytes": PART_BYTES,
                "poll_seconds": 0.1,
            },
        }
        self.settings = write_settings(directory / "data", values)
        make_volume(self.settings)
        self.settings.credentials_file.touch(0o600)
        self.settings.credentials_file.write_text(credentials())
        self._rclone_conf = directory / "rclone.conf"
        self._rclone_conf.write_text(
            f"[to]\ntype = s3\nprovider = Other\nendpoint = {url}\n"
            f"access_key_id = {ACCESS_KEY}\nsecret_access_key = {SECRET_KEY}\n"
        )
        self._fill()

    def _fill(self) -> None:
        namespace = Namespace(self.settings)
        parent = ROOT_INO
        for number in range(self.load.files):
            if number % PER_DIRECTORY == 0:
                name = f"d{number}"
                attr = namespace.mkdir(ROOT_CRED, ROOT_INO, name.encode(), SetAttr(mode=0o755))
                parent = attr.ino
                (self.tree / name).mkdir(parents=True)
            made = namespace.create(ROOT_CRED, parent, f"f{number}".encode(), SetAttr(mode=0o644))
            path = namespace.files.path(made.ino, made.epoch)
            path.write_bytes(os.urandom(self.load.size))
            (self.tree / name / f"f{number}").hardlink_to(path)
            size = self.load.size
            namespace.seal(made.ino, Sealed(size, size, time.time_ns(), 1))
        namespace.close()

    def drain(self, number: int) -> Run:
        """Drain all files below a fresh prefix."""
        query(self.settings, "DELETE FROM object")
        # Otherwise the drain would refuse the fresh prefix.
        query(self.settings, "UPDATE volume SET bucket = NULL, prefix = NULL")
        query(
            self.settings,
            "UPDATE inode SET drained_version = 0, drain_after_ns = :never WHERE kind = 1",
            never=NEVER_NS,
        )
        command = [
            sys.executable,
            "-m",
            "gateway.processes.drain",
            "--config",
            str(self.settings.source),
        ]
        environment = {**os.environ, "SPILLWAY_BUCKET_PREFIX": f"drain-{number}"}
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            report = self.settings.run_dir / "drain.json"
            until(
                lambda: (
                    report.exists()
                    and f'"pid": {process.pid}' in report.read_text()
                    and '"reachable"' in report.read_text()
                ),
                "the drain is ready",
            )
            peak = _Peak(process.pid)
            used_seconds = self.server.processor_seconds()
            own_seconds = family_seconds(process.pid)
            started = time.perf_counter()
            query(self.settings, "UPDATE inode SET drain_after_ns = 0 WHERE kind = 1")
            while query(self.settings, _ANY_DIRTY):
                time.sleep(0.02)
            seconds = time.perf_counter() - started
            own_seconds = family_seconds(process.pid) - own_seconds
            used_seconds = self.server.processor_seconds() - used_seconds
            return Run(seconds, peak.end(), used_seconds, own_seconds)
        finally:
            process.terminate()
            process.wait()

    def rclone(self, number: int) -> Run:
        """Copy all files to a fresh prefix."""
        command = [
            *(str(Path(sys.executable).with_name("rclone")), "--config", str(self._rclone_conf)),
            *("copy", "--transfers", str(WORKERS), "--s3-upload-concurrency", str(PARTS)),
            *(
                "--s3-chunk-size",
                str(PART_BYTES) + "B",
                "--s3-upload-cutoff",
                str(PART_BYTES) + "B",
            ),
            *(str(self.tree), f"to:{BUCKET}/rclone-{number}"),
        ]
        if self.settings.bucket.ca_bundle:
            command += ["--ca-cert", self.settings.bucket.ca_bundle]
        used_seconds = self.server.processor_seconds()
        own_seconds = children_seconds()
        started = time.perf_counter()
        process = subprocess.Popen(command)
        peak = _Peak(process.pid)
        if process.wait() != 0:
            raise RuntimeError("rclone copy failed")
        seconds = time.perf_counter() - started
        used_seconds = self.server.processor_seconds() - used_seconds
        return Run(seconds, peak.end(), used_seconds, children_seconds() - own_seconds)

    def forget(self, name: str) -> None:
        """Delete the objects of a run to free their space."""
        shutil.rmtree(self.server.directory / BUCKET / name)


_ANY_DIRTY = "SELECT 1 FROM inode WHERE kind = 1 AND content_version > drained_version LIMIT 1"


class _Peak:
    """Samples the memory of a process and its children: the largest sum of resident sets."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def end(self) -> int:
        self._end.set()
        self._thread.join()
        return self._most

    def _loop(self) -> None:
        while not self._end.wait(0.05):
            self._most = max(self._most, sum(_resident_bytes(pid) for pid in _family(self._pid)))


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += (task / "children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *{int(child) for child in children}]


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def family_seconds(pid: int) -> float:
    """Processor time of a process and its children, also of those that ended."""
    ticks = 0
    for one in _family(pid):
        stat = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, stat[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def children_seconds() -> float:
    """Processor time of all children of this process that ended and were waited for."""
    rusage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return rusage.ru_utime + rusage.ru_stime


def measure(directory: Path, pairs: int) -> Iterator[list[Measured]]:
    """Measure each load. Returns its rows: throughput, memory, and processor time of the store.

    Args:
        directory: on the disk to measure.
    """
    for load in LOADS:
        scratch = Path(tempfile.mkdtemp(dir=directory))
        try:
            yield _rows(load, *_alternate(Bench(scratch, load), pairs))
        finally:
            shutil.rmtree(scratch)
    for kind, target in (
        (ChecksumKind.MD5, None),
        (ChecksumKind.CRC64NVME, Target(2.0, at_most=True)),
    ):
        yield [_over_tls(directory, pairs, kind, target)]


def _over_tls(directory: Path, pairs: int, kind: ChecksumKind, target: Target | None) -> Measured:
    """Measure the processors of both programs with a store that verifies a checksum."""
    load = LOADS[0]
    scratch = Path(tempfile.mkdtemp(dir=directory))
    try:
        certify(scratch)
        with S3Proxy(0, certificate=scratch / "server") as proxy:
            proxy.verifier = Verifier()
            bench = Bench(
                scratch, load, proxy, ca_bundle=str(scratch / "ca.pem"), checksum=kind.value
            )
            runs = _alternate(bench, pairs)
    finally:
        shutil.rmtree(scratch)
    setting = f"over TLS, the store verifies {kind}"
    row = Row(f"processors for {load.name}", setting, PEER, "s/GiB", target, "ours")
    return _processors(row, load, *runs)


def _processors(row: Row, load: Load, ours: list[Run], theirs: list[Run]) -> Measured:
    amount = load.files * load.size / (1024 * MIB)
    return Measured(
        row, *(tuple(run.own_seconds / amount for run in side) for side in (ours, theirs))
    )


def _alternate(bench: Bench, pairs: int) -> tuple[list[Run], list[Run]]:
    ours: list[Run] = []
    theirs: list[Run] = []
    with bench.server:
        bench.server.client().create_bucket(Bucket=BUCKET)
        for number in range(pairs):
            ours.append(bench.drain(number))
            bench.forget(f"drain-{number}")
            theirs.append(bench.rclone(number))
            bench.forget(f"rclone-{number}")
    return ours, theirs


def _rows(load: Load, ours: list[Run], theirs: list[Run]) -> list[Measured]:
    amount, unit = (load.files * load.size / MIB, "MiB/s") if load.is_large else (load.files, "/s")
    setting = f"{WORKERS} files, {PARTS} parts at a time"
    speed = Row(f"upload of {load.name}", setting, PEER, unit, Target(1.0))
    memory = Row("memory meanwhile", setting, PEER, "MiB", Target(512, at_most=True), "ours")
    store = Row("the store's processors meanwhile", setting, PEER, "s")
    own = Row("its own processors meanwhile", setting, PEER, "s/GiB")
    runs = (ours, theirs)
    return [
        Measured(speed, *(tuple(amount / run.seconds for run in side) for side in runs)),
        Measured(memory, *(tuple(run.peak_bytes / MIB for run in side) for side in runs)),
        Measured(store, *(tuple(run.store_seconds for run in side) for side in runs)),
        _processors(own, load, ours, theirs),
    ]
