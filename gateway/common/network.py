"""Rules for hosts that may mount, loopback addresses, and TLS errors behind those of HTTP clients.

The configuration has a rule for hosts in the form ``192.168.7.4 ro all_squash``.
"""

from __future__ import annotations

import ssl
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

FORM = 'must look like "10.0.0.0/8 rw" or "192.168.7.4 ro all_squash"'
V6_PREFIX_MAX = 99
"""Ganesha 4.3 reads only two digits of a prefix length. A prefix of 128 becomes an address."""


class Squash(StrEnum):
    """The identity that a client's users get. The values are those of ``nfs.squash``."""

    NONE = "none"
    """Every user keeps their identity, root included."""
    ROOT = "root"
    """Root becomes the anonymous user. Every other user keeps their identity."""
    ALL = "all"
    """All users become the anonymous user."""


PRIVATE = (
    "127.0.0.0/8 rw",
    "::1 rw",
    "10.0.0.0/8 rw",
    "172.16.0.0/12 rw",
    "192.168.0.0/16 rw",
    "fc00::/7 rw",
    "fe80::/10 rw",
)
"""Loopback, and the ranges that are not routed on the Internet (RFC 1918, RFC 4193, link-local)."""

_SQUASH = {
    "no_root_squash": Squash.NONE,
    "root_squash": Squash.ROOT,
    "all_squash": Squash.ALL,
}


class ClientRule(NamedTuple):
    """One entry of ``nfs.clients``."""

    network: IPv4Network | IPv6Network
    writes: bool
    """False means read-only."""
    squash: Squash | None
    """None means that ``nfs.squash`` applies."""

    @property
    def hosts(self) -> str:
        """The network, or its only address."""
        alone = self.network.prefixlen == self.network.max_prefixlen
        return str(self.network.network_address if alone else self.network)


def parse(text: str) -> ClientRule:
    """Parse one entry. Raises ValueError, which says what an entry must look like."""
    words = text.split()
    # ganesha.conf does not accept an address with a scope (fe80::1%eth0).
    if not (2 <= len(words) <= 3 and words[1] in ("rw", "ro")) or "%" in words[0]:
        raise ValueError(f"{text!r} {FORM}")
    if len(words) == 3 and words[2] not in _SQUASH:
        raise ValueError(f"{text!r}: the third word must be {', '.join(_SQUASH)}")
    try:
        network = ip_network(words[0])
    except ValueError as exc:
        raise ValueError(f"{text!r}: {exc}; it {FORM}") from None
    if network.version == 6 and V6_PREFIX_MAX < network.prefixlen < network.max_prefixlen:
        raise ValueError(
            f"{text!r}: an IPv6 network has a prefix of at most {V6_PREFIX_MAX}, or is an address"
        )
    return ClientRule(network, words[1] == "rw", _SQUASH[words[2]] if len(words) == 3 else None)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address, to listen on or to call, is reached only from here."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def error_behind(exc: BaseException) -> ssl.SSLError | None:
    """Return the error of TLS that led to an error, or None if another one did."""
    cause: BaseException | None = exc
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def why_untrusted(error: ssl.SSLCertVerificationError) -> str:
    """Return in a few words why a certificate is not trusted, as OpenSSL says it."""
    return error.verify_message or str(error)
