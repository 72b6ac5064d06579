"""Guest program that saves checkpoints without end while threads read older ones at random.

    refill.py DIRECTORY --mib 32 --total-mib 2048 --readers 8 --seed 0

It prints JSON. Each reader opens a file that a save has finished, and reads it whole or from a
random offset to the end. It asks the server, and not the cache of the client. The result names
every read that gave other bytes than those that were written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import threading
import time
from pathlib import Path

MIB = 1024 * 1024
SHARDS = 4


class Saved:
    """The files that saves have finished: the seed and size of each, by path."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.files: list[tuple[str, int, int]] = []
        self.ended = False
        self.reads = 0
        self.read_bytes = 0
        self.wrong: list[str] = []
        self.longest_write_seconds = 0.0
        self.longest_read_seconds = 0.0


def block(seed: int, index: int) -> bytes:
    """Return one MiB of a file. It can be made for any place of the file."""
    return hashlib.sha256(f"{seed}.{index}".encode()).digest() * (MIB // 32)


def save(directory: Path, step: int, mib: int, seed: int, saved: Saved) -> None:
    """Write the shards of a step below a temporary name, and rename the directory."""
    temporary, final = directory / f"tmp-step_{step}", directory / f"step_{step}"
    temporary.mkdir(parents=True, exist_ok=True)
    made = []
    for shard in range(SHARDS):
        own = seed * 1_000_000 + step * 100 + shard
        name, size = f"rank_{shard}.pt", mib // SHARDS
        with (temporary / name).open("wb", buffering=0) as file:
            for index in range(size):
                started = time.monotonic()
                file.write(block(own, index))
                seconds = time.monotonic() - started
                saved.longest_write_seconds = max(saved.longest_write_seconds, seconds)
            os.fsync(file.fileno())
        made.append((str(final / name), own, size))
    rename(temporary, final)
    with saved.lock:
        saved.files += made


def rename(temporary: Path, final: Path) -> None:
    """Rename a directory. A server that is killed before its answer has done it, and has forgotten
    that it did when the client asks again (RFC 8881 section 2.10.6.2: a session is not persistent).
    """
    try:
        temporary.rename(final)
    except FileNotFoundError:
        if not final.is_dir():
            raise


def read(saved: Saved, chosen: random.Random) -> None:
    """Read random files until the saves end."""
    while not saved.ended:
        with saved.lock:
            if not saved.files:
                path, seed, size = "", 0, 0
            else:
                path, seed, size = chosen.choice(saved.files)
        if not path:
            time.sleep(0.1)
            continue
        first = chosen.choice([0, 0, chosen.randrange(size)])
        started = time.monotonic()
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for index in range(first, size):
                data = os.pread(fd, MIB, index * MIB)
                if data != block(seed, index):
                    saved.wrong.append(f"{path} at MiB {index}: {len(data)} bytes")
                saved.read_bytes += len(data)
        except OSError as error:
            saved.wrong.append(f"{path}: {error}")
        finally:
            os.close(fd)
        saved.reads += 1
        saved.longest_read_seconds = max(saved.longest_read_seconds, time.monotonic() - started)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mib", type=int, default=32, help="of one save")
    parser.add_argument("--total-mib", type=int, default=1024)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    saved = Saved()
    readers = [
        threading.Thread(target=read, args=(saved, random.Random(args.seed * 100 + number)))
        for number in range(args.readers)
    ]
    for reader in readers:
        reader.start()
    steps = -(-args.total_mib // args.mib)
    try:
        for step in range(steps):
            save(args.directory, step, args.mib, args.seed, saved)
    finally:
        saved.ended = True
        for reader in readers:
            reader.join()
    report = {
        "steps": steps,
        "reads": saved.reads,
        "read_bytes": saved.read_bytes,
        "wrong": saved.wrong[:20],
        "longest_write_seconds": saved.longest_write_seconds,
        "longest_read_seconds": saved.longest_read_seconds,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
