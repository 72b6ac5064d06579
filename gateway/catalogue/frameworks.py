"""Checkpoint rules of frameworks: the layout of the directories and files that each saves. Pure.

What each framework writes, and in which order, is replayed in
``tests/support/checkpoints/layouts.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.catalogue import indexes
from gateway.catalogue.content import TENSORS, TRACKER_MAX_BYTES, not_json, number_in, text_in
from gateway.catalogue.facts import Members, Parts, Place, Recognised
from gateway.catalogue.indexes import Listing, is_plain, lone_number, series_of, step_in
from gateway.common.types import Extent, InodeKind

INDEXES_MAX = 64
"""The index files of one directory that are read."""
_INDEX = b".index.json"
_SHARD = re.compile(rb"-of-[0-9]+")
_UNNAMED = re.compile(rb"\.tmp[0-9A-Za-z]{6}")
"""A file that ``save_file`` of safetensors writes. It gets its name before it is closed."""


class Framework:
    """A rule without patterns, abandoned files, trackers and times."""

    name = ""
    patterns: Sequence[str] = ()
    abandoned: re.Pattern[bytes] | None = None
    tracker: bytes | None = None
    quiet_seconds = 0.0
    is_by_name = True
    """Whether a name alone makes a directory a checkpoint. What is in it with the same step is then
    a part of it."""
    _pattern: re.Pattern[bytes] | None = None
    """The pattern of the directory's whole name. Its group is the step."""

    def recognise(self, place: Place) -> Recognised | None:
        match = None if self._pattern is None else self._pattern.fullmatch(place.parts[-1])
        if match is None or place.entry.kind != InodeKind.DIRECTORY:
            return None
        return self._found(place, int(match[1]), Extent.TREE)

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        return None

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        return None

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        return None

    def _found(self, place: Place, step: int | None, extent: Extent) -> Recognised:
        above, name = place.parts[:-1], place.parts[-1]
        series = series_of(name, step)
        # The final model, which no step names, belongs to the run that it is saved beside.
        is_of_run = extent is not Extent.FILE and (step is None or is_plain(series))
        return Recognised(
            self.name, b"/".join(above if is_of_run else (*above, series)), step, extent
        )

    def _of_content(self, place: Place) -> Recognised:
        """Return a directory that its content shows to be a checkpoint. Without a step in its name
        it may be the directory of a run, with the checkpoints of the run in it."""
        step = _step_of(place)
        return self._found(place, step, Extent.FILES if step is None else Extent.TREE)


def _step_of(place: Place) -> int | None:
    """Return the step of a name by its words, or by a sibling that differs in the number only."""
    name = place.parts[-1]
    step = step_in(name)
    if step is not None or place.entry.kind != InodeKind.DIRECTORY:
        return step  # files that differ in a number may be the parts of one checkpoint
    lone = lone_number(name)
    return None if lone is None or not place.is_in_series(lone[0], lone[2]) else lone[1]


class Trainer(Framework):
    """Hugging Face's Trainer: ``checkpoint-<step>``, with ``trainer_state.json`` as the last file
    of its first rank. Other ranks may write after it."""

    name = "trainer"
    abandoned = _UNNAMED
    _pattern = re.compile(rb"checkpoint-([0-9]{1,18})")

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        if place.inside(b"trainer_state.json") is None:
            return "trainer_state.json is missing"
        return _lacks_shards(place) or _lacks_pieces(place, members)


class Accelerate(Framework):
    """Accelerate: ``checkpoint_<number>``, in which each rank writes its random states last."""

    name = "accelerate"
    abandoned = _UNNAMED
    _pattern = re.compile(rb"checkpoint_([0-9]{1,18})")

    def recognise(self, place: Place) -> Recognised | None:
        is_one = place.entry.kind == InodeKind.DIRECTORY and place.starting(b"random_states_", 1)
        return super().recognise(place) if is_one else None

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        return _lacks_shards(place) or _lacks_pieces(place, members)


class Tracked(Framework):
    """A framework whose tracker names a checkpoint after all else is written."""

    tracker: bytes
    _prefix = ""
    """What the tracker has before the number."""

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        named = number_in(place, self.tracker, self._prefix)
        if named is None or step is None or named != step:
            return f"{self.tracker.decode()} does not name it"
        return None


