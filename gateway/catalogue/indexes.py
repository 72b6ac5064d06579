"""Readers of checkpoint indexes (members and their lengths), and of steps in names. Pure.

An index names members by paths below the directory that it is in. One that cannot be understood is
no evidence for or against a checkpoint. One that is cut off is evidence against it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping

from gateway.catalogue import content
from gateway.catalogue.content import (
    UNREADABLE,
    ArchiveReader,
    CutOff,
    Made,
    NotUnderstood,
    Pairs,
    not_json,
)
from gateway.catalogue.facts import READ_MAX_BYTES, Parts, Place, PlaceEntry
from gateway.common.errors import SpillwayError
from gateway.common.text import printable

Listing = Mapping[Parts, int]
"""The members that an index names, by path, with their least sizes in bytes."""


class Wrong(SpillwayError):
    """An index shows that its checkpoint is not complete. Its text says why, for people."""


def distributed(place: Place, above: Parts = ()) -> Listing | None:
    """Return what ``.metadata`` of torch.distributed.checkpoint names.

    It is a pickle of ``Metadata``, whose ``storage_data`` has a ``_StorageInfo`` for each piece of
    a tensor (torch/distributed/checkpoint/filesystem.py).

    Returns None if it is not there, is larger than READ_MAX_BYTES, or is not understood. Raises
    Wrong if it is cut off; Unread.

    Args:
        above: the directory in the place that it is in.
    """
    name = (*above, b".metadata")
    entry = place.inside(*name)
    if entry is None or not entry.is_file or entry.size > READ_MAX_BYTES:
        return None
    if not entry.size:
        raise Wrong(".metadata is empty")
    try:
        _value, made = content.read(place.read(name[-1], entry, 0, entry.size))
    except CutOff as exc:
        raise Wrong(".metadata ends too early") from exc
    except NotUnderstood:
        return None
    sizes: dict[Parts, int] = {}
    for instance in made:
        if instance.name.endswith("._StorageInfo") and isinstance(instance.state, Pairs):
            piece = _piece(instance.state)
            if piece is None:
                return None
            path, end = (*above, *piece[0]), piece[1]
            sizes[path] = max(end, sizes.get(path, 0))
    return sizes or None


def _piece(state: Pairs) -> tuple[Parts, int] | None:
    path, offset, length = (state.get(key) for key in ("relative_path", "offset", "length"))
    if not isinstance(path, str) or not isinstance(offset, int) or not isinstance(length, int):
        return None
    return tuple(_bytes(path).split(b"/")), offset + length


def shards(place: Place, name: bytes, entry: PlaceEntry) -> Listing:
    """Return the shards that ``*.index.json`` of transformers names. Raises Wrong, Unread."""
    reason, index = not_json(place, name, entry)
    if reason is not None:
        raise Wrong(reason)
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise Wrong(f"{printable(name)} names no shards")
    if not all(isinstance(shard, str) for shard in weights.values()):
        raise Wrong(f"{printable(name)} names no shards")
    return dict.fromkeys((tuple(_bytes(shard).split(b"/")) for shard in weights.values()), 1)


_MODEL_STATES = re.compile(rb"(?:zero_pp_rank_0_)?mp_rank_00_model_states\.pt")
_OPTIMIZER_STATES = b"_optim_states.pt"


def deepspeed(place: Place) -> Listing | None:
    """Return the files of all ranks of a checkpoint of DeepSpeed.

    The first rank's file of the model tells the number of ranks, and by ``param_shapes`` whether
    ZeRO has divided the optimizer (deepspeed/runtime/engine.py: ``_save_checkpoint``,
    ``_get_zero_ckpt_name``, ``_get_ckpt_name``). Experts and pipelines have files that it does not
    tell of.

    Returns: None if that cannot be told. Raises Unread.
    """
    name = next(iter(filter(_MODEL_STATES.fullmatch, place.ending(b"_model_states.pt", 4096))), b"")
    entry = place.inside(name) if name else None
    if entry is None or not entry.is_file or place.starting(b"layer_", 1):
        return None
    saved = _archive(place, name, entry)
    if saved is None:
        return None
    ranks, models = saved.get("dp_world_size"), saved.get("mp_world_size")
    if not _is_count(ranks) or not _is_count(models) or ranks * models > 100_000:
        return None
    all_ranks = [(rank, model) for model in range(models) for rank in range(ranks)]
    sizes: dict[Parts, int] = {}
    for rank, model in all_ranks:
        prefix = b"zero_pp_rank_%d_" % rank if name.startswith(b"zero") else b""
        sizes[(b"%smp_rank_%02d_model_states.pt" % (prefix, model),)] = 1
    if saved.get("param_shapes") is not None:
        some = place.ending(_OPTIMIZER_STATES, 1)
        prefix = b"bf16_" if some and some[0].startswith(b"bf16_") else b""
        for rank, model in all_ranks:
            path = b"%szero_pp_rank_%d_mp_rank_%02d%s" % (prefix, rank, model, _OPTIMIZER_STATES)
            sizes[(path,)] = 1
    return sizes


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _archive(place: Place, name: bytes, entry: PlaceEntry) -> Pairs | None:
    """Return the dictionary that ``torch.save`` wrote to a zip archive, or None. Raises Unread."""
    try:
        with zipfile.ZipFile(ArchiveReader(place, name, entry)) as archive:
            inner = next(
                (member for member in archive.infolist() if member.filename.endswith("/data.pkl")),
                None,
            )
            if inner is None or inner.file_size > READ_MAX_BYTES:
                return None
            value, _made = content.read(archive.read(inner))
    except (*UNREADABLE, CutOff, NotUnderstood):
        return None
    if isinstance(value, Made):  # an OrderedDict
        value = Pairs(value.items)
    return value if isinstance(value, Pairs) else None


def missing(place: Place, listing: Listing) -> str | None:
    """Return which member of an index is not there as the index says, or None."""
    for path, size in sorted(listing.items()):
        entry, name = place.inside(*path), printable(b"/".join(path))
        if entry is None or not entry.is_file:
            return f"{name} is missing"
        if entry.size < size:
            return f"{name} is empty" if not entry.size else f"{name} ends too early"
    return None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_WORDS = rb"global_?step|steps?|iteration|iter|checkpoint|ckpt|epoch"
_WORD = rb"(?:^|[-_.=])(?:%s)[-_=]?([0-9]{1,18})(?![0-9])"
_NO_END = rb"(?![0-9A-Za-z]|[._][0-9])"
"""10k, 1.5 and 1_000 are no steps."""
_STEP = re.compile(_WORD % rb"global_?step|steps?|iteration|iter" + _NO_END)
_OTHER = re.compile(_WORD % rb"checkpoint|ckpt|epoch" + _NO_END)
_BATCH = re.compile(rb"ep[0-9]{1,18}-ba([0-9]{1,18})(?![0-9A-Za-z])")
"""Composer: ``ep<epoch>-ba<batch>``."""
_NUMBER = re.compile(rb"[0-9]+")
_ALONE = re.compile(rb"([^0-9]*)([0-9]{1,18})([^0-9]*)", re.DOTALL)
_DIVIDED = re.compile(
    rb"(?:^|[^a-z])(?:rank|shard|part|proc|process|worker|node|host|gpu|device|layer|expert|model|"
    rb"optimizer|[tpdme]p|seed|fold|trial|job|task|run|exp|version|v)[-_=.]?$",
    re.IGNORECASE,
)
"""What is before a number that counts the parts of one checkpoint, or jobs."""
COUNTED = re.compile(
    rb"((?:^|[-_.=/])(?:%s|ep)[-_=]?|-ba|[^-_.=]=)(-?[0-9]+(?:\.[0-9]+)*)" % _WORDS
)
"""A number that differs from checkpoint to checkpoint of one series: ``epoch=3``, ``loss=1.5``."""

_PLAIN = re.compile(rb"(?:[-_.=]?(?:%s)[-_=]?N|epN-baN)+|N" % _WORDS)


def step_in(name: bytes) -> int | None:
    """Return the step that a name tells with a word, as frameworks write it, or None."""
    match = _STEP.search(name) or _BATCH.match(name) or _OTHER.search(name)
    return None if match is None else int(match[1])


def lone_number(name: bytes) -> tuple[bytes, int, bytes] | None:
    """Return the only number in a name without such a word, with what is before and after it. It is
    a step only if a sibling has the same name but for the number. None: there is none, or there
    are several, as in dates."""
    match = _ALONE.fullmatch(name)
    if match is None or re.match(_NO_END, match[3]) is None or _DIVIDED.search(match[1]):
        return None
    return match[1], int(match[2]), match[3]


def series_of(name: bytes, step: int | None) -> bytes:
    """Return the name that all checkpoints of a series share: with N in place of the numbers that
    count.

    Args:
        step: which the name has somewhere, or None: then it is a series by itself.
    """
    if step is None:
        return name
    series = COUNTED.sub(rb"\1N", name)
    if series == name:
        return _NUMBER.sub(lambda match: b"N" if int(match[0]) == step else match[0], name)
    return series


def is_plain(series: bytes) -> bool:
    """Return whether a series has no name of its own: ``step-N`` has none, ``sft-step-N`` has."""
    return _PLAIN.fullmatch(series) is not None
