"""What a site says in the file of the first boot. All of it is checked before anything is done.

The file is a configuration of Spillway with the tables [machine], [credentials] and [admin_token],
and with any number of [[export]] and [[policy]].
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any

from gateway import checks, config
from gateway.adminsettings import TLS_SELF_SIGNED, token_hash, token_id
from gateway.clients import Squash
from gateway.declare import key as _key
from gateway.errors import ConfigError, UserError
from gateway.exports.export import require_clients, require_name
from gateway.retention.policy import read as read_policies
from gateway.settings import Settings

SOURCE = "spillway.toml"
CONFIG = Path("/etc/spillway/spillway.toml")
CREDENTIALS = Path("/etc/spillway/credentials")
DATA_DIR = Path("/var/lib/spillway")
_OF_IMAGE = {
    "gateway": {"data_dir": str(DATA_DIR)},
    "bucket": {"credentials_file": str(CREDENTIALS)},
    "admin": {"bind": "0.0.0.0", "tls": TLS_SELF_SIGNED},
}
"""What an image sets beside the defaults of a gateway. The file may set the admin API otherwise."""
_FIXED = (("gateway", "data_dir"), ("bucket", "credentials_file"))
_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_SSH_KEY = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n]*)?")


def _hostname(value: str) -> str | None:
    ok = not value or (len(value) <= 64 and _HOSTNAME.fullmatch(value))
    return None if ok else "must look like gateway1 or gateway1.example.com"


def _ssh_keys(value: tuple[str, ...]) -> str | None:
    ok = all(_SSH_KEY.fullmatch(one) for one in value)
    return None if ok else "must have public keys, like ssh-ed25519 AAAAC3... ann@example.com"


def _address(value: str) -> str | None:
    if not value:
        return None
    try:
        ip_interface(value)
    except ValueError:
        return "must look like 10.0.0.5/24 (empty: DHCP)"
    return None if "/" in value else "must have the length of its network, like 10.0.0.5/24"


def _addresses(value: tuple[str, ...]) -> str | None:
    try:
        for one in value:
            ip_address(one)
    except ValueError as exc:
        return f"must be addresses without a network: {exc}"
    return None


def _router(value: str) -> str | None:
    return _addresses((value,)) if value else None


def _device(value: Path) -> str | None:
    ok = value == Path() or str(value).startswith("/dev/")
    return None if ok else "must look like /dev/vdb or /dev/disk/by-id/... (empty: the system's)"


def _no_line(value: str) -> str | None:
    return None if value.isprintable() else "must be one line"


@dataclass(frozen=True)
class Machine:
    """[machine]: what the system is to have."""

    hostname: str = _key("The name of the machine. Empty: it stays.", "", _hostname)
    ssh_keys: tuple[str, ...] = _key(
        "The keys of root. Without any, ssh lets none in.", (), _ssh_keys
    )
    data_device: Path = _key(
        "The disk for the data. It must be empty or a gateway's.", Path(), _device
    )
    interface: str = _key("The network card that gets the address.", "e*", _no_line)
    address: str = _key("Its address and network. Empty: DHCP.", "", _address)
    gateway: str = _key("The router.", "", _router)
    nameservers: tuple[str, ...] = _key("The servers of names.", (), _addresses)


@dataclass(frozen=True)
class Credentials:
    """[credentials]: the keys of the bucket. Without them the role of the machine is asked."""

    access_key_id: str = _key("The key id.", "", _no_line)
    secret_access_key: str = _key("Its secret.", "", _no_line, secret=True)


@dataclass(frozen=True)
class AdminToken:
    """[admin_token]: a token of the admin pages. Without it one is made and shown."""

    id: str = _key("Its id.", check=token_id)
    hash: str = _key("The hash of its secret.", check=token_hash)


@dataclass(frozen=True)
class Export:
    """[[export]]: a further directory that hosts may mount."""

    name: str = _key("What clients mount, like /datasets.")
    clients: tuple[str, ...] = _key("Who may mount it, as nfs.clients.", check=checks.clients)
    path: str = _key("Its directory, below nfs.export.", "", _no_line)
    squash: str = _key("As nfs.squash.", str(Squash.NONE), checks.one_of(Squash))


@dataclass(frozen=True)
class Site:
    """All that the file says."""

    machine: Machine
    credentials: Credentials
    token: AdminToken | None
    settings: Settings
    values: Mapping[str, Mapping[str, Any]]
    """The sections of the configuration, as they are to be written."""
    exports: tuple[Export, ...]
    policies: tuple[Mapping[str, Any], ...]


def read(text: str) -> Site:
    """Read the file. Raises UserError, which names what is wrong in it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise UserError(f"{SOURCE} is not valid TOML: {exc}") from None
    machine = config.section("machine", Machine, _table(document, "machine"), {})
    credentials = config.section("credentials", Credentials, _table(document, "credentials"), {})
    if bool(credentials.access_key_id) != bool(credentials.secret_access_key):
        raise ConfigError(
            "credentials", None, "access_key_id and secret_access_key go together: give both"
        )
    token = None
    if "admin_token" in document:
        token = config.section("admin_token", AdminToken, _table(document, "admin_token"), {})
    exports = tuple(
        config.section("export", Export, one, {}) for one in _tables(document, "export")
    )
    policies = tuple(_tables(document, "policy"))
    values = _values(document)
    settings = config.from_mapping(values, {}, CONFIG)
    names = [settings.nfs.export]
    for export in exports:
        require_name(export.name, names)
        require_clients(export.clients, export.squash)
        names.append(export.name)
    if policies:
        read_policies({"policy": list(policies)})
    return Site(machine, credentials, token, settings, values, exports, policies)


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.pop(name, {})
    if not isinstance(found, dict):
        raise ConfigError(name, None, f"must be a section: [{name}]")
    return found


def _tables(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = document.pop(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigError(name, None, f"must be tables: [[{name}]]")
    return found


def _values(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections of the configuration, with what the image sets. Raises ConfigError."""
    values: dict[str, dict[str, Any]] = {name: dict(keys) for name, keys in _OF_IMAGE.items()}
    for section, keys in document.items():
        if not isinstance(keys, dict):
            raise ConfigError(section, None, f"must be a section: [{section}]")
        for key in keys:
            if (section, key) in _FIXED:
                raise ConfigError(f"{section}.{key}", None, "is set by the image: leave it out")
        values.setdefault(section, {}).update(keys)
    return values
