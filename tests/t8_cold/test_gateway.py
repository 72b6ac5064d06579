"""Many readers of evicted files of a whole gateway: damaged objects, and a bucket that hangs."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import nfs4
from tests.support.gateway import Gateway
from tests.support.s3proxy import Act, S3Proxy
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.waiting import until

MIB = 1024 * 1024
BUCKET = "checkpoints"
LOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"
READS = 10_000
READ_BYTES = 64 * 1024
SIZE = 9 * MIB
EACH = 2
"""The files of each kind of damage, and those without damage."""
READERS = 8
LEASE_SECONDS = 10
"""As tests/support/gateway.py sets it."""
CONNECTIONS, DEPTH = 10, 30
"""300 READs at the same time. The server parks 24 of one client address and delays the others."""


class Site(NamedTuple):
    """A gateway, and the bucket behind it."""

    gateway: Gateway
    server: RcloneServer
    proxy: S3Proxy

    def stored(self, path: str) -> Path:
        """Return where the S3 server keeps an object."""
        return self.server.directory / BUCKET / path


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        server = stack.enter_context(RcloneServer(tmp_path / "s3"))
        server.client().create_bucket(Bucket=BUCKET)
        proxy = stack.enter_context(S3Proxy(server.port))
        gateway = Gateway(
            tmp_path / "gateway",
            bucket=BUCKET,
            endpoint_url=proxy.url,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            say=print,  # shown by pytest when the test fails
        )
        yield Site(stack.enter_context(gateway), server, proxy)


def flip(path: Path) -> None:
    """Flip a byte. The time stays, of which rclone makes the ETag: only the digest can tell."""
    found = path.stat()
    data = bytearray(path.read_bytes())
    data[5 * MIB] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def truncate(path: Path) -> None:
    os.truncate(path, 5 * MIB)


def lengthen(path: Path) -> None:
    path.write_bytes(b"more" + path.read_bytes())


def overwrite(path: Path) -> None:
    path.write_bytes(os.urandom(SIZE))


def swap(path: Path) -> None:
    """Put the bytes of a good object there."""
    path.write_bytes(path.with_name("good-0").read_bytes())


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "truncated": truncate,
    "longer": lengthen,
    "overwritten": overwrite,
    "swapped": swap,
}


def make(site: Site, directory: str, names: list[str]) -> dict[str, bytes]:
    """Write files of random bytes and drain them. Returns their content by name."""
    site.gateway.spillway("mkdir", directory)
    written = {}
    with nfs4.Client(site.gateway.port) as client:
        at = client.handle("checkpoints", directory)
        for name in names:
            written[name] = os.urandom(SIZE)
            with client.opened(at, name) as file:
                for offset in range(0, SIZE, MIB):
                    file.write(written[name][offset : offset + MIB], offset)
    site.gateway.until_drained()
    return written


def read_at_random(
    site: Site, directory: str, written: dict[str, bytes], count: int
) -> Counter[str]:
    """Compare ranges of files with what was written. Returns the errors by name of the file."""
    errors: Counter[str] = Counter()
    with nfs4.Client(site.gateway.port) as client:
        at = {name: client.handle("checkpoints", directory, name) for name in written}
        for _ in range(count):
            name = random.choice(list(written))
            offset = random.randrange(SIZE - READ_BYTES)
            try:
                found = client.read(at[name], offset, READ_BYTES)
            except nfs4.Status as exc:
                assert exc.number == nfs4.IO, f"{name}: NFS4ERR {exc.number}"
                errors[name] += 1
            else:
                assert found == written[name][offset : offset + READ_BYTES], f"wrong bytes: {name}"
    return errors


def damaged_paths(site: Site) -> set[str]:
    """Return the damaged files that `spillway status` shows."""
    return {one["path"] for one in site.gateway.status()["cache"]["hydrator"]["damaged"]}


@pytest.mark.timeout(1800)
def test_no_reader_gets_a_wrong_byte_of_damaged_objects(site: Site) -> None:
    kinds = ("good", "deleted", *DAMAGES)
    names = [f"{kind}-{number}" for kind in kinds for number in range(EACH)]
    written = make(site, "step_1", names)
    site.gateway.evict("step_1")
    for name in names:
        kind = name.partition("-")[0]
        if kind == "deleted":
            # By a request: rclone believes for minutes that a file is there.
            site.server.client().delete_object(Bucket=BUCKET, Key=f"step_1/{name}")
        elif kind in DAMAGES:
            DAMAGES[kind](site.stored(f"step_1/{name}"))
    with ThreadPoolExecutor(READERS) as pool:
        counted = pool.map(
            lambda _: read_at_random(site, "step_1", written, READS // READERS), range(READERS)
        )
        errors = sum(counted, Counter[str]())
    print(f"{READS} reads, {errors.total()} of them errors")
    damaged = {name for name in names if not name.startswith("good")}
    assert set(errors) == damaged
    wanted = {f"step_1/{name}" for name in damaged}
    until(lambda: damaged_paths(site) == wanted, "the report of all damaged files")
    status = site.gateway.status()
    assert not status["healthy"]
    assert status["cache"]["hydrator"]["counters"]["wrong_objects"] >= len(damaged)


def test_reads_wait_while_the_bucket_hangs(site: Site) -> None:
    """They outlive the leases of their clients, which are renewed meanwhile."""
    where = (str(LOAD), "127.0.0.1", str(site.gateway.port), "/checkpoints")
    shape = ("--dir", "step_1", "--file", str(DEPTH * MIB), "--connections", str(CONNECTIONS))
    subprocess.run([*where, "write", *shape], check=True)
    site.gateway.until_drained()
    site.gateway.evict("step_1")
    held = site.proxy.inject(lambda r: "range" in r.headers, Act.HOLD, float("inf"))
    asked = [*where, "read", "--verify", *shape, "--depth", str(DEPTH)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as readers:
        held.wait()
        # Two leases pass. Names and files that are on the disk are served meanwhile.
        served = ("mixed", "--dir", "others", "--seconds", str(2 * LEASE_SECONDS + 1))
        others = subprocess.run([*where, *served], capture_output=True, text=True)
        assert others.returncode == 0, others.stdout + others.stderr
        assert readers.poll() is None
        held.release()
        output, _ = readers.communicate(timeout=120)
    assert readers.returncode == 0, output
    done = json.loads(output)
    assert done["errors"] == done["lost_leases"] == 0
    assert done["ops"] == CONNECTIONS * DEPTH
    assert done["delays"] >= CONNECTIONS * DEPTH - 24
