"""Service for the configuration as it is in force, without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from gateway.common.errors import ConfigError
from gateway.common.models import Model
from gateway.config.loader import variable_of
from gateway.config.settings import SECTIONS, Settings
from gateway.db import url

MASK = "***"
SECRET_PATH_MIN = 16
"""A shorter path of a URL is no secret, and may be a word of any text."""
# Up to the last @: a password with a slash must not be shown, however wrong such a URL is.
_USERINFO = re.compile(r"^([a-z][a-z0-9+.-]*://).*@", re.IGNORECASE | re.DOTALL)


def without_userinfo(url: str) -> str:
    """Return a URL without user and password, which stand before an @ (RFC 3986, 3.2.1)."""
    return _USERINFO.sub(rf"\1{MASK}@", url)


@dataclass(frozen=True, slots=True)
class Key(Model):
    """One key of the configuration."""

    value: Any
    """The value that is in force. What may be a password is ***."""
    default: Any
    """None: it has none."""
    doc: str
    variable: str = field(metadata={"examples": ["SPILLWAY_DRAIN_WORKERS"]})
    """The environment variable that overrides it."""
    is_overridden: bool
    """Whether that variable is set in this process."""
    is_secret: bool
    """Whether it may hold a password."""


@dataclass(frozen=True, slots=True)
class Configuration(Model):
    """All keys, by section."""

    source: str = field(metadata={"examples": ["/etc/spillway/spillway.toml"]})
    sections: dict[str, dict[str, Key]]


def model(settings: Settings) -> Configuration:
    """Return each key by section: its value, its default, what it means, what overrides it."""
    sections = {
        section: {
            spec.name: Key(
                value=_shown(section, spec, getattr(getattr(settings, section), spec.name)),
                default=None if spec.default is MISSING else _plain(spec.default),
                doc=" ".join(spec.metadata["doc"].split()),
                variable=variable_of(section, spec.name),
                is_overridden=variable_of(section, spec.name) in os.environ,
                is_secret=spec.metadata["secret"],
            )
            for spec in fields(cls)
        }
        for section, cls in SECTIONS.items()
    }
    return Configuration(str(settings.source), sections)


def secrets_of(settings: Settings) -> Iterator[str]:
    """Yield the secrets that a configuration has, and the files that it names for webhooks."""
    for section, cls in SECTIONS.items():
        for spec in fields(cls):
            value = getattr(getattr(settings, section), spec.name)
            if spec.metadata["secret"] and isinstance(value, str):
                yield from _secrets_in(value)
    for table in settings.webhooks.receiver:
        path = table["url"].partition("://")[2].partition("/")[2]
        if len(path) >= SECRET_PATH_MIN:
            yield path
        with suppress(OSError, UnicodeDecodeError):
            text = Path(table["secret_file"]).read_text(encoding="ascii").strip()
            yield from (text, text.removeprefix("whsec_"))


def _secrets_in(text: str) -> Iterator[str]:
    """Yield the passwords of a URL, also of one that is wrong."""
    if (match := _USERINFO.match(text)) is not None:
        yield match[0][len(match[1]) : -1].partition(":")[2]
    try:
        parsed = url.parse(text)
    except ConfigError:
        return
    if parsed.password:
        yield str(parsed.password)
    for name, value in parsed.query.items():
        if "password" in name and isinstance(value, str):
            yield value


def _shown(section: str, spec: Any, value: Any) -> Any:
    """Return a value as it may be shown: a URL without what may be a password."""
    if not spec.metadata["secret"] or value in ("", None, ()):
        return _plain(value)
    if section == "webhooks":
        return [{**table, "url": _without_path(table["url"])} for table in value]
    if section == "namespace":
        try:
            return url.safe(url.parse(value))
        except ConfigError:
            return MASK
    return without_userinfo(value) if "://" in str(value) else MASK


def _without_path(address: str) -> str:
    """Return a URL as it may be shown, whose path may be a secret."""
    scheme, _, rest = address.partition("://")
    host, slash, _ = rest.partition("/")
    return f"{scheme}://{host}/{MASK}" if slash else address


def _plain(value: Any) -> Any:
    """Return a value in the forms that JSON has."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(member) for member in value]
    return value
