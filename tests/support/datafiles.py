"""List of the data files that a gateway has, also while it runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def data_files(files_dir: Path, ino: int | None = None) -> dict[Path, os.stat_result]:
    """Return what ``stat`` gives for each data file, or for those of one inode.

    A file that the gateway removes meanwhile is left out: it removes the bytes of unlinked files,
    evicted files and replaced receipts in its own time.
    """
    stats = {}
    for path in files_dir.glob(f"*/{'*' if ino is None else ino}.*"):
        with suppress(FileNotFoundError):
            stats[path] = path.stat()
    return stats


def allocated_bytes(files_dir: Path) -> int:
    """Return the bytes that all data files take on the disk."""
    return sum(stat.st_blocks * 512 for stat in data_files(files_dir).values())
