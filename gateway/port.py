"""Tells whether the NFS server could listen on its port, and whether it answers there."""

from __future__ import annotations

import ipaddress
import socket
import struct

from gateway.settings import Settings

ANSWER_SECONDS = 10.0
_NULL_CALL = struct.pack(">I10I", 0x8000_0000 | 40, 1, 0, 2, 100_003, 4, 0, 0, 0, 0, 0)
"""The procedure that does nothing, of NFS version 4, without credentials (RFC 5531 sections 9, 11;
RFC 7530 section 16.1)."""
_ACCEPTED = struct.pack(">II", 1, 1) + bytes(16)
"""The answer after its length: the same number, a reply, accepted, successful."""


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


def answers(settings: Settings, seconds: float | None = None) -> bool:
    """Return whether the NFS server answers a call that does nothing.

    Parameters: seconds, the time that it has (default: ANSWER_SECONDS).
    """
    bind = settings.nfs.bind
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    try:
        limit = ANSWER_SECONDS if seconds is None else seconds
        with socket.create_connection((host, settings.nfs.port), limit) as server:
            server.sendall(_NULL_CALL)
            with server.makefile("rb") as lines:
                return lines.read(4 + len(_ACCEPTED))[4:] == _ACCEPTED
    except OSError:
        return False
