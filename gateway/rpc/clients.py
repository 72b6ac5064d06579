"""Query of the NFS server for its clients: who has a lease, what each did, and what it has open.

The server counts by the address that an operation comes from (fsal/native/clients.c). Leases are
Ganesha's (fsal/native/leases.c). All counts begin with the start of the server.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from gateway.common.errors import ControlSocketClosed
from gateway.common.models import Model
from gateway.config.settings import Settings
from gateway.rpc.control import Remote
from gateway.rpc.frames import Op, RpcReply, RpcRequest

_ADDRESS_BYTES = 64
_COUNTS = struct.Struct(f"={_ADDRESS_BYTES}s8Q")
_LEASE = struct.Struct(f"=QqQII{_ADDRESS_BYTES}s152s")
_OPENED = struct.Struct(f"=QII{_ADDRESS_BYTES}s")
_READS, _WRITES = 1, 2
_END = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ClientCounts(Model):
    """What the clients of one address did since the start of the NFS server."""

    operations: int
    """Operations that were answered for good. What Ganesha answers from its cache is not in it."""
    bytes_read: int
    bytes_written: int
    operations_rate: int
    """In a second, of the last 5 seconds or so; so the next two."""
    read_rate: int
    """Bytes in a second."""
    written_rate: int
    """Bytes in a second."""
    open_reading: int
    """Files that are open for reading, once for each open; those for reading and writing too."""
    open_writing: int


@dataclass(frozen=True)
class ClientLease:
    """A client that has a lease: it mounts an export."""

    clientid: int
    address: str
    name: bytes
    """The name that the client gave itself, at most 152 bytes of it."""
    minor: int
    """The minor version of NFSv4."""
    renewed_seconds: int
    """The last renewal, in seconds since 1970. Each request of the client is one."""


@dataclass(frozen=True)
class Opened:
    """An open file of a client."""

    ino: int
    address: str
    """Empty: it is not known."""
    reads: bool
    writes: bool


@dataclass(frozen=True)
class ServerClients:
    """The clients of the NFS server."""

    leases: tuple[ClientLease, ...]
    counts: dict[str, ClientCounts]
    """The counts by address. Under an empty address: all addresses beyond 16,384."""


NOTHING = ClientCounts(0, 0, 0, 0, 0, 0, 0, 0)
"""The counts of an address that did nothing."""


def read(settings: Settings) -> ServerClients:
    """Ask the running NFS server. Raises ControlSocketClosed when none answers."""
    with closing(_connected(settings)) as control:
        leases = tuple(_leases(control))
        return ServerClients(leases, dict(_counts(control)))


def opened(settings: Settings, ino: int | None, most: int) -> list[Opened]:
    """Return open states, of one file or of all, at most so many. Raises ControlSocketClosed."""
    with closing(_connected(settings)) as control:
        return list(islice(_opened(control, ino or 0), most))


def _connected(settings: Settings) -> Remote:
    try:
        return Remote(settings)
    except OSError as exc:
        raise ControlSocketClosed(
            f"no NFS server answers in {settings.run_dir}: {exc.strerror}"
        ) from None


def _ask(control: Remote, request: RpcRequest, row: struct.Struct) -> RpcReply:
    answer = control.run([request])[0]
    if answer.errno or len(answer.data) % row.size:
        raise ControlSocketClosed("the NFS server is of another version: restart it")
    return answer


def _leases(control: Remote) -> Iterator[ClientLease]:
    above = 0
    while data := _ask(control, RpcRequest(Op.LEASES, 0, offset=above), _LEASE).data:
        for clientid, renewed, _hash, minor, count, address, name in _LEASE.iter_unpack(data):
            yield ClientLease(clientid, _text(address), name[:count], minor, renewed)
            above = clientid


def _counts(control: Remote) -> Iterator[tuple[str, ClientCounts]]:
    have = 0
    while data := _ask(control, RpcRequest(Op.CLIENTS, 0, offset=have), _COUNTS).data:
        for address, *counts in _COUNTS.iter_unpack(data):
            yield _text(address), ClientCounts(*counts)
            have += 1


def _opened(control: Remote, ino: int) -> Iterator[Opened]:
    chain = below = 0
    while chain != _END:
        request = RpcRequest(Op.OPENED, ino, offset=chain, length=below)
        answer = _ask(control, request, _OPENED)
        for number, access, _pad, address in _OPENED.iter_unpack(answer.data):
            is_read, is_written = bool(access & _READS), bool(access & _WRITES)
            yield Opened(number, _text(address), is_read, is_written)
        chain, below = answer.offset, answer.length


def _text(address: bytes) -> str:
    return address.partition(b"\0")[0].decode("ascii", "replace")
