"""Policies of retention, parsed from the form in which people write them. Pure.

The words follow Orbax: a policy selects checkpoints, and its keeps hold some of them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from gateway.common.errors import PolicyError, SpillwayError
from gateway.common.patterns import text_of
from gateway.common.types import ARCHIVES, READ_AT_ONCE
from gateway.config import checks

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
FIRST, AUTOMATIC = "first", "automatic"
"""The values of ``approve``."""
NAME = re.compile("[a-z][a-z0-9-]{0,31}")
_AGES_MAX = 36_500


@dataclass(frozen=True)
class Best:
    """The keep of the best checkpoints by a metric."""

    number: int
    file: str
    """Path of a JSON file in the checkpoint."""
    key: str
    """The key of the number. A dot leads into an object that has no key of the whole name."""
    best: str
    """``min`` or ``max``."""
    unmeasured: str
    """``keep`` or ``delete``: what becomes of a checkpoint without this number."""


@dataclass(frozen=True)
class Tier:
    """Keeps one checkpoint for each interval, among those that are older than an age."""

    older_than_ns: int
    one_per_ns: int


@dataclass(frozen=True)
class Policy:
    """A policy. None: it does not say this."""

    name: str
    run: str | None
    path: str | None
    keep_newest: int | None
    keep_every_steps: int | None
    keep_best: Best | None
    thin: tuple[Tier, ...]
    """The tiers in the order of their ages."""
    delete_after_ns: int | None
    wait_ns: int
    evict_after_ns: int | None
    transition_after_ns: int | None
    storage_class: str | None
    approve: str
    """``first``: the first plan of each version waits for a person. ``automatic``: it does not."""
    document: Mapping[str, Any] = field(compare=False)
    """The policy as it was written."""

    @cached_property
    def deletes(self) -> bool:
        """Whether it can delete anything: a policy without a keep or an age does not."""
        keeps = (self.keep_newest, self.keep_every_steps, self.keep_best, self.delete_after_ns)
        return bool(self.thin) or any(keep_rule is not None for keep_rule in keeps)

    @cached_property
    def is_by_age(self) -> bool:
        """Whether it deletes a checkpoint for its age, and for no other reason."""
        keeps = (self.keep_newest, self.keep_every_steps, self.keep_best)
        is_only = not self.thin and all(keep_rule is None for keep_rule in keeps)
        return self.delete_after_ns is not None and is_only

    def selects(self, run: bytes, path: bytes) -> bool:
        """Return whether a checkpoint is under this policy."""
        of_run, of_path = self._matches
        return (of_run is None or of_run(text_of(run)) is not None) and (
            of_path is None or of_path(text_of(path)) is not None
        )

    @cached_property
    def _matches(self) -> tuple[Callable[[str], object] | None, Callable[[str], object] | None]:
        return _match_of(self.run), _match_of(self.path)


def _match_of(pattern: str | None) -> Callable[[str], object] | None:
    return None if pattern is None else re.compile(fnmatch.translate(pattern.strip("/"))).match


def read(document: Any) -> list[Policy]:
    """Read ``{"policy": [...]}``, as TOML or JSON gives it. Raises PolicyError."""
    if not isinstance(document, dict) or set(document) != {"policy"}:
        raise PolicyError("a file of policies has tables [[policy]], and nothing else")
    tables = document["policy"]
    if not isinstance(tables, list) or not tables:
        raise PolicyError("policy: must be tables: [[policy]]")
    policies = [of(table) for table in tables]
    names = [policy.name for policy in policies]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PolicyError(f"there are two policies with the name {twice[0]}")
    return policies


def of(table: Any) -> Policy:
    """Read one policy. Raises PolicyError, which names the policy and the key."""
    if not isinstance(table, dict):
        raise PolicyError("policy: must be tables: [[policy]]")
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PolicyError(f'a policy has name = {name!r}: must look like name = "our-runs"')
    try:
        return _read(name, table)
    except _Wrong as exc:
        raise PolicyError(f"policy {name}: {exc}") from None


class _Wrong(SpillwayError):
    """What is wrong with a key."""


def _read(name: str, table: Mapping[str, Any]) -> Policy:
    _known(table, _KEYS, "")
    for key, (kind, check) in _KEYS.items():
        _value(table, key, kind, check)
    if "run" not in table and "path" not in table:
        raise _Wrong('must say which checkpoints: run = "jobs/llama*", path = "scratch/*" or both')
    says = [key for key in _KEYS if key not in ("name", "run", "path", "wait_hours", "approve")]
    if not any(key in table for key in says):
        raise _Wrong(f"says nothing to do: it needs one of {', '.join(says)}")
    thin = tuple(_tier(tier) for tier in table.get("thin", ()))
    if any(old.older_than_ns >= new.older_than_ns for old, new in pairwise(thin)):
        raise _Wrong("thin: older_than_days must grow from table to table")
    policy = Policy(
        name=name,
        run=table.get("run"),
        path=table.get("path"),
        keep_newest=table.get("keep_newest"),
        keep_every_steps=table.get("keep_every_steps"),
        keep_best=_best(table["keep_best"]) if "keep_best" in table else None,
        thin=thin,
        delete_after_ns=_ns(table, "delete_after_days", DAY_NS),
        wait_ns=_ns({"wait_hours": 1, **table}, "wait_hours", HOUR_NS) or 0,
        evict_after_ns=_ns(table, "evict_after_hours", HOUR_NS),
        transition_after_ns=_ns(table, "transition_after_days", DAY_NS),
        storage_class=table.get("storage_class"),
        approve=table.get("approve", FIRST),
        document=dict(table),
    )
    if (policy.storage_class is None) != (policy.transition_after_ns is None):
        raise _Wrong('storage_class and transition_after_days go together: "STANDARD_IA", 30')
    for key in ("wait_hours", "approve"):
        if key in table and not policy.deletes:
            raise _Wrong(f"{key}: deletes nothing without a keep, thin or delete_after_days")
    return policy


def _best(table: Mapping[str, Any]) -> Best:
    _known(table, _BEST_KEYS, "keep_best.")
    for key, (kind, check) in _BEST_KEYS.items():
        if key not in table and key != "unmeasured":
            raise _Wrong(f"keep_best.{key}: is missing")
        _value(table, key, kind, check, "keep_best.")
    return Best(**{"unmeasured": "keep", **table})


def _tier(table: Mapping[str, Any]) -> Tier:
    _known(table, _TIER_KEYS, "thin.")
    for key, (kind, check) in _TIER_KEYS.items():
        if key not in table:
            raise _Wrong(f"thin.{key}: is missing")
        _value(table, key, kind, check, "thin.")
    return Tier(
        _ns(table, "older_than_days", DAY_NS) or 0, _ns(table, "one_per_hours", HOUR_NS) or 1
    )


def _known(table: Mapping[str, Any], keys: Mapping[str, object], prefix: str) -> None:
    for key in table:
        if key not in keys:
            raise _Wrong(f"{prefix}{key}: no such key; there are {', '.join(keys)}")


_WANTED = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    dict: "a table",
    list: "tables",
}


def _value(
    table: Mapping[str, Any], key: str, kind: type, check: checks.Check, prefix: str = ""
) -> None:
    if key not in table:
        return
    value = table[key]
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise _Wrong(f"{prefix}{key} = {value!r}: must be {_WANTED[kind]}")
    if (problem := check(value)) is not None:
        raise _Wrong(f"{prefix}{key} = {value!r}: {problem}")


def _ns(table: Mapping[str, Any], key: str, unit_ns: int) -> int | None:
    return int(table[key] * unit_ns) if key in table else None


def _file(value: str) -> str | None:
    wrong = {"", ".", ".."} & set(value.split("/"))
    # JSON can escape half of a character, which no name has.
    is_half = any("\ud800" <= character <= "\udfff" for character in value)
    return "must be a path in the checkpoint, like metrics.json" if wrong or is_half else None


def _tables(value: Sequence[object]) -> str | None:
    if value and all(isinstance(item, dict) for item in value):
        return None
    return "must be tables, like [{older_than_days = 1, one_per_hours = 1}]"


def _storage_class(value: str) -> str | None:
    if value in ARCHIVES:
        return "its objects cannot be read at once: use a lifecycle rule of the bucket"
    return checks.one_of(READ_AT_ONCE)(value)


def _any(_value: object) -> str | None:
    return None


_COUNT = checks.between(1, 10**6)
_KEYS: Mapping[str, tuple[type, checks.Check]] = {
    "name": (str, _any),
    "run": (str, checks.not_empty),
    "path": (str, checks.not_empty),
    "keep_newest": (int, _COUNT),
    "keep_every_steps": (int, checks.between(1, 10**18)),
    "keep_best": (dict, _any),
    "thin": (list, _tables),
    "delete_after_days": (float, checks.between(0.001, _AGES_MAX)),
    "wait_hours": (float, checks.between(0, 24 * _AGES_MAX)),
    "evict_after_hours": (float, checks.between(0, 24 * _AGES_MAX)),
    "transition_after_days": (float, checks.between(0, _AGES_MAX)),
    "storage_class": (str, _storage_class),
    "approve": (str, checks.one_of((FIRST, AUTOMATIC))),
}
_BEST_KEYS: Mapping[str, tuple[type, checks.Check]] = {
    "number": (int, _COUNT),
    "file": (str, _file),
    "key": (str, checks.not_empty),
    "best": (str, checks.one_of(("min", "max"))),
    "unmeasured": (str, checks.one_of(("keep", "delete"))),
}
_TIER_KEYS: Mapping[str, tuple[type, checks.Check]] = {
    "older_than_days": (float, checks.between(0, _AGES_MAX)),
    "one_per_hours": (float, checks.between(0.01, 24 * _AGES_MAX)),
}