class DeepSpeed(Framework):
    """DeepSpeed: a directory with ``mp_rank_00_model_states.pt``, mostly ``global_step<step>``.
    ``latest`` beside it names it before the last rank is done."""

    name = "deepspeed"
    tracker = b"latest"
    is_by_name = False
    _pattern = re.compile(rb"global_step([0-9]{1,18})")
    _MODEL = b"_model_states.pt"

    def recognise(self, place: Place) -> Recognised | None:
        if (recognition := super().recognise(place)) is not None:
            return recognition
        if place.entry.kind != InodeKind.DIRECTORY or not place.ending(self._MODEL, 1):
            return None
        return self._of_content(place)

    def lacks_beside(self, place: Place, step: int | None) -> str | None:
        named = text_in(place, self.tracker)
        return None if named == place.parts[-1] else "latest does not name it"

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        return indexes.deepspeed(place)


class Megatron(Tracked):
    """Megatron: ``iter_<7 digits>``, whose number the tracker beside it gets last."""

    name = "megatron"
    tracker = b"latest_checkpointed_iteration.txt"
    _pattern = re.compile(rb"iter_([0-9]{7,18})")

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        listed = indexes.distributed(place)
        # The saver of the first rank writes it too (megatron/core/dist_checkpointing).
        return None if listed is None else {**listed, (b"metadata.json",): 1, (b"common.pt",): 1}


class Verl(Tracked):
    """verl: ``global_step_<step>``, with the number of ranks in the names of all files."""

    name = "verl"
    tracker = Megatron.tracker
    _pattern = re.compile(rb"global_step_([0-9]{1,18})")
    _PARTS = (b"actor", b"critic")
    _FILE = re.compile(rb"((?:model|optim|extra_state)_world_size_)([0-9]{1,6})_rank_[0-9]+\.pt")

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        listed: dict[Parts, int] = {}
        for member in members.each or ():
            above, _, name = member.path.rpartition(b"/")
            match = self._FILE.fullmatch(name)
            if match is not None and above in self._PARTS:
                for rank in range(int(match[2])):
                    path = (above, b"%s%s_rank_%d.pt" % (match[1], match[2], rank))
                    listed[path] = 1
        return listed or None


class Orbax(Framework):
    """Orbax: a directory that gets its name by a rename, or ``commit_success.txt`` last."""

    name = "orbax"
    _METADATA = b"_CHECKPOINT_METADATA"
    _COMMITTED = b"commit_success.txt"

    def recognise(self, place: Place) -> Recognised | None:
        if place.entry.kind != InodeKind.DIRECTORY:
            return None
        if place.inside(self._METADATA) is None and place.inside(self._COMMITTED) is None:
            return None
        name = place.parts[-1]
        # The steps of a CheckpointManager are bare numbers, also the first.
        step = int(name) if name.isdigit() and len(name) <= 18 else step_in(name)
        return None if step is None else self._found(place, step, Extent.TREE)

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
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
    """Lightning: ``*.ckpt`` files with ``step=N``, ``last.ckpt``, and directories of those names if
    it shards."""

    name = "lightning"
    _pattern = re.compile(rb"(?:.*[^a-z])?step=([0-9]{1,18})(?:[^0-9].*)?\.ckpt", re.DOTALL)
    _last = re.compile(rb"last(?:-v[0-9]+)?\.ckpt")
    _META = b"meta.pt"
    """What a sharded save writes last."""
    _LATEST = b"latest"
    """What DeepSpeed writes last in it."""

    def recognise(self, place: Place) -> Recognised | None:
        name = place.parts[-1]
        match = self._pattern.fullmatch(name)
        if match is None and self._last.fullmatch(name) is None:
            return None
        is_directory = place.entry.kind == InodeKind.DIRECTORY
        if not is_directory and not place.entry.is_file:
            return None
        step = None if match is None else int(match[1])
        extent = Extent.TREE if is_directory else Extent.FILE
        series = b"/".join((*place.parts[:-1], series_of(name, step)))
        return Recognised(self.name, series, step, extent)

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        if found.extent is Extent.FILE:
            return None
        if (latest := place.inside(self._LATEST)) is not None:
            named = place.read(self._LATEST, latest, 0, TRACKER_MAX_BYTES).strip()
            return None if place.inside(named) is not None else "latest names no directory in it"
        return "meta.pt is missing" if place.inside(self._META) is None else None

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        return None if found.extent is Extent.FILE else indexes.distributed(place)


