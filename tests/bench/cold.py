"""Compares cold reads through NFS with ``rclone copy`` and boto3's download of the same objects.

All of them read from the same server (``rclone serve s3``), in turn. Before each run of ours the
files are evicted. The peers write local files, which ours does too: the hydrator's data files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from boto3.s3.transfer import TransferConfig

from tests.bench import drain, load
from tests.bench.experiments import Experiment
from tests.bench.load import MIB
from tests.bench.rows import Measured, Row, Target
from tests.support.gateway import BUCKET, Gateway, Values
from tests.support.nfs4 import Client
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.waiting import until

CONNECTIONS = 8
READERS = 16
BLOCK_BYTES = 4 * MIB
ONE_FILE_MIB = 256


class Files(NamedTuple):
    """Files of one size, each read over a connection of its own."""

    number: int
    mib: int

    @property
    def name(self) -> str:
        return f"{self.number} x {self.mib} MiB"

    @property
    def directory(self) -> str:
        return f"cold{self.number}x{self.mib}"


LOADS = (Files(8, 64), Files(1, 1024))


class Site:
    """A gateway whose files are all in the bucket.

    Args:
        directory: to be made.
        stack: ends it.
        through_proxy: whether the gateway reaches its bucket through ``proxy``, which can hold
            requests.
        values: more settings.
    """

    def __init__(
        self,
        directory: Path,
        stack: ExitStack,
        through_proxy: bool = False,
        values: Values | None = None,
    ) -> None:
        self.server = stack.enter_context(RcloneServer(directory / "s3"))
        self.proxy = stack.enter_context(S3Proxy(self.server.port))
        self.gateway = Gateway(
            directory / "gateway",
            self.server,
            proxy=self.proxy if through_proxy else None,
            # Restarts read whole directories, which would make the second run of a pair warm.
            values={"cache": {"read_ahead": False}, **(values or {})},
        )
        self.scratch = directory / "scratch"
        self._conf = directory / "rclone.conf"
        self._conf.write_text(
            f"[from]\ntype = s3\nprovider = Other\nendpoint = {self.server.url}\n"
            f"access_key_id = {ACCESS_KEY}\nsecret_access_key = {SECRET_KEY}\n"
        )
        stack.enter_context(self.gateway)
        self._export = self.gateway.settings.nfs.export

    def make(self, files: Files) -> None:
        """Write files and drain them."""
        self._nfs("write", files)
        self.gateway.until_drained(300.0)

    def read(self, files: Files) -> load.Load:
        """Read files through NFS, each over a connection of its own."""
        return self._nfs("read", files)

    def run(self, work: str, *options: object) -> load.Load:
        """Run a workload of nfsload."""
        return load.nfs(self.gateway.port, work, *options, export=self._export)

    def _nfs(self, work: str, files: Files) -> load.Load:
        options = ("--dir", files.directory, "--file", files.mib * MIB, "--depth", 8)
        return self.run(work, *options, "--connections", files.number)

    def cold(self, files: Files, _number: int) -> list[float]:
        """Read evicted files through NFS. Returns MiB/s and processor seconds per GiB."""
        self.gateway.evict(files.directory)
        before = self._own_seconds()
        rate = self.read(files).mib_per_second
        used = self._own_seconds() - before
        return [rate, used / (files.number * files.mib / 1024)]

    def warm(self, files: Files, _number: int) -> list[float]:
        """Read the same files when they are on the disk."""
        return [self.read(files).mib_per_second]

    def _own_seconds(self) -> float:
        return sum(drain.family_seconds(self.gateway.pid(name)) for name in ("ganesha", "cache"))

    def rclone(self, files: Files, _number: int) -> list[float]:
        """Copy the objects to local files."""
        command = [
            *(str(Path(sys.executable).with_name("rclone")), "--config", str(self._conf), "copy"),
            *("--transfers", str(CONNECTIONS), "--multi-thread-streams", "8"),
            *(f"from:{BUCKET}/{files.directory}", str(self.scratch)),
        ]
        before = drain.children_seconds()
        started = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - started
        shutil.rmtree(self.scratch)
        amount = files.number * files.mib
        return [amount / seconds, (drain.children_seconds() - before) / (amount / 1024)]

    def boto(self, files: Files, _number: int) -> list[float]:
        """Download the objects to local files with boto3."""
        client = self.server.client()
        self.scratch.mkdir()
        listed = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{files.directory}/")["Contents"]
        how = TransferConfig(max_concurrency=CONNECTIONS)
        started = time.perf_counter()
        threads = [
            threading.Thread(
                target=client.download_file,
                args=(
                    BUCKET,
                    listed_object["Key"],
                    str(self.scratch / Path(listed_object["Key"]).name),
                ),
                kwargs={"Config": how},
            )
            for listed_object in listed
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        shutil.rmtree(self.scratch)
        return [files.number * files.mib / seconds]

    def first_byte(self, files: Files, _number: int) -> list[float]:
        """Read one byte of each evicted file. Returns the median, in milliseconds."""
        self.gateway.evict(files.directory)
        data = []
        for name in self._names(files):
            data.append(self._first_byte(files, name))
            # The rest of the file must not be fetched beside the next request.
            path = f"{files.directory}/{name}"
            self.gateway.spillway("warm", "--wait", path, timeout_seconds=300.0)
        return [median(data)]

    def first_bytes(self, files: Files) -> list[float]:
        """Read one byte of each file, of one block. Returns milliseconds, for each file."""
        return [self._first_byte(files, name) for name in self._names(files)]

    def _first_byte(self, files: Files, name: str) -> float:
        with Client(self.gateway.port) as client:
            handle = client.handle(self._export.strip("/"), files.directory, name)
            started = time.perf_counter()
            client.read(handle, 0, 1)
            return (time.perf_counter() - started) * 1e3

    def one_get(self, files: Files, _number: int) -> list[float]:
        """GET the first block of each object. Returns the median, in milliseconds."""
        client = self.server.client()
        client.head_bucket(Bucket=BUCKET)  # connects
        block = f"bytes=0-{BLOCK_BYTES - 1}"
        data = []
        for name in self._names(files):
            key = f"{files.directory}/{name}"
            started = time.perf_counter()
            client.get_object(Bucket=BUCKET, Key=key, Range=block)["Body"].read()
            data.append((time.perf_counter() - started) * 1e3)
        return [median(data)]

    def _names(self, files: Files) -> list[str]:
        stored = self.server.directory / BUCKET / files.directory
        return sorted(path.name for path in stored.iterdir())

    def fetched(self, files: Files, _number: int) -> list[float]:
        """Have many clients read one evicted file at once. Returns fetched bytes per byte."""
        self.gateway.evict(files.directory)
        before = self._counters()
        name = self._names(files)[0]
        threads = [threading.Thread(target=self._read, args=(files, name)) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # A file arrives once it is whole, so that nothing of it is fetched later.
        after = until(
            lambda: self._arrived_since(before["files_arrived"]), "the arrival of the file"
        )
        return [(after["fetched_bytes"] - before["fetched_bytes"]) / (files.mib * MIB)]

    def _read(self, files: Files, name: str) -> None:
        with Client(self.gateway.port) as client:
            handle = client.handle(self._export.strip("/"), files.directory, name)
            for offset in range(0, files.mib * MIB, MIB):
                client.read(handle, offset, MIB)

    def _arrived_since(self, files: int) -> dict[str, int] | None:
        counters = self._counters()
        return counters if counters["files_arrived"] > files else None

    def _counters(self) -> dict[str, int]:
        report = json.loads((self.gateway.data_dir / "run" / "cache.json").read_text())
        counters: dict[str, int] = report["counters"]
        return counters


def measure(directory: Path, pairs: int) -> Iterator[list[Measured]]:
    """Measure.

    Args:
        directory: on the disk to measure.
    """
    scratch = Path(tempfile.mkdtemp(dir=directory))
    try:
        with ExitStack() as stack:
            site = Site(scratch, stack)
            for files in LOADS:
                site.make(files)
                for experiment in _experiments(site, files):
                    yield experiment.run(pairs)
            one = Files(1, ONE_FILE_MIB)
            shared = Row(f"bytes fetched by {READERS} readers of {one.name}", "evicted", "", "")
            site.make(one)
            values = tuple(site.fetched(one, number)[0] for number in range(pairs))
            row = Row(shared.work, shared.setting, "its size", "x", Target(1.05, True), "ours")
            yield [Measured(row, values, tuple(1.0 for _ in values))]
    finally:
        shutil.rmtree(scratch)


def _experiments(site: Site, files: Files) -> Iterator[Experiment]:
    setting = f"evicted, {files.number} connection{'s' if files.number > 1 else ''} x 8"
    work = f"cold read of {files.name}"
    cost = Row(f"{work}: processors", setting, drain.PEER, "s/GiB")
    yield Experiment(
        (Row(work, setting, drain.PEER, "MiB/s", Target(1.0)), cost),
        partial(site.cold, files),
        partial(site.rclone, files),
    )
    yield Experiment(
        (Row(work, setting, "boto3 download", "MiB/s", Target(1.0)),),
        lambda number: site.cold(files, number)[:1],
        partial(site.boto, files),
    )
    first = Row(
        f"first byte of {files.name}", "evicted", "a GET of a block", "ms", Target(1.5, True)
    )
    yield Experiment((first,), partial(site.first_byte, files), partial(site.one_get, files))
