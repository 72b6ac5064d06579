"""Service for the clients of the NFS server: who mounts from where, and who has a file open.

Also the clients that share a name: the NFS server takes each for the other, and ends its lease.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice

from gateway.common import clock
from gateway.common.errors import NotPossible
from gateway.common.models import Model
from gateway.common.text import display, shown, text_of
from gateway.common.types import InodeKind
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.schema import opened, reading
from gateway.namespace import server_reports
from gateway.namespace.lookup import way_up
from gateway.rpc import clients as server_clients
from gateway.rpc.clients import NOTHING, ClientCounts, ClientLease, Opened
from gateway.service.paths import browsing, names_of, resolve

RECENT_SECONDS = 3600
"""For so long after it was seen, a person is told of it."""
REMEDY = (
    "give each host a name of its own (hostnamectl), or set nfs4_unique_id of its module nfs, and "
    "mount again"
)


@dataclass(frozen=True, slots=True)
class SharedName(Model):
    """A name that clients share: the NFS server takes each for the other, and ends its lease."""

    name: str = field(metadata={"examples": ["Linux NFSv4.1 node7"]})
    addresses: list[str] = field(metadata={"examples": [["10.0.0.7", "10.0.0.8"]]})
    """The last two."""
    age_seconds: float
    """Time since it was seen last, an hour at most."""


def gather_shared_names(settings: Settings) -> list[SharedName]:
    """Return the names that clients shared lately, with their last two addresses."""
    shared = (datadir.read(settings, server_reports.CLIENTS_REPORT) or {}).get("shared")
    now_ns = clock.now_ns()
    rows = [
        SharedName(
            name=entry["name"],
            addresses=[str(address) for address in entry["addresses"]],
            age_seconds=round(max(0, now_ns - entry["at_ns"]) / clock.NS, 1),
        )
        for entry in (shared if isinstance(shared, list) else ())
    ]
    return [entry for entry in rows if entry.age_seconds < RECENT_SECONDS]


def shared_name_text(one: SharedName) -> str:
    """Return what is wrong, for a person."""
    return (
        f"{' and '.join(one.addresses)} share the name {display(one.name)}, and take each other's "
        "leases, opens and locks"
    )


def lines(found: Sequence[SharedName]) -> list[str]:
    """Return a line for each name, for a person."""
    return [f"SHARED NAME: {shared_name_text(name)}: {REMEDY}" for name in found]


OPENS_MAX = 10_000
"""The opens that one question looks at."""
_DEPTH_MAX = 4096


@dataclass(frozen=True, slots=True)
class Client(ClientCounts):
    """A client that has a lease, with the counts of its address."""

    address: str
    name: str = field(metadata={"examples": ["Linux NFSv4.1 node7.example"]})
    """What it calls itself."""
    minor_version: int = field(metadata={"examples": [1]})
    """That of NFSv4."""
    seen_seconds: int
    """Time since its last request."""


@dataclass(frozen=True, slots=True)
class Open(Model):
    """The opens of a file by one address."""

    path: str
    address: str
    """Empty: it is not known."""
    open_reading: int
    open_writing: int


@dataclass(frozen=True, slots=True)
class Opens(Model):
    """Who has a file open, or what is below a directory."""

    is_whole: bool
    """False: more files are open than were looked at."""
    opens: list[Open]


@dataclass(frozen=True, slots=True)
class ClientList(Model):
    """The clients of the NFS server."""

    clients: list[Client]
    others: ClientCounts | None
    """The counts of the addresses beyond 16,384."""
    shared_names: list[SharedName]


def gather(settings: Settings) -> ClientList:
    """Return all clients. Raises ControlSocketClosed when no NFS server answers."""
    clients = server_clients.read(settings)
    now_seconds = clock.now_ns() // clock.NS
    leases = sorted(clients.leases, key=lambda lease: (lease.address, lease.name))
    others = clients.counts.get("")
    return ClientList(
        clients=[_client(lease, clients.counts, now_seconds) for lease in leases],
        others=None if others is None or not others.operations else others,
        shared_names=gather_shared_names(settings),
    )


def _client(lease: ClientLease, counts: dict[str, ClientCounts], now_seconds: int) -> Client:
    return Client(
        address=lease.address,
        name=text_of(lease.name),
        minor_version=lease.minor,
        seen_seconds=max(0, now_seconds - lease.renewed_seconds),
        **asdict(counts.get(lease.address, NOTHING)),
    )


def opens(settings: Settings, path: str) -> Opens:
    """Return who has a file open, or what is below a directory. Args: path, of the command line.

    Raises:
        NotThere: there is nothing.
        NotPossible: it is neither a file nor a directory.
        ControlSocketClosed, UserError: as told.
    """
    with browsing(settings) as browser:
        entry = resolve(browser, settings, path).found()
    top = entry.attr
    if top.kind not in (InodeKind.REGULAR, InodeKind.DIRECTORY):
        raise NotPossible(f"{shown(path)}: only files are open: name one")
    is_file = top.kind == InodeKind.REGULAR
    open_files = server_clients.opened(settings, top.ino if is_file else None, OPENS_MAX)
    at = b"/" + b"/".join(
        [os.fsencode(settings.nfs.export)[1:], *names_of(settings.nfs.export, path)]
    )
    if is_file:
        paths = {top.ino: at}
    else:
        paths = dict(_below(settings, top.ino, at, {file.ino for file in open_files}))
    return Opens(len(open_files) < OPENS_MAX, list(_summed(open_files, paths)))


def _below(
    settings: Settings, top: int, at: bytes, inodes: set[int]
) -> Iterator[tuple[int, bytes]]:
    """Yield those inodes that are below a directory, with a path each, by first names."""
    with opened(settings.database_url) as database, reading(database) as session:
        for ino in inodes:
            names = _names(session, ino, top)
            if names is not None:
                yield ino, b"/".join([at, *names])


def _names(session: Session, ino: int, top: int) -> list[bytes] | None:
    """Return the names from a directory down to an inode, or None if it is not below it."""
    names: list[bytes] = []
    # A database that is damaged may have a circle of directories.
    for _at, parent, name in islice(way_up(session, ino), _DEPTH_MAX):
        names.insert(0, name)
        if parent == top:
            return names
    return None


def _summed(open_files: Sequence[Opened], paths: dict[int, bytes]) -> Iterator[Open]:
    """Yield a row for each file and address, by path."""
    reading_, writing = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for file in open_files:
        if file.ino in paths:
            reading_[file.ino, file.address] += file.reads
            writing[file.ino, file.address] += file.writes
    for ino, address in sorted(reading_, key=lambda row: (paths[row[0]], row[1])):
        yield Open(text_of(paths[ino]), address, reading_[ino, address], writing[ino, address])
