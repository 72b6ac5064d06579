"""Compares the writers' logs with a stopped gateway, and the gateway with its bucket."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gateway.common.types import InodeKind
from gateway.config.settings import Settings
from gateway.db.models import ROOT_INO
from gateway.namespace.data_files import DataFiles
from tests.support.volumes import query
from tests.torture.file import HOLE, UNIT_BYTES, Impossible, Runs
from tests.torture.history import Entries, History

_UNIT = struct.Struct("=QQ")
_OWNER = re.compile(r"(?:shared\d+/)?(w\d+)(?:[-/]|$)")

Tree = dict[str, bytes | None]
"""Contents by path; a directory is None."""


class Commands(Protocol):
    """A gateway whose commands can be run."""

    def spillway(
        self, *arguments: str, check: bool = True, timeout_seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a ``spillway`` command to its end."""

    def status(self) -> dict[str, Any]:
        """Return the report of ``spillway status --json``."""


class Lost(AssertionError):
    """The gateway or its bucket contradicts the answers that the clients got."""


class Outcome(NamedTuple):
    acknowledged: int
    unanswered: int
    expired: int
    files: int


def tree(settings: Settings, top: str) -> Tree:
    """Return everything below a directory of the export of a stopped gateway."""
    children: dict[int, list[tuple[str, int]]] = {}
    for parent, name, ino in query(settings, "SELECT parent, name, ino FROM dirent"):
        children.setdefault(parent, []).append((bytes(name).decode(), ino))
    inodes = {
        ino: (kind, epoch, size)
        for ino, kind, epoch, size in query(settings, "SELECT ino, kind, epoch, size FROM inode")
    }
    files = DataFiles(settings.files_dir)

    def walk(directory: int, path: str) -> Iterator[tuple[str, bytes | None]]:
        for name, ino in children.get(directory, []):
            kind, epoch, size = inodes[ino]
            if kind == InodeKind.DIRECTORY:
                yield path + name, None
                yield from walk(ino, f"{path}{name}/")
            else:
                data = files.path(ino, epoch)
                found = data.read_bytes() if data.exists() else b""
                if len(found) != size:
                    raise Lost(f"{path}{name}: {size} bytes by its row, {len(found)} on the disk")
                yield path + name, found

    [start] = [ino for name, ino in children[ROOT_INO] if name == top]
    return dict(walk(start, ""))


def content(data: bytes) -> Runs:
    """Return the number of the WRITE that wrote each unit, in runs."""

    def numbers() -> Iterator[int]:
        for index, (number, offset) in enumerate(_UNIT.iter_unpack(data)):
            right = offset == index * UNIT_BYTES or number == offset == HOLE
            yield number if right else -1

    for number, units in groupby(numbers()):
        yield number, sum(1 for _ in units) * UNIT_BYTES


def compare(entries: Entries, found: Tree) -> tuple[str, str] | None:
    """Return the first path that contradicts this state, and why; None if there is none."""
    for path in sorted(entries.keys() | found.keys()):
        if path not in found:
            return path, "lost"
        if path not in entries:
            return path, "there, and was removed or never made"
        file, data = entries[path], found[path]
        if (file is None) != (data is None):
            return path, "not what it was, a file or a directory"
        if file is not None and data is not None:
            try:
                if len(data) % UNIT_BYTES:
                    raise Impossible(f"it has {len(data)} bytes, a unit is torn")
                file.require_content(len(data), content(data))
            except Impossible as error:
                return path, str(error)
    return None


def verify_names(logs: Sequence[Path], found: Tree) -> Outcome:
    """Compare every writer's log with the tree. Raises Lost or Contradiction."""
    histories = {log.stem: History(log) for log in logs}
    theirs: dict[str, Tree] = {writer: {} for writer in histories}
    for path, data in found.items():
        if re.fullmatch(r"shared\d+|w\d+", path):
            continue  # made before the first kill
        owner = _OWNER.match(path)
        if owner is None or owner[1] not in theirs:
            raise Lost(f"{path} is there, and no writer made it")
        theirs[owner[1]][path] = data
    for writer, history in histories.items():
        wrong = [compare(entries, theirs[writer]) for entries in history.states]
        if all(wrong):
            path, why = wrong[0] or ("", "")
            raise Lost(f"{path}: {why}\n{history.about(path)}")
    return Outcome(
        sum(history.acknowledged for history in histories.values()),
        sum(history.unanswered for history in histories.values()),
        sum(history.expired for history in histories.values()),
        sum(data is not None for data in found.values()),
    )


def verify_bucket(found: Tree, objects: dict[str, bytes]) -> None:
    """Require that the bucket has the files with final names, and nothing else. Raises Lost."""
    expected = {
        path: data for path, data in found.items() if data is not None and not path.endswith(".tmp")
    }
    wrong = {
        **dict.fromkeys(expected.keys() - objects.keys(), "not in the bucket"),
        **dict.fromkeys(objects.keys() - expected.keys(), "in the bucket, and no file"),
        **{
            path: "other bytes in the bucket"
            for path in expected.keys() & objects.keys()
            if expected[path] != objects[path]
        },
    }
    if wrong:
        raise Lost("\n".join(f"{path}: {why}" for path, why in sorted(wrong.items())))


def verify_fsck(gateway: Commands) -> int:
    """Require that fsck finds nothing except data files of deleted rows.

    Returns how many of them it set aside. Raises Lost.
    """
    first = json.loads(gateway.spillway("fsck", "--repair", "--json", check=False).stdout)
    known = "data file without inode"
    wrong = [problem for problem in first["problems"] if problem["check"] != known]
    second = gateway.spillway("fsck", "--checksums", check=False)
    if wrong or second.returncode != 0:
        raise Lost(f"fsck: {wrong} {second.stdout}{second.stderr}")
    return len(first["problems"])
