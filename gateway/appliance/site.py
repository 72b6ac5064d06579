"""Parser and checks of the site file, from which a machine started from an image is configured.

The file is a configuration of Spillway with the tables [machine], [credentials] and [admin_token],
and with any number of [[export]] and [[policy]].

All of it is checked before the machine is changed, also whether the machine and its admin API will
be reachable: a mistake is cheap only while there is no machine yet.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any

from gateway.common.errors import ConfigError, UserError
from gateway.common.network import Squash, is_loopback
from gateway.config import checks, loader
from gateway.config.settings import (
    TLS_FILES,
    TLS_OFF,
    TLS_SELF_SIGNED,
    Settings,
    token_hash,
    token_id,
)
from gateway.config.settings import key as _key
from gateway.lifecycle.retention.policy import read as read_policies
from gateway.nfs.export import require_clients, require_name

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
    ok = all(_SSH_KEY.fullmatch(string) for string in value)
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
        for address in value:
            ip_address(address)
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
class SiteMachine:
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
    restore: bool = _key(
        "Bring everything back from the bucket, if there is no gateway yet.", False
    )


@dataclass(frozen=True)
class SiteCredentials:
    """[credentials]: the keys of the bucket. Without them the role of the machine is asked."""

    access_key_id: str = _key("The key id.", "", _no_line)
    secret_access_key: str = _key("Its secret.", "", _no_line, secret=True)


@dataclass(frozen=True)
class AdminToken:
    """[admin_token]: a token of the admin pages. Without it one is made and shown."""

    id: str = _key("Its id.", check=token_id)
    hash: str = _key("The hash of its secret.", check=token_hash)


@dataclass(frozen=True)
class SiteExport:
    """[[export]]: a further directory that hosts may mount."""

    name: str = _key("What clients mount, like /datasets.")
    clients: tuple[str, ...] = _key("Who may mount it, as nfs.clients.", check=checks.clients)
    path: str = _key("Its directory, below nfs.export.", "", _no_line)
    squash: str = _key("As nfs.squash.", str(Squash.NONE), checks.one_of(Squash))


@dataclass(frozen=True)
class Site:
    """All that the file says."""

    machine: SiteMachine
    credentials: SiteCredentials
    token: AdminToken | None
    settings: Settings
    values: Mapping[str, Mapping[str, Any]]
    """The sections of the configuration, as they are to be written."""
    exports: tuple[SiteExport, ...]
    policies: tuple[Mapping[str, Any], ...]


def read(text: str) -> Site:
    """Read the file. Raises UserError, which names what is wrong in it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise UserError(f"{SOURCE} is not valid TOML: {exc}") from None
    machine = loader.section("machine", SiteMachine, _table(document, "machine"), {})
    credentials = loader.section(
        "credentials", SiteCredentials, _table(document, "credentials"), {}
    )
    if bool(credentials.access_key_id) != bool(credentials.secret_access_key):
        raise ConfigError(
            "credentials", None, "access_key_id and secret_access_key go together: give both"
        )
    token = None
    if "admin_token" in document:
        token = loader.section("admin_token", AdminToken, _table(document, "admin_token"), {})
    exports = tuple(
        loader.section("export", SiteExport, table, {}) for table in _tables(document, "export")
    )
    policies = tuple(_tables(document, "policy"))
    values = _values(document)
    settings = loader.from_mapping(values, {}, CONFIG)
    names = [settings.nfs.export]
    for export in exports:
        require_name(export.name, names)
        require_clients(export.clients, export.squash)
        names.append(export.name)
    if policies:
        read_policies({"policy": list(policies)})
    return Site(machine, credentials, token, settings, values, exports, policies)


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    table = document.pop(name, {})
    if not isinstance(table, dict):
        raise ConfigError(name, None, f"must be a section: [{name}]")
    return table


def _tables(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    tables = document.pop(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(name, None, f"must be tables: [[{name}]]")
    return tables


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


_ANY = ("0.0.0.0", "::")


def require(site: Site) -> None:
    """Raise ConfigError for what leaves the machine, or its admin API, unreachable."""
    _require_network(site.machine)
    admin = site.settings.admin
    if admin.tls == TLS_OFF and not is_loopback(admin.bind):
        raise ConfigError(
            *("admin.tls", admin.tls),
            f"would send tokens in the clear, so the admin API refuses bind = {admin.bind!r}: set "
            'tls = "self-signed", or bind = "127.0.0.1"',
        )
    if not site.machine.address:
        return
    own = str(ip_interface(site.machine.address).ip)
    for section, bind in (("admin", admin.bind), ("nfs", site.settings.nfs.bind)):
        if bind not in (own, *_ANY) and not is_loopback(bind):
            raise ConfigError(
                f"{section}.bind", bind, f"is no address of this machine, which has {own}"
            )


def _require_network(machine: SiteMachine) -> None:
    if not machine.address:
        for key in ("gateway", "nameservers"):
            if value := getattr(machine, key):
                raise ConfigError(
                    f"machine.{key}", value, "goes with machine.address: with DHCP leave it out"
                )
        return
    own = ip_interface(machine.address)
    network = own.network
    is_host = not (own.is_loopback or own.is_multicast or own.is_unspecified)
    edges = (network.network_address, network.broadcast_address)
    if not is_host or (network.num_addresses > 2 and own.ip in edges):
        raise ConfigError("machine.address", machine.address, "is no address of one machine")
    if not machine.gateway:
        return
    router = ip_address(machine.gateway)
    if router == own.ip:
        raise ConfigError("machine.gateway", machine.gateway, "is the address of this machine")
    is_near = router in network or (router.version == 6 and router.is_link_local)
    if router.version != own.version or not is_near:
        raise ConfigError(
            "machine.gateway", machine.gateway, f"is not in {network}, so it cannot be reached"
        )


def warnings(site: Site) -> Iterator[str]:
    """Yield what may be meant, and leaves something unreachable or readable for others."""
    machine, settings = site.machine, site.settings
    if not machine.ssh_keys:
        yield "machine.ssh_keys: there are none, so only the console lets people in"
    if machine.address and not machine.gateway:
        yield "machine.gateway: there is none, so only hosts of its own network reach the machine"
    if machine.address and not machine.nameservers:
        yield "machine.nameservers: there are none, so the bucket must be named by its address"
    for section, bind in (("admin", settings.admin.bind), ("nfs", settings.nfs.bind)):
        if is_loopback(bind):
            yield f"{section}.bind = {bind!r}: no other machine can reach it"
    if settings.admin.tls == TLS_FILES:
        yield (
            'admin.tls = "files": an image has neither file: the admin API starts when you bring '
            "them"
        )
    if warning := checks.in_the_clear(settings.bucket.endpoint_url):
        yield f"bucket.endpoint_url {warning}"
