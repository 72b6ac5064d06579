"""Makes the text of a manifest: a checkpoint, and each of its members. Pure.

The text is JSON in UTF-8, with one member on each line, so that a checkpoint of any size is written
and compared line by line. The same rows always make the same bytes. Names and paths are bytes; they
are escaped as in keys (``gateway.escapes``): undo every ``%XX``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gateway.escapes import text_of
from gateway.types import Kind

FORMAT = 1
"""Grows when a reader of an older manifest could misunderstand a newer one."""
_KINDS = {
    Kind.REGULAR: "file",
    Kind.DIRECTORY: "directory",
    Kind.SYMLINK: "symlink",
    Kind.FIFO: "fifo",
    Kind.SOCKET: "socket",
    Kind.CHARACTER: "character device",
    Kind.BLOCK: "block device",
}


class Promoted(NamedTuple):
    """What a manifest says of a promotion."""

    name: str
    note: str
    by: str
    """Name of the user."""
    asked_ns: int
    source: bytes
    """Path below the export's root that the original had."""


class Subject(NamedTuple):
    """The checkpoint, or the copy of one, that a manifest is about."""

    path: bytes
    """Path below the export's root."""
    run: bytes | None
    step: int | None
    rule: str | None
    extent: str
    """``tree``, ``files`` or ``file`` (``checkpoints.facts.Extent``)."""
    files: int
    size: int
    """Bytes of all files."""
    complete_ns: int | None
    durable_ns: int | None
    mode: int
    """Permission bits of its directory, or of its one file."""
    promotion: Promoted | None = None
    """None: it is a checkpoint of clients."""


class Stored(NamedTuple):
    """The object of a member."""

    key: str
    etag: str
    content_version: int
    checksum: str | None
    """The checksum as the table ``object`` has it. None: it is not known."""


class Member(NamedTuple):
    """A member of a checkpoint."""

    path: bytes
    """The path below the checkpoint's directory. If the checkpoint is one file, its name."""
    kind: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int = 0
    target: bytes | None = None
    """What a symbolic link points to."""
    stored: Stored | None = None
    """The object of a file. None: the bucket does not have its present version."""


def lines(subject: Subject, members: Iterable[Member]) -> Iterator[bytes]:
    """Yield the text of a manifest.

    Parameters: members, each directory before what is in it.
    """
    head = {
        "spillway_manifest": FORMAT,
        "path": text_of(subject.path),
        "run": None if subject.run is None else text_of(subject.run),
        "step": subject.step,
        "rule": subject.rule,
        "extent": subject.extent,
        "mode": f"{subject.mode:04o}",
        "files": subject.files,
        "size": subject.size,
        "complete_ns": subject.complete_ns,
        "durable_ns": subject.durable_ns,
    }
    if subject.promotion is not None:
        said = subject.promotion
        head["promotion"] = {**said._asdict(), "source": text_of(said.source)}
    yield _json(head)[:-1].encode() + b', "members": ['
    separator = b"\n"
    for member in members:
        yield separator + _json(_facts(member)).encode()
        separator = b",\n"
    yield b"\n]}\n"


def name_of(path: bytes, step: int | None, ino: int | None = None) -> bytes:
    """Return the last name of a checkpoint's manifest, below the names of its run.

    ``<step>.json``; ``~<name>.json`` if it has no step. Parameters: ino, if another checkpoint of
    the run has the same step: ``<step>~<ino>.json``.
    """
    if step is None:
        return b"~%s.json" % path.rpartition(b"/")[2]
    return b"%d.json" % step if ino is None else b"%d~%d.json" % (step, ino)


def _facts(member: Member) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "path": text_of(member.path),
        "type": _KINDS[Kind(member.kind)],
        "mode": f"{member.mode:04o}",
        "uid": member.uid,
        "gid": member.gid,
        "mtime_ns": member.mtime_ns,
    }
    if member.target is not None:
        facts["target"] = text_of(member.target)
    if member.kind == Kind.REGULAR:
        facts["size"] = member.size
    if (stored := member.stored) is not None:
        facts |= {
            "key": stored.key,
            "etag": stored.etag,
            "content_version": stored.content_version,
            **_sum(stored.checksum),
        }
    return facts


def _sum(checksum: str | None) -> dict[str, Any]:
    """Return the fields of a checksum, from the text in the table ``object``."""
    if checksum is None:
        return {}
    algorithm, *part_bytes, value = checksum.split(":")
    found: dict[str, Any] = {"algorithm": algorithm, "checksum": value}
    if part_bytes:
        found["part_bytes"] = int(part_bytes[0])
    return found


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False)
