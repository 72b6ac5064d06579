"""The rules of frameworks: how the directories and files that they save look. Pure.

What each framework writes, and in which order, is replayed in ``tests/t9_checkpoints/layouts.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.checkpoints.content import (
    TRACKER_MAX_BYTES,
    cut_off,
    missing_shard,
    not_json,
    number_in,
)
from gateway.checkpoints.facts import Found, Members, Place
from gateway.types import Extent, Kind

INDEXES_MAX = 64
"""The index files of one directory that are read."""
_INDEX = b".index.json"
_WORD = rb"(?:^|[-_.=])(?:%s)[-_=]?([0-9]{1,18})(?![0-9])"
_STEP = re.compile(_WORD % b"global_?step|steps?|iteration|iter")
_OTHER = re.compile(_WORD % b"checkpoint|ckpt|epoch")
_NUMBER = re.compile(rb"[0-9]{1,18}")
_SHARD = re.compile(rb"-of-[0-9]+")
_UNNAMED = re.compile(rb"\.tmp[0-9A-Za-z]{6}")
"""A file that ``save_file`` of safetensors writes. It gets its name before it is closed."""


def step_in(name: bytes) -> int | None:
    """Return the step that a name tells, or None."""
    if _NUMBER.fullmatch(name):
        return int(name)
    match = _STEP.search(name) or _OTHER.search(name)
    return None if match is None else int(match[1])


class Framework:
    """A rule without patterns, leftovers, trackers and times."""

    name = ""
    patterns: Sequence[str] = ()
    leftovers: re.Pattern[bytes] | None = None
    tracker: bytes | None = None
    quiet_seconds = 0.0
    _pattern: re.Pattern[bytes] | None = None
    """The pattern of the directory's whole name. Its group is the step."""

    def recognise(self, place: Place) -> Found | None:
        match = None if self._pattern is None else self._pattern.fullmatch(place.parts[-1])
        if match is None or place.entry.kind != Kind.DIRECTORY:
            return None
        return self._found(place, int(match[1]), Extent.TREE)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        return None

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        return None

    def _found(self, place: Place, step: int | None, extent: Extent) -> Found:
        return Found(self.name, b"/".join(place.parts[:-1]), step, extent)

    def _of_content(self, place: Place) -> Found:
        """Return a directory that its content shows to be a checkpoint. Without a step in its name
        it may be the directory of a run, with the checkpoints of the run in it."""
        step = step_in(place.parts[-1])
        return self._found(place, step, Extent.FILES if step is None else Extent.TREE)


class Trainer(Framework):
    """Hugging Face's Trainer: ``checkpoint-<step>``, with ``trainer_state.json`` as its last
    file."""

    name = "trainer"
    leftovers = _UNNAMED
    _pattern = re.compile(rb"checkpoint-([0-9]{1,18})")

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        state = b"trainer_state.json"
        entry = place.inside(state)
        if entry is None:
            return "trainer_state.json is missing"
        for name in place.ending(_INDEX, INDEXES_MAX):
            index = place.inside(name)
            if index is not None and (reason := missing_shard(place, name, index)) is not None:
                return reason
        return not_json(place, state, entry)[0]


class Tracked(Framework):
    """A framework whose tracker names a checkpoint after all else is written."""

    tracker: bytes
    _prefix = ""
    """What the tracker has before the number."""

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        newest = number_in(place, self.tracker, self._prefix)
        if newest is None or step is None or newest < step:
            return f"{self.tracker.decode()} does not name it yet"
        return None


class DeepSpeed(Tracked):
    """DeepSpeed: ``global_step<step>``, which ``latest`` beside it names last."""

    name = "deepspeed"
    tracker = b"latest"
    _pattern = re.compile(rb"global_step([0-9]{1,18})")
    _prefix = "global_step"


class Megatron(Tracked):
    """Megatron: ``iter_<7 digits>``, whose number the tracker beside it gets last."""

    name = "megatron"
    tracker = b"latest_checkpointed_iteration.txt"
    _pattern = re.compile(rb"iter_([0-9]{7,18})")


