"""Base of the models that the service returns, their JSON, and the way back from it. Pure.

A model is a frozen dataclass below ``Model``. The text below a field says what it means, and its
name ends in its unit: the OpenAPI document of the admin API shows both.

A moment is a field of the type ``Nanoseconds``, whose name ends in ``_ns``. JSON has it as RFC 3339
and under another name (``json_name``): programs in JavaScript would round the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from gateway.common import clock

_AS_THEY_ARE = ("at", "since", "until", "time")
"""A moment whose name ends in one of these words needs no ``_at``."""


def json_name(name: str) -> str:
    """Return the name that a field has in JSON: ``complete_ns`` is ``complete_at`` there."""
    stem = name.removesuffix("_ns")
    if stem == name or stem.rpartition("_")[2] in _AS_THEY_ARE:
        return stem
    return f"{stem}_at"


class _Rfc3339:
    """Says to pydantic how the admin API writes a moment, and how its OpenAPI document shows it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        # Here, because only the process of the admin API has imported it.
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            _moment,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(clock.rfc3339),
        )

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


def _moment(text: Any) -> Any:
    return clock.nanoseconds_of(text) if isinstance(text, str) else text


Nanoseconds = Annotated[int, _Rfc3339()]
"""A moment: nanoseconds since 1970."""


class Model:
    """Base of what the service returns."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    # Without the first, the OpenAPI document would have no descriptions.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "use_attribute_docstrings": True,
        "alias_generator": json_name,
        "populate_by_name": True,
    }


M = TypeVar("M", bound=Model)


def to_json(value: Any) -> Any:
    """Return a model, or lists and mappings with models in them, as JSON has it."""
    if isinstance(value, Model):
        return {
            json_name(name): clock.rfc3339(member) if _is_moment(name, member) else to_json(member)
            for name, member in values_of(value).items()
        }
    if isinstance(value, Mapping):
        return {name: to_json(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(member) for member in value]
    return value


def _is_moment(name: str, value: Any) -> bool:
    return name.endswith("_ns") and value is not None


def values_of(model: Model) -> dict[str, Any]:
    """Return the values of a model by the names of its fields, for a model that has more."""
    return {name: getattr(model, name) for name in model.__dataclass_fields__}


def from_json(model: type[M], found: Mapping[str, Any]) -> M:
    """Return the model that a JSON object stands for. Members without a field are dropped: another
    version of the gateway may have more.

    Args:
        model: class of the model.
        found: what ``to_json`` made, or a report of a process, which has fields under their names
            in Python and moments as numbers.

    Raises:
        KeyError: a member is missing.
    """
    kind: Any = model  # mypy takes no class for hashable
    hints = _hints(kind)
    values = {}
    for field in fields(model):
        name = field.name if field.name in found else json_name(field.name)
        if name in found or field.default is field.default_factory is MISSING:
            read = _moment if field.name.endswith("_ns") else partial(_value, hints[field.name])
            values[field.name] = read(found[name])
    return model(**values)


@cache
def _hints(model: Any) -> dict[str, Any]:
    return get_type_hints(model)


def _value(hint: Any, value: Any) -> Any:
    """Return the value of a field. Args: hint, its type."""
    if isinstance(hint, type) and issubclass(hint, Model):
        return from_json(hint, value)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None:
            return None
        inside = [member_type for member_type in inner if member_type is not type(None)]
        # One of several types is a plain one: int or float.
        return _value(inside[0], value) if len(inside) == 1 else value
    if origin is list and isinstance(value, list):
        return [_value(inner[0], member) for member in value]
    if origin is dict and isinstance(value, dict):
        return {name: _value(inner[1], member) for name, member in value.items()}
    return value
