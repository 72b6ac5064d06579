"""Many readers of evicted files of a whole gateway: damaged objects, and a bucket that hangs."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.gateway import BUCKET, Gateway, Values, running
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import Act
from tests.support.s3server import flip
from tests.support.volumes import query
from tests.support.waiting import until

MIB = 1024 * 1024
LOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"
READS = 10_000
READ_BYTES = 64 * 1024
SIZE = 9 * MIB
RESERVED = "SELECT ino FROM inode WHERE reserved = 1"
EACH = 2
"""The files of each kind of damage, and those without damage."""
READERS = 8
LEASE_SECONDS = 10
"""The lease that tests/support/gateway.py sets."""
CONNECTIONS, DEPTH = 10, 30
"""300 READs at the same time. The server parks 24 of one client address and delays the others."""


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
    "flipped": partial(flip, offset=5 * MIB),
    "truncated": truncate,
    "longer": lengthen,
    "overwritten": overwrite,
    "swapped": swap,
}


def make(gateway: Gateway, directory: str, names: list[str]) -> dict[str, bytes]:
    """Write files of random bytes and drain them. Returns their content by name."""
    gateway.spillway("mkdir", directory)
    written = {}
    with nfs4.Client(gateway.port) as client:
        at = client.handle("checkpoints", directory)
        for name in names:
            written[name] = os.urandom(SIZE)
            with client.opened(at, name) as file:
                for offset in range(0, SIZE, MIB):
                    file.write(written[name][offset : offset + MIB], offset)
    gateway.until_drained()
    return written


def read_at_random(
    gateway: Gateway, directory: str, written: dict[str, bytes], count: int
) -> Counter[str]:
    """Compare ranges of files with what was written. Returns the errors by name of the file."""
    errors: Counter[str] = Counter()
    with nfs4.Client(gateway.port) as client:
        at = {name: client.handle("checkpoints", directory, name) for name in written}
        for _ in range(count):
            name = random.choice(list(written))
            offset = random.randrange(SIZE - READ_BYTES)
            try:
                data = client.read(at[name], offset, READ_BYTES)
            except nfs4.Status as exc:
                assert exc.number == nfs4.IO, f"{name}: NFS4ERR {exc.number}"
                errors[name] += 1
            else:
                assert data == written[name][offset : offset + READ_BYTES], f"wrong bytes: {name}"
    return errors


def damaged_paths(gateway: Gateway) -> set[str]:
    """Return the damaged files that `spillway status` shows."""
    return {entry["path"] for entry in gateway.status()["cache"]["hydrator"]["damaged"]}


@pytest.mark.timeout(1800)
def test_no_reader_gets_a_wrong_byte_of_damaged_objects(gateway: Gateway) -> None:
    kinds = ("good", "deleted", *DAMAGES)
    names = [f"{kind}-{number}" for kind in kinds for number in range(EACH)]
    written = make(gateway, "step_1", names)
    gateway.evict("step_1")
    for name in names:
        kind = name.partition("-")[0]
        if kind == "deleted":
            # By a request: rclone believes for minutes that a file is there.
            gateway.server.client().delete_object(Bucket=BUCKET, Key=f"step_1/{name}")
        elif kind in DAMAGES:
            DAMAGES[kind](gateway.stored(f"step_1/{name}"))
    with ThreadPoolExecutor(READERS) as pool:
        counted = pool.map(
            lambda _: read_at_random(gateway, "step_1", written, READS // READERS), range(READERS)
        )
        errors = sum(counted, Counter[str]())
    print(f"{READS} reads, {errors.total()} of them errors")
    damaged = {name for name in names if not name.startswith("good")}
    assert set(errors) == damaged
    wanted = {f"step_1/{name}" for name in damaged}
    until(lambda: damaged_paths(gateway) == wanted, "the report of all damaged files")
    status = gateway.status()
    assert not status["healthy"]
    assert status["cache"]["hydrator"]["counters"]["wrong_objects"] >= len(damaged)


def test_reads_wait_while_the_bucket_hangs(gateway: Gateway) -> None:
    """They outlive the leases of their clients, which are renewed meanwhile."""
    where = (str(LOAD), "127.0.0.1", str(gateway.port), "/checkpoints")
    shape = ("--dir", "step_1", "--file", str(DEPTH * MIB), "--connections", str(CONNECTIONS))
    subprocess.run([*where, "write", *shape], check=True)
    gateway.until_drained()
    gateway.evict("step_1")
    held = gateway.proxy.inject(lambda r: "range" in r.headers, Act.HOLD, float("inf"))
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


def test_what_was_evicted_on_postgresql_is_read_after_a_kill(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    values: Values = {
        "namespace": {"url": postgres.create_database()},
        "nfs": {"lease_seconds": 5, "grace_seconds": 5},
    }
    with running(tmp_path, values) as gateway:
        written = make(gateway, "step_1", [f"shard-{number}" for number in range(4)])
        gateway.evict("step_1")
        absent = gateway.status()["cache"]["absent"]
        assert absent == {"files": len(written), "bytes": len(written) * SIZE}
        settings = gateway.settings

        def only_receipts() -> bool:
            reserved = {str(ino) for (ino,) in query(settings, RESERVED)}
            left = gateway.files_dir.glob("*/*")
            return {path.name.partition(".")[0] for path in left} <= reserved

        until(only_receipts, "the removal of all data files but those of receipts")
        gateway.kill("ganesha")
        gateway.until_said("ganesha ready", 2)
        with nfs4.Client(gateway.port) as client:
            for name, data in written.items():
                handle = client.handle("checkpoints", "step_1", name)
                pieces = (client.read(handle, at, MIB) for at in range(0, SIZE, MIB))
                assert b"".join(pieces) == data
        until(
            lambda: gateway.status()["cache"]["absent"]["files"] == 0,
            "the arrival of all files",
        )
    assert gateway.spillway("fsck").stdout == "0 problems found, 0 left\n"
