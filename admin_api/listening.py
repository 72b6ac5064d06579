"""Opens the port of the admin API, and says what to do when that is not possible."""

from __future__ import annotations

import errno
import socket

from gateway.errors import UserError
from gateway.settings import Settings


def listen(settings: Settings) -> socket.socket:
    """Return a socket that accepts connections for the admin API. Raises UserError."""
    admin, edit = settings.admin, f"in {settings.source}"
    try:
        found = socket.getaddrinfo(admin.bind, admin.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address, family=family)
    except OSError as exc:
        remedies = {
            errno.EADDRINUSE: f"stop the program that has it (ss -ltnp 'sport = :{admin.port}') "
            f"or set admin.port {edit}",
            errno.EACCES: f"set admin.port to 1024 or higher {edit}",
            errno.EADDRNOTAVAIL: f"set admin.bind to an address of this machine {edit}",
        }
        remedy = remedies.get(exc.errno or 0, f"check admin.bind and admin.port {edit}")
        raise UserError(
            f"cannot listen on port {admin.port} of {admin.bind}: {exc.strerror}: {remedy}"
        ) from None
    # Else the body of each answer waits for 40 ms, until the client acknowledges its head. asyncio
    # sets it only for sockets that name their protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
