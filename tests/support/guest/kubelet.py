"""Guest program that does what kubelet does with the volume of a pod that has ``fsGroup``.

    kubelet.py own VOLUME GROUP

It prints how many files and directories it changed. As with ``fsGroupChangePolicy:
OnRootMismatch`` that is none, unless the root of the volume lacks the group, its rights, or the
setgid bit (pkg/volume/volume_linux.go of Kubernetes).
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from pathlib import Path

READ_WRITE = 0o660
EXECUTE = 0o110


def mismatches(root: Path, group: int) -> bool:
    """Return whether the root of a volume lacks something that a member of the group needs."""
    found = root.stat()
    wanted = READ_WRITE | EXECUTE | stat.S_ISGID
    return found.st_gid != group or found.st_mode & wanted != wanted


def below(root: Path) -> Iterator[Path]:
    """Yield what is in a volume, and its root last."""
    for directory, directories, names in os.walk(root, topdown=False):
        yield from (Path(directory, name) for name in names)
        yield from (Path(directory, name) for name in directories)
    yield root


def own(root: Path, group: int) -> int:
    """Give everything in a volume to a group. Returns how many were changed."""
    changed = 0
    for path in below(root) if mismatches(root, group) else ():
        mode = path.lstat().st_mode
        os.lchown(path, -1, group)
        if not stat.S_ISLNK(mode):
            rights = READ_WRITE | (EXECUTE | stat.S_ISGID if stat.S_ISDIR(mode) else 0)
            path.chmod(stat.S_IMODE(mode) | rights)
        changed += 1
    return changed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("own",))
    parser.add_argument("volume", type=Path)
    parser.add_argument("group", type=int)
    args = parser.parse_args()
    print(own(args.volume, args.group))


if __name__ == "__main__":
    main()