class NeMo(Framework):
    """NeMo: a directory with ``step=N`` in its name and the weights in ``weights/``."""

    name = "nemo"
    _pattern = re.compile(rb"(?:.*[^a-z])?step=([0-9]{1,18})(?:[^0-9].*)?", re.DOTALL)

    def recognise(self, place: Place) -> Recognised | None:
        is_one = place.inside(b"weights") is not None or place.inside(b"context") is not None
        return super().recognise(place) if is_one else None

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        last = (b".metadata", b"metadata.json")
        if any(place.inside(b"weights", name) is not None for name in last):
            return None
        return "weights/.metadata is missing"

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        # The index does not name what is in the other directory.
        has_context = bool(place.inside(b"context", b"io.json"))
        return indexes.distributed(place, (b"weights",)) if has_context else None


class Distributed(Framework):
    """torch.distributed.checkpoint: ``.metadata``, which gets its name after all shards."""

    name = "dcp"
    is_by_name = False
    _METADATA = b".metadata"

    def recognise(self, place: Place) -> Recognised | None:
        if place.entry.kind != InodeKind.DIRECTORY:
            return None
        if place.inside(self._METADATA) is None and not place.ending(b".distcp", 1):
            return None
        return self._of_content(place)

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        entry = place.inside(self._METADATA)
        return None if entry is not None and entry.size else ".metadata is missing"

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        return indexes.distributed(place)


class Indexed(Framework):
    """A directory of shards that ``*.index.json`` names, written last, as ``save_pretrained``
    does."""

    name = "index"
    is_by_name = False
    abandoned = _UNNAMED

    def recognise(self, place: Place) -> Recognised | None:
        if place.entry.kind != InodeKind.DIRECTORY or not place.ending(_INDEX, 1):
            return None
        return self._of_content(place)

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        return _lacks_shards(place)

    def listing(self, place: Place, found: Recognised, members: Members) -> Listing | None:
        # The index does not name the configuration, which most models have.
        return _shards(place) if place.inside(b"config.json") else None


class Adapter(Framework):
    """PEFT: a directory with ``adapter_config.json``, which ``save_pretrained`` writes last."""

    name = "peft"
    is_by_name = False
    abandoned = _UNNAMED
    _CONFIG = b"adapter_config.json"

    def recognise(self, place: Place) -> Recognised | None:
        if place.entry.kind != InodeKind.DIRECTORY or not place.starting(b"adapter_model.", 1):
            return None
        return self._of_content(place)

    def lacks(self, place: Place, found: Recognised, members: Members) -> str | None:
        return None if place.inside(self._CONFIG) is not None else "adapter_config.json is missing"


class SingleFile(Framework):
    """A file with a step in its name, as ``torch.save``, ``save_file`` or flax wrote it."""

    name = "file"
    is_by_name = False
    _flax = re.compile(rb"checkpoint_[0-9]{1,18}")

    def recognise(self, place: Place) -> Recognised | None:
        name = place.parts[-1]
        if not place.entry.is_file or _SHARD.search(name):
            return None
        if not name.endswith(TENSORS) and self._flax.fullmatch(name) is None:
            return None
        step = _step_of(place)
        return None if step is None else self._found(place, step, Extent.FILE)


def _shards(place: Place) -> Listing:
    """Return the shards that the indexes in a place name. Raises Wrong, Unread."""
    listed: dict[Parts, int] = {}
    for name in place.ending(_INDEX, INDEXES_MAX):
        entry = place.inside(name)
        if entry is not None:
            listed |= indexes.shards(place, name, entry)
    return listed


def _lacks_shards(place: Place) -> str | None:
    """Return which shard is missing that an index names, or None. Raises Wrong, Unread."""
    return indexes.missing(place, _shards(place))


def _lacks_pieces(place: Place, members: Members) -> str | None:
    """Return what is missing that an index of torch.distributed in a directory below names, or
    None: with FSDP the model and the optimizer have such directories. Raises Wrong, Unread."""
    for member in members.each or ():
        *above, name = member.path.split(b"/")
        if above and name == Distributed._METADATA:
            listed = indexes.distributed(place, tuple(above))
            if listed and (reason := indexes.missing(place, listed)) is not None:
                return reason
    return None


BUILT_IN: Sequence[Framework] = (
    *(DeepSpeed(), Megatron(), Verl(), Orbax(), Lightning(), NeMo(), Accelerate()),
    *(Distributed(), Trainer(), Indexed(), Adapter(), SingleFile()),
)
"""The order counts: others also save to directories that are named like the Trainer's."""
