"""Tells of a site's file whether the machine that it makes can be reached, before there is one."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_interface

from gateway import checks
from gateway.adminsettings import TLS_FILES, TLS_OFF
from gateway.errors import ConfigError
from gateway.firstboot.site import Machine, Site
from gateway.loopback import is_loopback

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


def _require_network(machine: Machine) -> None:
    if not machine.address:
        for key in ("gateway", "nameservers"):
            if found := getattr(machine, key):
                raise ConfigError(
                    f"machine.{key}", found, "goes with machine.address: with DHCP leave it out"
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
    if found := checks.in_the_clear(settings.bucket.endpoint_url):
        yield f"bucket.endpoint_url {found}"
