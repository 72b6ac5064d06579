"""Tells the step and the series of a checkpoint from its name. Pure."""

from __future__ import annotations

import re

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
    count. Parameters: step, which the name has somewhere, or None: then it is a series by itself.
    """
    if step is None:
        return name
    found = COUNTED.sub(rb"\1N", name)
    if found == name:
        return _NUMBER.sub(lambda match: b"N" if int(match[0]) == step else match[0], name)
    return found


def is_plain(series: bytes) -> bool:
    """Return whether a series has no name of its own: ``step-N`` has none, ``sft-step-N`` has."""
    return _PLAIN.fullmatch(series) is not None
