"""Models of the service go to JSON and back, also if the other side is another version."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from gateway.common.models import Model, from_json, to_json


@dataclass(frozen=True, slots=True)
class Inner(Model):
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Outer(Model):
    name: str
    last: Inner | None
    every: list[Inner]
    by_name: dict[str, Inner]
    hosts: list[str] = field(default_factory=list)
    note: str | None = None


FULL = Outer("a", Inner(1), [Inner(2), Inner(3)], {"x": Inner(4)}, ["h"], "why")
BARE = Outer("b", None, [], {})


@pytest.mark.parametrize("model", [FULL, BARE])
def test_json_and_back(model: Outer) -> None:
    found = to_json(model)
    assert list(found) == ["name", "last", "every", "by_name", "hosts", "note"]
    assert from_json(Outer, json.loads(json.dumps(found))) == model


def test_models_in_lists_and_mappings() -> None:
    assert to_json({"a": [Inner(1)], "b": (Inner(2), "x")}) == {
        "a": [{"size_bytes": 1}],
        "b": [{"size_bytes": 2}, "x"],
    }


def test_another_version_has_more_or_less() -> None:
    found = to_json(BARE) | {"new": 1}
    del found["note"], found["hosts"]
    assert from_json(Outer, found) == BARE
    del found["every"]
    with pytest.raises(KeyError, match="every"):
        from_json(Outer, found)
