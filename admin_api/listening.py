"""Opens the port of the admin API, and says what to do when that is not possible."""

from __future__ import annotations

import errno
import os
import socket

from admin_api.gateway import Gateway
from admin_api.store import tokens
from gateway import clock
from gateway.adminsettings import TLS_OFF
from gateway.errors import UserError
from gateway.loopback import is_loopback
from gateway.settings import Settings


def url_of(settings: Settings) -> str:
    """Return the address of the pages, for a person."""
    admin = settings.admin
    host = f"[{admin.bind}]" if ":" in admin.bind else admin.bind
    return f"{'http' if admin.tls == TLS_OFF else 'https'}://{host}:{admin.port}/"


def require_safe(gateway: Gateway) -> None:
    """Raise UserError if other machines could reach an admin API without TLS or without tokens."""
    settings = gateway.settings
    admin, edit = settings.admin, f"in {settings.source}"
    if is_loopback(admin.bind):
        return
    if admin.tls == TLS_OFF:
        raise UserError(
            f"other machines could reach admin.bind = {admin.bind!r}, and tokens would cross the "
            f'network in the clear: set admin.tls = "self-signed" or "files" {edit}, or '
            'admin.bind = "127.0.0.1"'
        )
    with gateway.store.reading() as session:
        every = tokens.every(session)
    now_ns = clock.now_ns()
    if not any(one.revoked_ns is None and not one.is_expired(now_ns) for one in every):
        raise UserError(
            f"there is no valid token, and other machines could reach admin.bind = {admin.bind!r}: "
            f"make one: spillway token create --role admin --config {settings.source}"
        )


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
        is_named = isinstance(exc, socket.gaierror)
        reason = exc.strerror if is_named or exc.errno is None else os.strerror(exc.errno)
        raise UserError(
            f"cannot listen on port {admin.port} of {admin.bind}: {reason}: {remedy}"
        ) from None
    # Else the body of each answer waits for 40 ms, until the client acknowledges its head. asyncio
    # sets it only for sockets that name their protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