class Orbax(Framework):
    """Orbax: a directory that gets its name by a rename, or ``commit_success.txt`` last."""

    name = "orbax"
    _METADATA = b"_CHECKPOINT_METADATA"
    _COMMITTED = b"commit_success.txt"

    def recognise(self, place: Place) -> Found | None:
        step = step_in(place.parts[-1])
        if step is None or place.entry.kind != Kind.DIRECTORY:
            return None
        if place.inside(self._METADATA) is None and place.inside(self._COMMITTED) is None:
            return None
        return self._found(place, step, Extent.TREE)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        if place.inside(self._COMMITTED) is not None:
            return None
        entry = place.inside(self._METADATA)
        if entry is None:
            return "commit_success.txt is missing"
        reason, metadata = not_json(place, self._METADATA, entry)
        if reason is None and metadata.get("commit_timestamp_nsecs", 0) is None:
            return "_CHECKPOINT_METADATA has no time of its commit"
        return reason


class Lightning(Framework):
    """Lightning: ``*.ckpt`` files with ``step=N``, and directories of that name if it shards."""

    name = "lightning"
    _pattern = re.compile(rb"(?:.*[^a-z])?step=([0-9]{1,18})(?:[^0-9].*)?\.ckpt", re.DOTALL)
    _META = b"meta.pt"
    """What a sharded save writes last."""
    _LATEST = b"latest"
    """What DeepSpeed writes last in it."""

    def recognise(self, place: Place) -> Found | None:
        match = self._pattern.fullmatch(place.parts[-1])
        if match is None:
            return None
        extent = Extent.TREE if place.entry.kind == Kind.DIRECTORY else Extent.FILE
        return self._found(place, int(match[1]), extent)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        if found.extent is Extent.FILE:
            return cut_off(place, place.parts[-1], place.entry)
        if (latest := place.inside(self._LATEST)) is not None:
            named = place.read(self._LATEST, latest, 0, TRACKER_MAX_BYTES).strip()
            return None if place.inside(named) is not None else "latest names no directory in it"
        meta = place.inside(self._META)
        return "meta.pt is missing" if meta is None else cut_off(place, self._META, meta)


class NeMo(Framework):
    """NeMo: a directory with ``step=N`` in its name and the weights in ``weights/``."""

    name = "nemo"
    _pattern = re.compile(rb"(?:.*[^a-z])?step=([0-9]{1,18})(?:[^0-9].*)?", re.DOTALL)

    def recognise(self, place: Place) -> Found | None:
        is_one = place.inside(b"weights") is not None or place.inside(b"context") is not None
        return super().recognise(place) if is_one else None

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        last = (b".metadata", b"metadata.json")
        if any(place.inside(b"weights", name) is not None for name in last):
            return None
        return "weights/.metadata is missing"


class Distributed(Framework):
    """torch.distributed.checkpoint: ``.metadata``, which gets its name after all shards."""

    name = "dcp"
    _METADATA = b".metadata"

    def recognise(self, place: Place) -> Found | None:
        if place.entry.kind != Kind.DIRECTORY:
            return None
        if place.inside(self._METADATA) is None and not place.ending(b".distcp", 1):
            return None
        return self._of_content(place)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        entry = place.inside(self._METADATA)
        return None if entry is not None and entry.size else ".metadata is missing"


class Indexed(Framework):
    """A directory of shards that ``*.index.json`` names, written last, as ``save_pretrained``
    does."""

    name = "index"
    leftovers = _UNNAMED

    def recognise(self, place: Place) -> Found | None:
        if place.entry.kind != Kind.DIRECTORY or not place.ending(_INDEX, 1):
            return None
        return self._of_content(place)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        for name in place.ending(_INDEX, INDEXES_MAX):
            entry = place.inside(name)
            if entry is not None and (reason := missing_shard(place, name, entry)) is not None:
                return reason
        return None


class Single(Framework):
    """A file with a step in its name, as ``torch.save`` or ``save_file`` wrote it."""

    name = "file"
    _ENDS = (b".pt", b".pth", b".bin", b".safetensors", b".ckpt")

    def recognise(self, place: Place) -> Found | None:
        name = place.parts[-1]
        if not place.entry.is_file or not name.endswith(self._ENDS) or _SHARD.search(name):
            return None
        step = step_in(name)
        return None if step is None else self._found(place, step, Extent.FILE)

    def lacks(self, place: Place, found: Found, members: Members) -> str | None:
        return cut_off(place, place.parts[-1], place.entry)


BUILT_IN: Sequence[Framework] = (
    *(DeepSpeed(), Megatron(), Orbax(), Lightning(), NeMo()),
    *(Distributed(), Trainer(), Indexed(), Single()),
)
"""The order counts: others also save to directories that are named like the Trainer's."""
