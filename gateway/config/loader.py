"""Loader of the configuration, one TOML file, into frozen settings, and writer of a new one.

``SPILLWAY_<SECTION>_<KEY>`` in the environment overrides the file.
"""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from gateway.common.errors import ConfigError, UserError
from gateway.config import checks
from gateway.config.settings import SECTIONS, Settings

T = TypeVar("T")

log = logging.getLogger(__name__)


def load(path: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the configuration.

    Args:
        path: of the TOML file.
        environ: the environment (default: the process's).

    Raises:
        ConfigError: a key is unknown, a type wrong or a value out of range.
        UserError: the file cannot be read or is not TOML.
    """
    environ = os.environ if environ is None else environ
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no configuration at {path}: run: spillway init --config {path}") from None
    except OSError as exc:
        raise UserError(f"cannot read {path}: {exc.strerror}: check its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UserError(f"{path} is not valid TOML: {exc}: correct that line") from None
    return from_mapping(raw, environ, path)


def from_mapping(
    raw: Mapping[str, Any], environ: Mapping[str, str], source: Path = Path("<memory>")
) -> Settings:
    """Check a parsed configuration and overlay the environment. Raises ConfigError."""
    for name, value in raw.items():
        if name not in SECTIONS:
            raise ConfigError(name, None, f"no such section; there are {', '.join(SECTIONS)}")
        if not isinstance(value, dict):
            raise ConfigError(name, None, f"must be a section: [{name}]")
    sections = {
        name: section(name, cls, dict(raw.get(name, {})), environ) for name, cls in SECTIONS.items()
    }
    bucket = sections["bucket"]
    if bucket.kms_key and not bucket.encryption.startswith("aws:kms"):
        raise ConfigError("bucket.kms_key", bucket.kms_key, "needs bucket.encryption = aws:kms")
    if not bucket.path_style and checks.is_address(bucket.endpoint_url):
        raise ConfigError(
            "bucket.path_style", False, "needs a host name in bucket.endpoint_url, not an address"
        )
    return Settings(**sections, source=source)


def section(name: str, cls: type[T], raw: dict[str, Any], environ: Mapping[str, str]) -> T:
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    for spec in known.values():
        raw, environ = _with_todays_name(name, spec, raw, environ)
    for key in raw:
        if key not in known:
            # The value is not quoted: it may be a secret that was put into the wrong file.
            raise ConfigError(
                f"{name}.{key}", None, f"no such key; [{name}] has {', '.join(known)}"
            )
    values: dict[str, Any] = {}
    for key, spec in known.items():
        try:
            values[key] = _value(name, spec, hints[key], raw, environ)
        except ConfigError as exc:
            if spec.metadata["secret"]:
                raise ConfigError(exc.key, None, exc.remedy) from None
            raise
    return cls(**values)


def _with_todays_name(
    section: str, spec: Field[Any], raw: dict[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Return what is set, with the name of today for a key of the release before. Raises
    ConfigError if both are set."""
    earlier: str | None = spec.metadata["earlier"]
    if earlier is None:
        return raw, environ
    for given, old, new in (
        (raw, earlier, spec.name),
        (environ, variable_of(section, earlier), variable_of(section, spec.name)),
    ):
        if old in given and new in given:
            raise ConfigError(new, None, f"is set as {old} too, its earlier name: remove that")
    if earlier in raw:
        log.warning(
            "%s.%s is %s.%s now: rename it in the file", section, earlier, section, spec.name
        )
        raw = {spec.name if key == earlier else key: value for key, value in raw.items()}
    old, new = variable_of(section, earlier), variable_of(section, spec.name)
    if old in environ:
        log.warning("%s is %s now: rename it in the environment", old, new)
        environ = {**environ, new: environ[old]}
    return raw, environ


def variable_of(section: str, key: str) -> str:
    """Return the name of the environment variable that overrides a key."""
    return f"SPILLWAY_{section}_{key}".upper()


def _value(
    section: str, spec: Field[Any], hint: Any, raw: dict[str, Any], environ: Mapping[str, str]
) -> Any:
    variable = variable_of(section, spec.name)
    where = f"{section}.{spec.name}"
    if variable in environ:
        where = variable
        value = _from_text(where, _renewed(spec, environ[variable]), hint)
    elif spec.name in raw:
        value = _from_toml(where, _renewed(spec, raw[spec.name]), hint)
    elif spec.default is MISSING:
        raise ConfigError(where, None, f"is required; set it in [{section}] or as {variable}")
    else:
        value = spec.default
    check = spec.metadata["check"]
    if check is not None and (problem := check(value)) is not None:
        raise ConfigError(where, str(value) if isinstance(value, Path) else value, problem)
    return value


def _renewed(spec: Field[Any], given: Any) -> Any:
    """Return what is given for a key; on or off if it is true or false of an earlier version."""
    if not spec.metadata["was_switch"] or not isinstance(given, (bool, str)):
        return given
    return {"true": "on", "false": "off"}.get(str(given).lower(), given)


def _from_toml(where: str, value: Any, hint: Any) -> Any:
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(where, value, 'must be a list of strings, like ["*.tmp"]')
    if hint == tuple[Mapping[str, Any], ...]:
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return tuple(value)
        raise ConfigError(where, None, f"must be tables: [[{where}]]")
    if type(value) is not hint:
        wanted = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
        raise ConfigError(where, value, f"must be {wanted.get(hint, 'a path in quotes')}")
    return value


def _from_text(where: str, text: str, hint: Any) -> Any:
    if hint in (str, Path):
        return hint(text)
    try:
        return _from_toml(where, json.loads(text), hint)
    except json.JSONDecodeError:
        raise ConfigError(where, text, "cannot be read; write it as in the TOML file") from None


def render(values: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the commented TOML file with every key. A key without a given value is a comment."""
    out = ["# Spillway's configuration. A key in a comment shows its default.\n"]
    for name, cls in SECTIONS.items():
        out.append(f"\n[{name}]\n")
        given = values.get(name, {})
        for spec in fields(cls):
            out += [f"# {line}\n" for line in spec.metadata["doc"].splitlines()]
            if spec.name in given:
                out.append(f"{spec.name} = {to_toml(given[spec.name])}\n")
            else:
                value = "" if spec.default is MISSING else spec.default
                out.append(f"# {spec.name} = {to_toml(value)}\n")
    return "".join(out)


def to_toml(value: Any) -> str:
    """Return a value as TOML has it in one line."""
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(to_toml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {to_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
