"""Models of what the service returns, their JSON, and the way back from it. Pure.

A model is a frozen dataclass below ``Model``. The text below a field says what it means, and its
name ends in its unit: the OpenAPI document of the admin API shows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints


class Model:
    """Base of what the service returns."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    # The OpenAPI document would have no descriptions.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}


M = TypeVar("M", bound=Model)


def to_json(value: Any) -> Any:
    """Return a model, or lists and mappings with models in them, as JSON has it."""
    if isinstance(value, Model):
        return {name: to_json(one) for name, one in values_of(value).items()}
    if isinstance(value, Mapping):
        return {name: to_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return value


def values_of(model: Model) -> dict[str, Any]:
    """Return the values of a model by the names of its fields, for a model that has more."""
    return {name: getattr(model, name) for name in model.__dataclass_fields__}


def from_json(model: type[M], found: Mapping[str, Any]) -> M:
    """Return the model that a JSON object stands for. Members without a field are dropped: another
    version of the gateway may have more.

    Args:
        model: class of the model.
        found: what ``to_json`` made.

    Raises:
        KeyError: a member is missing.
    """
    kind: Any = model  # mypy takes no class for hashable
    hints = _hints(kind)
    return model(
        **{
            one.name: _value(hints[one.name], found[one.name])
            for one in fields(model)
            if one.name in found or one.default is one.default_factory is MISSING
        }
    )


@cache
def _hints(model: Any) -> dict[str, Any]:
    return get_type_hints(model)


def _value(hint: Any, found: Any) -> Any:
    """Return the value of a field. Args: hint, its type."""
    if isinstance(hint, type) and issubclass(hint, Model):
        return from_json(hint, found)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if found is None:
            return None
        inside = [one for one in inner if one is not type(None)]
        # One of several types is a plain one: int or float.
        return _value(inside[0], found) if len(inside) == 1 else found
    if origin is list and isinstance(found, list):
        return [_value(inner[0], one) for one in found]
    if origin is dict and isinstance(found, dict):
        return {name: _value(inner[1], one) for name, one in found.items()}
    return found
