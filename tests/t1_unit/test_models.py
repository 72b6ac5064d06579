"""Models and their JSON: moments are RFC 3339 there, under names without a unit."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

import admin_api
import gateway
from gateway.common import clock
from gateway.common.models import Model, Nanoseconds, from_json, json_name, to_json

AT_NS = 1_795_426_200_123_456_789
AT = "2026-11-23T09:30:00.123456789Z"


@dataclass(frozen=True, slots=True)
class Inner(Model):
    """A model in a model."""

    since_ns: Nanoseconds | None


@dataclass(frozen=True, slots=True)
class Outer(Model):
    """A model with moments."""

    stored_ns: Nanoseconds
    ages_until_ns: Nanoseconds
    wait_seconds: float
    inner: list[Inner]


ONE = Outer(AT_NS, 0, 1.5, [Inner(None), Inner(-1)])
JSON = {
    "stored_at": AT,
    "ages_until": "1970-01-01T00:00:00.000000000Z",
    "wait_seconds": 1.5,
    "inner": [{"since": None}, {"since": "1969-12-31T23:59:59.999999999Z"}],
}


def test_json_has_moments_as_rfc_3339_and_the_way_back() -> None:
    assert to_json(ONE) == JSON
    assert from_json(Outer, JSON) == ONE


def test_a_report_of_a_process_has_numbers() -> None:
    report = {**JSON, "stored_ns": 7, "inner": [{"since_ns": 8}]}
    assert from_json(Outer, report) == Outer(7, 0, 1.5, [Inner(8)])


def test_a_moment_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match="stored_at"):
        from_json(Outer, {name: one for name, one in JSON.items() if name != "stored_at"})


def test_pydantic_says_the_same() -> None:
    adapter = TypeAdapter(Outer)
    assert adapter.dump_python(ONE, mode="json", by_alias=True) == JSON
    assert adapter.validate_python(JSON) == ONE
    properties = adapter.json_schema(mode="serialization")["properties"]
    assert properties["stored_at"]["format"] == "date-time"


@pytest.mark.parametrize("time_ns", [0, 1, -1, AT_NS, -(1 << 63), (1 << 63) - 1])
def test_a_moment_keeps_each_nanosecond(time_ns: int) -> None:
    assert clock.nanoseconds_of(clock.rfc3339(time_ns)) == time_ns


@pytest.mark.parametrize(
    ("text", "part_ns"),
    [("2026-11-23T10:30:00+01:00", 0), ("2026-11-23T09:30:00.5Z", 500_000_000)],
)
def test_other_forms_of_a_moment_are_read(text: str, part_ns: int) -> None:
    assert clock.nanoseconds_of(text) == AT_NS // clock.NS * clock.NS + part_ns


def models() -> Iterator[Any]:
    """Yield every model of the gateway."""
    for package in (gateway, admin_api):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                importlib.import_module(info.name)
    waiting = [Model]
    while waiting:
        for subclass in waiting.pop().__subclasses__():
            yield subclass
            waiting.append(subclass)


def test_each_moment_of_a_model_has_the_one_form() -> None:
    hints = {
        (model.__name__, field.name): get_type_hints(model, include_extras=True)[field.name]
        for model in models()
        if model.__module__ != __name__
        for field in fields(model)
    }
    assert len(hints) > 300
    moments = {
        key for key, hint in hints.items() if hint == Nanoseconds or Nanoseconds in get_args(hint)
    }
    assert moments == {key for key in hints if key[1].endswith("_ns")}
    # Else a value would stand for another one.
    names = [(model, json_name(name)) for model, name in hints]
    assert len(names) == len(set(names))
