"""Reads and writes the stamp of the data files, which says whose they are and how old.

``files/stamp.json`` lies on the disk of the data files. A mount point without its disk has no
stamp, and the stamp of another disk has other values. ``gateway.namespace.identity`` compares it
with the row of the volume.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from gateway import atomic
from gateway.errors import IdentityError

NAME = "stamp.json"


class Stamp(NamedTuple):
    """The identity and the marks of the data files."""

    fs_id: str
    """Id of the namespace, in hexadecimal digits."""
    gateway: str
    """Id of the gateway, in hexadecimal digits."""
    marks: tuple[int, ...]
    """The volume's mark. It is two numbers while the mark moves: the database has one of them."""
    directory: int
    """Inode number of the directory of the data files. A copy of the files has another one."""
    lineage: tuple[str, int] | None = None
    """Origin and branch of the database that got the mark (gateway.db.lineage). A stamp of an
    earlier release has None."""
    is_stopped: bool = False
    """Whether nothing was committed after the mark, because the server was stopped with it."""
    is_behind: bool = False
    """Whether the database was found to lack changes, and the data files were not compared since.
    """


def directory_of(root: Path) -> int:
    """Return the inode number of a directory, as a stamp has it. Raises OSError."""
    return root.stat().st_ino


def read(root: Path) -> Stamp | None:
    """Return the stamp of the data files below a directory, or None without one.

    Raises IdentityError when the file is there and cannot be understood.
    """
    path = root / NAME
    try:
        found: Any = json.loads(path.read_bytes())
        return Stamp(
            str(found["fs_id"]),
            str(found["gateway"]),
            tuple(int(mark) for mark in found["marks"]),
            int(found["directory"]),
            None if (of := found.get("lineage")) is None else (str(of[0]), int(of[1])),
            bool(found.get("is_stopped", False)),
            bool(found.get("is_behind", False)),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, LookupError, TypeError, OSError) as exc:
        raise IdentityError(
            f"the stamp {path} of the data files cannot be read ({exc}): check the disk; if it "
            "is sound, remove the stamp and run: spillway adopt files"
        ) from None


def write(root: Path, stamp: Stamp) -> None:
    """Write the stamp, durably. Raises OSError."""
    atomic.replace(root / NAME, json.dumps(stamp._asdict()) + "\n", 0o600)
