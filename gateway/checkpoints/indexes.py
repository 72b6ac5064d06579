"""Reads what the indexes of checkpoints name: their members, and how long these are. Pure.

An index names members by paths below the directory that it is in. One that cannot be understood is
no evidence for or against a checkpoint. One that is cut off is evidence against it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping

from gateway.checkpoints import pickles
from gateway.checkpoints.archives import UNREADABLE, Reading
from gateway.checkpoints.content import not_json
from gateway.checkpoints.facts import READ_MAX_BYTES, Entry, Parts, Place
from gateway.checkpoints.pickles import CutOff, Made, NotUnderstood, Pairs
from gateway.errors import SpillwayError
from gateway.text import printable

Listing = Mapping[Parts, int]
"""The members that an index names, by path, with their least sizes in bytes."""


class Wrong(SpillwayError):
    """An index shows that its checkpoint is not complete. Its text says why, for people."""


def distributed(place: Place, above: Parts = ()) -> Listing | None:
    """Return what ``.metadata`` of torch.distributed.checkpoint names.

    It is a pickle of ``Metadata``, whose ``storage_data`` has a ``_StorageInfo`` for each piece of
    a tensor (torch/distributed/checkpoint/filesystem.py).

    Parameters: above, the directory in the place that it is in. Returns None if it is not there, is
    larger than READ_MAX_BYTES, or is not understood. Raises Wrong if it is cut off; Unread.
    """
    name = (*above, b".metadata")
    entry = place.inside(*name)
    if entry is None or not entry.is_file or entry.size > READ_MAX_BYTES:
        return None
    if not entry.size:
        raise Wrong(".metadata is empty")
    try:
        _value, made = pickles.read(place.read(name[-1], entry, 0, entry.size))
    except CutOff as exc:
        raise Wrong(".metadata ends too early") from exc
    except NotUnderstood:
        return None
    found: dict[Parts, int] = {}
    for one in made:
        if one.name.endswith("._StorageInfo") and isinstance(one.state, Pairs):
            piece = _piece(one.state)
            if piece is None:
                return None
            path, end = (*above, *piece[0]), piece[1]
            found[path] = max(end, found.get(path, 0))
    return found or None


def _piece(state: Pairs) -> tuple[Parts, int] | None:
    path, offset, length = (state.get(key) for key in ("relative_path", "offset", "length"))
    if not isinstance(path, str) or not isinstance(offset, int) or not isinstance(length, int):
        return None
    return tuple(_bytes(path).split(b"/")), offset + length


def shards(place: Place, name: bytes, entry: Entry) -> Listing:
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
    told = _archive(place, name, entry)
    if told is None:
        return None
    ranks, models = told.get("dp_world_size"), told.get("mp_world_size")
    if not _is_count(ranks) or not _is_count(models) or ranks * models > 100_000:
        return None
    all_ranks = [(rank, model) for model in range(models) for rank in range(ranks)]
    found: dict[Parts, int] = {}
    for rank, model in all_ranks:
        prefix = b"zero_pp_rank_%d_" % rank if name.startswith(b"zero") else b""
        found[(b"%smp_rank_%02d_model_states.pt" % (prefix, model),)] = 1
    if told.get("param_shapes") is not None:
        some = place.ending(_OPTIMIZER_STATES, 1)
        prefix = b"bf16_" if some and some[0].startswith(b"bf16_") else b""
        for rank, model in all_ranks:
            path = b"%szero_pp_rank_%d_mp_rank_%02d%s" % (prefix, rank, model, _OPTIMIZER_STATES)
            found[(path,)] = 1
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _archive(place: Place, name: bytes, entry: Entry) -> Pairs | None:
    """Return the dictionary that ``torch.save`` wrote to a zip archive, or None. Raises Unread."""
    try:
        with zipfile.ZipFile(Reading(place, name, entry)) as archive:
            inner = next(
                (one for one in archive.infolist() if one.filename.endswith("/data.pkl")), None
            )
            if inner is None or inner.file_size > READ_MAX_BYTES:
                return None
            value, _made = pickles.read(archive.read(inner))
    except (*UNREADABLE, CutOff, NotUnderstood):
        return None
    if isinstance(value, Made):  # an OrderedDict
        value = Pairs(value.items)
    return value if isinstance(value, Pairs) else None


def missing(place: Place, listing: Listing) -> str | None:
    """Return which member of an index is not there as the index says, or None."""
    for path, size in sorted(listing.items()):
        found, name = place.inside(*path), printable(b"/".join(path))
        if found is None or not found.is_file:
            return f"{name} is missing"
        if found.size < size:
            return f"{name} is empty" if not found.size else f"{name} ends too early"
    return None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
