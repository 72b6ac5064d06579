"""Records of complete checkpoints, their comparison with the present members, and quiet times.

From its completion on, a checkpoint is compared with its record. So it stays what it was although a
tracker names another one, and it is broken when members are gone although no writer came.

``QuietTimes`` measures how long a checkpoint has not changed. A clock that jumps must not make a
save quiet whose last rank is late. So the time counts by the monotonic clock from the moment at
which this process first saw the checkpoint as it is, and a restart counts it again. Everything else
here is pure.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.catalogue.facts import CheckpointMember
from gateway.catalogue.indexes import COUNTED
from gateway.common import clock
from gateway.common.text import printable

_RANDOM = re.compile(rb"[0-9a-f]{16,}|[0-9]{9,}")
"""A part of a name that is another one in each checkpoint: of OCDBT's files, or a time."""


class CheckpointRecord(NamedTuple):
    """A row of ``checkpoint_record``: see gateway.db.checkpoint_models."""

    ino: int
    run: bytes
    rule: str
    step: int | None
    extent: int
    grade: str
    completion: int | None
    complete_ns: int
    durable_ns: int | None
    files: int
    size: int
    contents: str
    shape: str
    members: bytes | None


class RecordedMember(NamedTuple):
    """A member in a record."""

    ino: int
    size: int
    content_version: int


class Difference(NamedTuple):
    """What became of the members of a record."""

    gone: Sequence[bytes]
    """The paths of those that are not there any more."""
    shorter: Sequence[bytes]
    """Those that have fewer bytes."""
    written: Sequence[bytes]
    """Those that were written again, or replaced."""
    is_more: bool
    """Whether there are members that are not in the record."""

    @property
    def is_none(self) -> bool:
        return not (self.gone or self.shorter or self.written or self.is_more)


def packed(members: Sequence[CheckpointMember]) -> bytes:
    """Return the members as a record has them."""
    return zlib.compress(b"".join(map(line_of, members)))


def line_of(member: CheckpointMember) -> bytes:
    """Return what tells one member, with its content, from any other."""
    entry = member.entry
    return b"%s\0%d %d %d\0" % (member.path, entry.ino, entry.size, entry.content_version)


def unpacked(members: bytes) -> dict[bytes, RecordedMember]:
    """Return the members of a record, by path."""
    fields = zlib.decompress(members).split(b"\0")[:-1]
    return {
        path: RecordedMember(*map(int, kept.split(b" ")))
        for path, kept in zip(fields[::2], fields[1::2], strict=True)
    }


def difference(before: bytes, members: Iterable[CheckpointMember]) -> Difference:
    """Compare the members of a record with what is there now."""
    kept = unpacked(before)
    shorter: list[bytes] = []
    written: list[bytes] = []
    is_more = False
    for path, entry in members:
        was = kept.pop(path, None)
        if was is None:
            is_more = True
        elif (entry.ino, entry.content_version) != (was.ino, was.content_version):
            is_shorter = entry.ino == was.ino and entry.size < was.size
            (shorter if is_shorter else written).append(path)
        elif entry.size < was.size:
            shorter.append(path)
    return Difference(sorted(kept), shorter, written, is_more)


def broken(found: Difference, files: int) -> str:
    """Return why a checkpoint is broken, for people.

    Args:
        files: files in its record.
    """
    count = len(found.gone) or len(found.shorter)
    reason = "gone" if found.gone else "shorter than they were"
    if count == 1:
        reason = reason.replace("they were", "it was")
    first = printable((found.gone or found.shorter)[0])
    return f"{count} of {files} files {'is' if count == 1 else 'are'} {reason}: {first}"


def names_of(paths: Iterable[bytes]) -> frozenset[bytes]:
    """Return the names of members without what differs from checkpoint to checkpoint of a run: the
    step, times, and random numbers. Ranks stay: each of them must be there."""
    return frozenset(_RANDOM.sub(b"#", COUNTED.sub(rb"\1N", path)) for path in paths)


def shape_of(names: Iterable[bytes]) -> str:
    """Return a hash of the names of members."""
    text = b"\0".join(sorted(names))
    return hashlib.blake2b(text, digest_size=16).hexdigest()


class Neighbour(NamedTuple):
    """Another checkpoint of the run that was complete."""

    ino: int
    step: int | None
    shape: str
    members: bytes | None

    def names(self) -> frozenset[bytes]:
        return frozenset() if self.members is None else names_of(unpacked(self.members))

    def sizes(self) -> Counter[bytes]:
        """Return the bytes of its members by their names, of those of one name together."""
        kept = {} if self.members is None else unpacked(self.members)
        return _sizes((path, member.size) for path, member in kept.items())


def _sizes(members: Iterable[tuple[bytes, int]]) -> Counter[bytes]:
    sizes = Counter[bytes]()
    for path, size in members:
        for name in names_of([path]):
            sizes[name] += size
    return sizes


def shrunk(members: Sequence[CheckpointMember], alike: Sequence[Neighbour]) -> str | None:
    """Return which member has less than half of the bytes that those of its name have in others. A
    writer that was killed may have just opened it.

    Args:
        alike: others with the same names of members.
    """
    suspects = _sizes((member.path, member.entry.size) for member in members)
    others = [neighbour for neighbour in alike if neighbour.members is not None]
    if not others:
        return None
    for neighbour in others:
        # Nearly always the first one clears all. To read the members of each takes longer than
        # to save a small checkpoint.
        theirs = neighbour.sizes()
        suspects = Counter({name: n for name, n in suspects.items() if 2 * n < theirs[name]})
        if not suspects:
            return None
    other = "the one before" if alike[0].step is None else f"step {alike[0].step}"
    first = printable(next(iter(suspects)))
    return f"{first} has less than half of the bytes that it has in {other}"


def lacking(names: frozenset[bytes], neighbours: Sequence[Neighbour]) -> str | None:
    """Return which members a checkpoint lacks that others have, if it has nothing else that they
    have not.

    Args:
        names: its own.
        neighbours: the newest first.
    """
    for neighbour in neighbours:
        theirs = neighbour.names()
        if names and names < theirs:
            rest = theirs - names
            other = "the one before" if neighbour.step is None else f"step {neighbour.step}"
            missing = "1 file is" if len(rest) == 1 else f"{len(rest)} files are"
            return f"{missing} missing that {other} has: {printable(min(rest))}"
    return None


JUMP_NS = clock.NS
"""A clock that differs by more from the time that has passed was set."""


class _Seen(NamedTuple):
    evidence: str
    wall_ns: int
    monotonic_seconds: float


class QuietTimes:
    """The checkpoints that were seen, by inode. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def since_ns(self, ino: int, evidence: str) -> int:
        """Return the time since which a checkpoint is known to be as it is.

        Args:
            evidence: tells it from what it was before.
        """
        wall_ns, monotonic_seconds = clock.now_ns(), clock.monotonic_seconds()
        seen = self._seen.get(ino)
        if seen is None or seen.evidence != evidence:
            seen = _Seen(evidence, wall_ns, monotonic_seconds)
        passed_ns = int((monotonic_seconds - seen.monotonic_seconds) * clock.NS)
        if abs(wall_ns - seen.wall_ns - passed_ns) > JUMP_NS:
            seen = _Seen(evidence, wall_ns - passed_ns, seen.monotonic_seconds)
        self._seen[ino] = seen
        return seen.wall_ns

    def forget(self, ino: int) -> None:
        """Forget a checkpoint that is none any more."""
        self._seen.pop(ino, None)
