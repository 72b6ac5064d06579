"""``python -m tests.torture.cold DIRECTORY`` fills a small disk many times over, with kills.

A client, the VM or the load generator, saves checkpoints and reads older ones at random. Meanwhile
the NFS server, the drain and the hydrator are killed at random moments. Every byte that is read
must be the byte that was written, the disk must stay below the mark from which writers are slowed,
and the namespace must be sound afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from gateway.config import datadir
from gateway.namespace.server_reports import SPACE_REPORT, Level
from tests.support.disks import small_disk
from tests.support.gateway import Gateway
from tests.support.s3server import RcloneServer
from tests.torture.refills import (
    LIMIT_SECONDS,
    SAVE_MIB,
    LoadRefill,
    Refill,
    Report,
    VmRefill,
    Work,
)
from tests.torture.verify import verify_fsck

DISK_MIB = {"vm": 384, "load": 2048}
"""The size of the disk by client. Eight readers of the load generator have 54 MiB on their way to
the disk at once, and it saves some 40 MiB a second. Between the marks of cold reads and of slowed
writers there must be room for these reads, and for the saves of the eight seconds or so in which
the drain or the hydrator, killed twice, starts again."""
EVICT_FROM, EVICT_TO, SLOW_FROM = 0.6, 0.4, 0.9
PAUSE_SECONDS = (2.0, 12.0)
VICTIMS = ("ganesha", "drain", "cache")
DEATHS_MAX = 2
"""The deaths of a child until `spillway up` is killed itself: it waits longer after each death."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="a failed run stays there")
    parser.add_argument("--seed", default="", help="of a run to be repeated")
    parser.add_argument("--times", type=float, default=10.0, help="how often to fill the disk")
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--client", choices=DISK_MIB, default="vm")
    args = parser.parse_args()
    seed = int(args.seed) if args.seed else secrets.randbits(32)
    print(f"SEED={seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="cold-", dir=args.directory.absolute()))
    try:
        print(run(directory, seed, args.times, args.readers, args.client))
    except AssertionError as error:
        sys.exit(f"FAILED with SEED={seed}; logs are in {directory}\n{error}")


def run(directory: Path, seed: int, times: float, readers: int, client: str) -> str:
    """Fill the disk. Returns the result in one line.

    Raises AssertionError.

    Args:
        directory: directory of the disk and the logs.
        seed: seed of all random choices.
        times: how often the bytes up to ``EVICT_FROM`` are written.
        readers: the number of readers at the same time.
        client: one of DISK_MIB.
    """
    with ExitStack() as stack:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        data, disk_mib = directory / "gateway" / "data", DISK_MIB[client]
        stack.enter_context(small_disk(data, directory / "disk.img", disk_mib))
        gateway = _gateway(directory / "gateway", server)
        work = Work(seed, -(-int(disk_mib * EVICT_FROM * times) // SAVE_MIB), readers)
        refill: Refill = VmRefill(directory) if client == "vm" else LoadRefill()
        with refill, gateway:
            course = _refilled(refill, gateway, work)
            gateway.until_drained(180.0)
        # The namespace must not be in use, and its disk must still be mounted.
        reclaimed = verify_fsck(gateway)
    report = course.report
    assert not report.wrong, "\n".join(report.wrong)
    assert course.fullest < SLOW_FROM, f"the disk was filled to {course.fullest:.2f}"
    assert course.fetched_bytes, "no read needed the bucket"
    counted = ", ".join(f"{name} {count}" for name, count in sorted(course.kills.items()))
    return (
        f"{work.saves * SAVE_MIB} MiB written on a disk of {disk_mib} MiB, which was filled to "
        f"{course.fullest:.2f} at most; {report.reads} reads of {report.read_bytes >> 20} MiB "
        f"({course.fetched_bytes >> 20} MiB came from the bucket), no wrong byte; "
        f"longest write {report.longest_write_seconds:.1f} s, longest read "
        f"{report.longest_read_seconds:.1f} s; {reclaimed} data files of reclaimed rows; "
        f"kills: {counted}"
    )


def _gateway(directory: Path, server: RcloneServer) -> Gateway:
    return Gateway(
        directory,
        server,
        values={
            "nfs": {"lease_seconds": 5, "grace_seconds": 5},
            "space": {"reserve_bytes": 1 << 24, "slow_from": SLOW_FROM},
            "cache": {"evict_from": EVICT_FROM, "evict_to": EVICT_TO},
        },
    )


class Course(NamedTuple):
    kills: Counter[str]
    fullest: float
    fetched_bytes: int
    """The bytes that hydrators reported. The last ones before the death of each are missing."""
    report: Report


def _refilled(refill: Refill, gateway: Gateway, work: Work) -> Course:
    """Run the client until it ends, and kill meanwhile. Raises AssertionError."""
    chosen = random.Random(work.seed)
    kills: Counter[str] = Counter()
    deaths: Counter[str] = Counter()
    fullest, fetched = 0.0, Fetched(gateway.data_dir)
    refill.start(gateway, work)
    deadline = time.monotonic() + LIMIT_SECONDS
    due = time.monotonic() + chosen.uniform(*PAUSE_SECONDS)
    while not refill.done:
        assert time.monotonic() < deadline, f"the client works for {LIMIT_SECONDS:.0f} s"
        time.sleep(0.1)
        filled = _filled(gateway.data_dir)
        if filled > max(fullest, EVICT_FROM):
            print(f"{time.monotonic():.1f} filled to {filled:.2f}", flush=True)
        fullest = max(fullest, filled)
        fetched.look()
        if _level(gateway.data_dir) not in (Level.ROOM, None):
            shown = gateway.spillway("status", check=False).stdout
            said = "\n".join(gateway.lines[-40:])
            raise AssertionError(f"writers were slowed:\n{shown}{said}")
        gateway.require_up()
        if time.monotonic() >= due:
            victim = chosen.choice(VICTIMS)
            if deaths[victim] >= DEATHS_MAX:
                gateway.kill_all()
                gateway.start()
                deaths.clear()
                victim = "up"
            else:
                try:
                    gateway.kill(victim)
                except (ProcessLookupError, TypeError):
                    victim = "nothing"  # it waits for its restart
                deaths[victim] += 1
            kills[victim] += 1
            print(f"{time.monotonic():.1f} kill -9 of {victim}", flush=True)
            due = time.monotonic() + chosen.uniform(*PAUSE_SECONDS)
    return Course(kills, fullest, fetched.total_bytes, refill.report())


class Fetched:
    """Sums up what the hydrators of a gateway fetched.

    Args:
        data: its data directory.
    """

    def __init__(self, data: Path) -> None:
        self._path = data / "run" / datadir.CACHE
        self._last_bytes = 0
        self.total_bytes = 0

    def look(self) -> None:
        """Read the report of the present hydrator. Its counters begin at zero."""
        try:
            found = int(json.loads(self._path.read_text())["counters"]["fetched_bytes"])
        except FileNotFoundError:
            return
        self.total_bytes += found - (self._last_bytes if found >= self._last_bytes else 0)
        self._last_bytes = found


def _filled(directory: Path) -> float:
    disk = os.statvfs(directory)
    return 1 - disk.f_bavail / disk.f_blocks


def _level(data: Path) -> Level | None:
    """Return the level that the NFS server reported last, or None if it has not looked yet."""
    try:
        name = json.loads((data / "run" / SPACE_REPORT).read_text())["level"]
    except FileNotFoundError:
        return None
    return None if name == "unknown" else Level[name.upper()]


if __name__ == "__main__":
    main()
