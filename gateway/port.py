"""Tells whether the NFS server could listen on its port."""

from __future__ import annotations

import ipaddress
import socket

from gateway.settings import Settings


def bind_error(settings: Settings) -> OSError | None:
    """Return why the NFS server could not listen, or None if it could."""
    address, number = settings.nfs.bind, settings.nfs.port
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, number))
        except OSError as exc:
            return exc
    return None
