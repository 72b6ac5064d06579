"""``python -m tests.torture.cold DIRECTORY`` fills a small disk many times over, with kills.

The client VM saves checkpoints and reads older ones at random. Meanwhile the NFS server, the drain
and the hydrator are killed at random moments. Every byte that is read must be the byte that was
written, the disk must stay below the mark from which writers are slowed, and the namespace must be
sound afterwards.
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
from typing import Any

from gateway.namespace.space import REPORT, Level
from tests.support.client import MOUNT, start_program
from tests.support.disks import small_disk
from tests.support.gateway import Gateway
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm
from tests.torture.verify import verify_fsck

BUCKET = "checkpoints"
IMAGES = Path(__file__).parents[2] / "build" / "vm"
DISK_MIB = 384
SAVE_MIB = 24
EVICT_FROM, EVICT_TO, SLOW_FROM = 0.6, 0.4, 0.9
PAUSE_SECONDS = (2.0, 12.0)
VICTIMS = ("ganesha", "drain", "cache")
DEATHS_MAX = 2
"""The deaths of a child until `spillway up` is killed itself: it waits longer after each death."""
LIMIT_SECONDS = 3600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="a failed run stays there")
    parser.add_argument("--seed", default="", help="of a run to be repeated")
    parser.add_argument("--times", type=float, default=10.0, help="how often to fill the disk")
    parser.add_argument("--readers", type=int, default=8)
    args = parser.parse_args()
    seed = int(args.seed) if args.seed else secrets.randbits(32)
    print(f"SEED={seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="cold-", dir=args.directory.absolute()))
    try:
        print(run(directory, seed, args.times, args.readers))
    except AssertionError as error:
        sys.exit(f"FAILED with SEED={seed}; logs are in {directory}\n{error}")


def run(directory: Path, seed: int, times: float, readers: int) -> str:
    """Fill the disk. Returns the result in one line.

    Parameters: times, how often the bytes up to ``EVICT_FROM`` are written; readers, the number of
    reading threads. Raises AssertionError.
    """
    with ExitStack() as stack:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        server.client().create_bucket(Bucket=BUCKET)
        data = directory / "gateway" / "data"
        stack.enter_context(small_disk(data, directory / "disk.img", DISK_MIB))
        gateway = _gateway(directory / "gateway", server)
        total_mib = int(DISK_MIB * EVICT_FROM * times)
        vm = ClientVm.boot(build_image(IMAGES), console_log=directory / "console.log")
        with vm, gateway:
            vm.mount(gateway.port)
            kills, fullest, report = _refilled(vm, gateway, seed, total_mib, readers)
            gateway.until_drained(180.0)
            vm.umount()
        # The namespace must not be in use, and its disk must still be mounted.
        leftovers = verify_fsck(gateway)
    assert not report["wrong"], "\n".join(report["wrong"])
    assert fullest < SLOW_FROM, f"the disk was filled to {fullest:.2f}"
    counted = ", ".join(f"{name} {count}" for name, count in sorted(kills.items()))
    return (
        f"{total_mib} MiB written on a disk of {DISK_MIB} MiB, which was filled to {fullest:.2f} "
        f"at most; {report['reads']} reads of {report['read_bytes'] >> 20} MiB, no wrong byte; "
        f"longest write {report['longest_write_seconds']:.1f} s, longest read "
        f"{report['longest_read_seconds']:.1f} s; {leftovers} data files of reclaimed rows; "
        f"kills: {counted}"
    )


def _gateway(directory: Path, server: RcloneServer) -> Gateway:
    return Gateway(
        directory,
        bucket=BUCKET,
        endpoint_url=server.url,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        values={
            "nfs": {"lease_seconds": 5, "grace_seconds": 5},
            "space": {"reserve_bytes": 1 << 24, "slow_from": SLOW_FROM},
            "cache": {"evict_from": EVICT_FROM, "evict_to": EVICT_TO},
        },
    )


def _refilled(
    vm: ClientVm, gateway: Gateway, seed: int, total_mib: int, readers: int
) -> tuple[Counter[str], float, dict[str, Any]]:
    """Run the client until it ends. Returns the kills, the fullest disk, and its report."""
    chosen = random.Random(seed)
    kills: Counter[str] = Counter()
    deaths: Counter[str] = Counter()
    fullest = 0.0
    client = start_program(
        *(vm, "refill.py", MOUNT / "run", "--mib", str(SAVE_MIB), "--seed", str(seed % 1000)),
        *("--total-mib", str(total_mib), "--readers", str(readers)),
        timeout_seconds=LIMIT_SECONDS,
    )
    due = time.monotonic() + chosen.uniform(*PAUSE_SECONDS)
    while not client.done:
        time.sleep(0.1)
        fullest = max(fullest, _filled(gateway.data_dir))
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
    return kills, fullest, json.loads(client.wait().stdout)


def _filled(directory: Path) -> float:
    found = os.statvfs(directory)
    return 1 - found.f_bavail / found.f_blocks


def _level(data: Path) -> Level | None:
    """Return the level that the NFS server reported last, or None if it has not looked yet."""
    try:
        name = json.loads((data / "run" / REPORT).read_text())["level"]
    except FileNotFoundError:
        return None
    return None if name == "unknown" else Level[name.upper()]


if __name__ == "__main__":
    main()
