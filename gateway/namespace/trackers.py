"""Names of files that name other files, and the parser of what a tracker names. Pure.

A file that names others (an index, the metadata of a checkpoint, a tracker) goes into the bucket
after what it names: a copy of the bucket at any moment then has nothing that leads to what is not
there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

TRACKER_MAX_BYTES = 4096
"""A larger file is no tracker."""
_INDEX = b".index"
_DATA = b".data-"

_RANKS: Sequence[frozenset[bytes]] = (
    frozenset((b".metadata", b"metadata.json")),
    frozenset((b"_CHECKPOINT_METADATA", b"meta.pt")),
    frozenset((b"trainer_state.json",)),
    frozenset((b"commit_success.txt",)),
)
"""The names, in the order in which their frameworks write them."""
_TRACKERS = frozenset((b"latest_checkpointed_iteration.txt", b"checkpoint"))
_MEGATRON = b"latest_checkpointed_iteration.txt"
_TENSORFLOW = re.compile(rb'^model_checkpoint_path: "([^"\n]+)"', re.MULTILINE)
_STEP = re.compile(
    rb"(?:^|[-_.=])(?:global_?step|steps?|iteration|iter|checkpoint|ckpt|epoch)[-_=]?[0-9]"
)
_TEMPORARY = re.compile(rb"te?mp|partial|incomplete|unfinished|[-_.]")
_NUMBER = re.compile(rb"[0-9]{1,18}")


def rank_of(name: bytes) -> int | None:
    """Return the place of a file among those that name others in the same directory, or None if it
    names none. Lower places go first."""
    for rank, names in enumerate(_RANKS):
        if name in names:
            return rank
    if name.endswith(b".index.json"):
        return 0
    return len(_RANKS) if is_tracker(name) else None


def is_tracker(name: bytes) -> bool:
    """Return whether a file beside checkpoints may say which of them is the newest."""
    return name in _TRACKERS or name.startswith(b"latest")


def data_of(name: bytes) -> bytes | None:
    """Return what the names of the files begin with whose index a file would be, as those of
    TensorFlow: ``ckpt-3.data-`` for ``ckpt-3.index``. None: its name is another one."""
    stem = name.removesuffix(_INDEX)
    return stem + _DATA if stem and stem != name else None


def is_step(name: bytes) -> bool:
    """Return whether a name has the number of a step in it."""
    return _STEP.search(name) is not None


def is_half_save(name: bytes) -> bool:
    """Return whether a temporary name is that of one checkpoint, and not of a run."""
    return is_step(name) or _TEMPORARY.sub(b"", name).isdigit()


class TrackedName(NamedTuple):
    """What a tracker names in its own directory."""

    names: Sequence[bytes]
    """The names that it may mean. The first that is there is meant."""
    step: int | None
    """The step that it may mean, if none of the names is there."""
    is_certain: bool
    """Whether it can mean nothing but a checkpoint."""


def named_by(tracker: bytes, text: bytes) -> TrackedName | None:
    """Return what a tracker of a name says, or None if it is no name and no number."""
    if (match := _TENSORFLOW.search(text)) is not None:
        name = _last(match[1])
        return None if name is None else TrackedName((name, name + _INDEX), None, True)
    name = _last(text.strip())
    if name is None:
        return None
    if _NUMBER.fullmatch(name) is None:
        return TrackedName((name,), None, is_step(name))
    number = int(name)
    names = (b"iter_%07d" % number, b"global_step%d" % number, b"global_step_%d" % number, name)
    return TrackedName(names, number, tracker == _MEGATRON)


def _last(path: bytes) -> bytes | None:
    """Return the last name of a path, or None if a text is no path."""
    name = path.rstrip(b"/").rpartition(b"/")[2]
    is_name = 0 < len(name) <= 255 and name not in (b".", b"..")
    return name if is_name and not re.search(rb"[\x00-\x1f]", path) else None
