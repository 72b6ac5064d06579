"""Renders the configuration of NFS-Ganesha from the settings. `spillway up` overwrites the file.

Option names and ranges are those of Ganesha 4.3 (support/nfs_read_conf.c, support/exports.c).
"""

from __future__ import annotations

import sys
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path

from gateway import atomic
from gateway.clients import Client, Squash, parse
from gateway.errors import ConfigError
from gateway.settings import Settings

PLUGIN = "libfsalpython.so"
EXPORT_ID = 1
"""A part of every file handle that a client has. Another number would make all handles stale."""

ANONYMOUS = 65534
"""Debian's user nobody and group nogroup, which squashed users become."""

_MIB = 1024 * 1024
_DEFAULT_RPC_BUFFER_BYTES = _MIB
_LARGEST_RPC_BUFFER_BYTES = 9 * _MIB
_SQUASH = {Squash.NONE: "None", Squash.ROOT: "Root", Squash.ALL: "All"}

_TEMPLATE = """\
# Made by spillway from {source}: edit that file, not this one.

NFS_CORE_PARAM {{
    NFS_Port = {port};
    Bind_Addr = {bind};
    Protocols = 4;
    # Version 3 and its side services would need rpcbind, and their failure to register is fatal.
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = false;
    Plugins_Dir = {plugins_dir};
    RPC_Ioq_ThrdMax = 200;
{rpc_buffers}}}

NFSV4 {{
    # Clients reclaim their opens after a restart; the server remembers them in RecoveryRoot.
    Graceless = false;
    RecoveryBackend = fs;
    RecoveryRoot = {recovery_root};
    # Not 2 unless asked for: in Ganesha 4.3 READ_PLUS answers reads with no data.
    Minor_Versions = {minor_versions};
    Lease_Lifetime = {lease_seconds};
    Grace_Period = {grace_seconds};
    Delegations = false;
    Only_Numeric_Owners = true;
}}

NFS_KRB5 {{
    Active_krb5 = false;
}}

MDCACHE {{
    Dir_Chunk = 128;
    # Names of a directory that are remembered without a listing: so many times Dir_Chunk.
    Detached_Mult = 8;
    Entries_HWMark = 100000;
}}

# Read by {plugin}.
PYTHON {{
    Executable = {executable};
    Config = {config};
}}

EXPORT {{
    Export_Id = {export_id};
    Path = {export};
    Pseudo = {export};
    # Of hosts that no CLIENT below fits.
    Access_Type = None;
    Squash = {squash};
    Anonymous_Uid = {anonymous};
    Anonymous_Gid = {anonymous};
    SecType = sys;
    Protocols = 4;
    Transports = TCP;
    Attr_Expiration_Time = 60;
    MaxRead = {max_io_bytes};
    MaxWrite = {max_io_bytes};
    PrefRead = {max_io_bytes};
    PrefWrite = {max_io_bytes};
    FSAL {{
        Name = PYTHON;
    }}
{clients}}}
"""

_CLIENT = """\
    CLIENT {{
        Clients = {networks};
        Access_Type = {access};
        Squash = {squash};
        Protocols = 4;
    }}
"""


def render(settings: Settings) -> str:
    """Return the text of ganesha.conf.

    Raises: ConfigError when a path cannot be written in Ganesha's syntax, or nfs.bind is a name.
    """
    nfs = settings.nfs
    return _TEMPLATE.format(
        source=_quoted("the path of the configuration", settings.source.absolute())[1:-1],
        port=nfs.port,
        bind=_address(nfs.bind),
        plugins_dir=_quoted("nfs.plugins_dir", nfs.plugins_dir),
        rpc_buffers=_rpc_buffers(nfs.max_io_bytes),
        recovery_root=_quoted("gateway.data_dir", settings.recovery_dir),
        minor_versions="0, 1, 2" if nfs.version_4_2 else "0, 1",
        lease_seconds=nfs.lease_seconds,
        grace_seconds=nfs.grace_seconds,
        plugin=PLUGIN,
        executable=_quoted("the path of this Python", sys.executable),
        config=_quoted("the path of the configuration", settings.source.absolute()),
        export_id=EXPORT_ID,
        export=_quoted("nfs.export", nfs.export),
        max_io_bytes=nfs.max_io_bytes,
        squash=_SQUASH[Squash(nfs.squash)],
        anonymous=ANONYMOUS,
        clients="".join(_client(parse(entry), Squash(nfs.squash)) for entry in nfs.clients),
    )


def write(settings: Settings) -> bool:
    """Bring ganesha.conf up to date. Returns False if it was. Raises ConfigError, OSError."""
    return atomic.replace(settings.ganesha_conf, render(settings), 0o644)


def _client(client: Client, squash: Squash) -> str:
    """Return one block of the export's access control list, which Ganesha reads in order."""
    return _CLIENT.format(
        networks=_networks(client),
        access="RW" if client.writes else "RO",
        squash=_SQUASH[client.squash or squash],
    )


def _networks(client: Client) -> str:
    """Return a client's hosts in Ganesha's syntax, which has no prefix of length 0."""
    if client.network.prefixlen == 0:
        return ", ".join(map(str, client.network.subnets()))
    return client.hosts


def _rpc_buffers(max_io_bytes: int) -> str:
    """Return the settings of RPC buffers: one holds a READ or WRITE and the head of its record."""
    if max_io_bytes <= _DEFAULT_RPC_BUFFER_BYTES:
        return ""
    size_bytes = min(max_io_bytes + _MIB, _LARGEST_RPC_BUFFER_BYTES)
    return f"    MaxRPCSendBufferSize = {size_bytes};\n    MaxRPCRecvBufferSize = {size_bytes};\n"


def _quoted(key: str, value: str | Path) -> str:
    """Return a string in Ganesha's double quotes. Raises ConfigError if it needs an escape."""
    text = str(value)
    if not text.isprintable() or set(text) & set('"\\'):
        raise ConfigError(
            key,
            text,
            "quotes, backslashes and control characters cannot be written in ganesha.conf; "
            "use another path",
        )
    return f'"{text}"'


def _address(bind: str) -> str:
    """Return the address in Ganesha's form. Raises ConfigError for a name: Ganesha refuses it."""
    for family in (IPv4Address, IPv6Address):
        try:
            address = family(bind)
        except AddressValueError:
            continue
        if getattr(address, "scope_id", None) is None:
            return str(address)
    raise ConfigError("nfs.bind", bind, "must be an IP address; 0.0.0.0 listens on all of them")
