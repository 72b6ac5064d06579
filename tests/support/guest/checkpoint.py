"""Guest program that saves a checkpoint as training frameworks do, and reads one back.

    checkpoint.py save DIRECTORY --ranks 8 --mib 16 [--shards 1] [--seed 0]
    checkpoint.py read DIRECTORY

It prints JSON. Each rank is a process that writes ``<name>.tmp``, fsyncs it, renames it to
``<name>`` and fsyncs the directory. The bytes are pseudo-random, so that nothing on the way can
compress or share them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import time
from pathlib import Path

CHUNK_BYTES = 1024 * 1024


def save_shard(path: Path, mib: int, seed: int) -> str:
    """Write one shard under a temporary name and rename it. Returns its sha256."""
    digest = hashlib.sha256()
    # The guest is slow, so each block is a rotation of one random chunk.
    chunk = random.Random(seed).randbytes(CHUNK_BYTES)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb", buffering=0) as file:
        for index in range(mib):
            block = chunk[index:] + chunk[:index]
            digest.update(block)
            file.write(block)
        os.fsync(file.fileno())
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    return digest.hexdigest()


def save_rank(directory: Path, rank: int, mib: int, shards: int, seed: int) -> dict[str, str]:
    """Save all shards of one rank, one after the other. Returns the sha256 by name."""
    return {
        (name := f"rank_{rank:02d}_{shard}.pt"): save_shard(
            directory / name, mib, seed * 10_000 + rank * 100 + shard
        )
        for shard in range(shards)
    }


def save(directory: Path, ranks: int, mib: int, shards: int, seed: int) -> dict[str, object]:
    """Save with all ranks at once. Returns the sha256 by name, and the seconds that it took."""
    directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with multiprocessing.Pool(ranks) as pool:
        saved = pool.starmap(
            save_rank, [(directory, rank, mib, shards, seed) for rank in range(ranks)]
        )
    seconds = time.monotonic() - started
    return {"seconds": seconds, "files": {k: v for files in saved for k, v in files.items()}}


def read(directory: Path) -> dict[str, object]:
    """Return the sha256 of every file of a directory."""
    files = {}
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            files[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return {"files": files}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("save", "read"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.verb == "save":
        result = save(args.directory, args.ranks, args.mib, args.shards, args.seed)
    else:
        result = read(args.directory)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
