"""Renderer of NFS-Ganesha's configuration, and the environment that the server runs in.

`spillway up` overwrites the file. Option names and ranges are those of Ganesha 4.3 and 6.5
(support/nfs_read_conf.c). The exports are at the end (gateway.nfs.export_blocks). Releases differ
in what they can do and in their options: ``ganesha_release`` tells which one is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path

from gateway.common import files
from gateway.common.errors import ConfigError
from gateway.config.settings import Settings
from gateway.nfs import export_blocks
from gateway.nfs.export import ExportedDirectory
from gateway.nfs.export_blocks import quoted

TELLS_OF_READ_PLUS = 6
"""From this release on clients read rightly with NFSv4.2: the plugin sees READ_PLUS and refuses it
(fsal/native/io.c), and the client asks with READ. Ganesha 4.3 answers READ_PLUS with empty data and
does not tell the plugin (Protocols/NFS/nfs4_op_read.c); so do 6.0 and 6.1, which no Debian has."""

MUST_FLUSH_IO = 6
"""From this release on the server ends unless it may call PR_SET_IO_FLUSHER, which needs
CAP_SYS_RESOURCE, or is told to run without (MainNFSD/nfs_main.c)."""

KEEPS_EXPIRED = 6
"""From this release on the server keeps the opens of a client whose lease has ended for a day, or
until another client wants them, unless it is told not to (SAL/nfs4_clientid.c)."""

_ANSWER_SECONDS = 10.0

_KEPT_BLOCK_BYTES = 4 << 20
"""Larger blocks go back to the kernel as soon as they are freed."""
_KEPT_END_BYTES = 16 << 20
"""What an arena keeps at its end. malloc_trim(3) shortens only the first arena, so this much of
each other one may stay resident when no client reads."""
_ARENAS_MIN = 8
_ARENAS_PER_PROCESSOR = 4
"""Each arena keeps what its threads used at most. By default there may be eight for a processor.
With two for a processor, threads wait for each other: stat and unlink are 4 percent slower."""


def ganesha_release(program: Path) -> int:
    """Return the major number of a server program's release: 6 of "V6.5". 0: it does not tell."""
    try:
        output = subprocess.run(
            [program, "-v"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(rb"Release = V(\d+)", output)
    return int(match[1]) if match else 0


def environ() -> dict[str, str]:
    """Return the environment of the server: that of this process, without the keys of the bucket.

    The C library keeps the memory of the buffers of READs and WRITEs. By default it goes back to
    the kernel at once, and the next READ waits until the kernel has cleared other pages for it.
    When there was no READ or WRITE for a while, the plugin gives it back (fsal/native/main.c).

    Returns:
        The variables. What is set in GLIBC_TUNABLES already has the last word.
    """
    arenas = max(_ARENAS_MIN, _ARENAS_PER_PROCESSOR * (os.cpu_count() or 1))
    tunables = (
        f"glibc.malloc.mmap_threshold={_KEPT_BLOCK_BYTES}",
        f"glibc.malloc.trim_threshold={_KEPT_END_BYTES}",
        f"glibc.malloc.arena_max={arenas}",
        *filter(None, [os.environ.get("GLIBC_TUNABLES")]),
    )
    # The server never talks to the bucket.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "GLIBC_TUNABLES": ":".join(tunables)}


PLUGIN = "libfsalpython.so"
_MIB = 1024 * 1024
_DEFAULT_RPC_BUFFER_BYTES = _MIB
_LARGEST_RPC_BUFFER_BYTES = 9 * _MIB

_KERBEROS = """\
    Active_krb5 = true;
    # The service alone: every key nfs/<host> of the keytab is accepted.
    PrincipalName = nfs;
    KeytabPath = {keytab};
    CCacheDir = {caches};
"""
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
    # Above it a connection is closed. Ganesha's own 1024 are 256 clients with nconnect=4.
    RPC_Max_Connections = {max_connections};
    RPC_Ioq_ThrdMax = {threads};
{rpc_buffers}{io_flusher}}}

NFSV4 {{
    # Clients reclaim their opens after a restart; the server remembers them in RecoveryRoot.
    Graceless = false;
    RecoveryBackend = fs;
    RecoveryRoot = {recovery_root};
    # In Ganesha 4.3 READ_PLUS, which is of version 2, answers reads with no data.
    Minor_Versions = {minor_versions};
    Lease_Lifetime = {lease_seconds};
{expired_clients}    Grace_Period = {grace_seconds};
    Delegations = false;
    Only_Numeric_Owners = true;
{idmap}}}

NFS_KRB5 {{
{kerberos}}}

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
"""

_EXPIRED_CLIENTS = """\
    # Otherwise a file that a client has open when it dies would be sealed a day after its lease.
    Expired_Client_Threshold = 0;
"""
_IO_FLUSHER = """\
    # The server writes to disks of this machine, not through a mount of its own.
    allow_set_io_flusher_fail = true;
"""


def render(settings: Settings, exports: Sequence[ExportedDirectory] = ()) -> str:
    """Return the text of ganesha.conf.

    Args:
        exports: beside ``nfs.export``.

    Raises:
        ConfigError: a path cannot be written in Ganesha's syntax, or nfs.bind is a name.
    """
    nfs = settings.nfs
    release = ganesha_release(nfs.ganesha)
    head = _TEMPLATE.format(
        source=quoted("the path of the configuration", settings.source.absolute())[1:-1],
        port=nfs.port,
        bind=_address(nfs.bind),
        max_connections=nfs.max_connections,
        threads=nfs.threads,
        plugins_dir=quoted("nfs.plugins_dir", nfs.plugins_dir),
        rpc_buffers=_rpc_buffers(nfs.max_io_bytes),
        recovery_root=quoted("gateway.data_dir", settings.recovery_dir),
        io_flusher=_IO_FLUSHER if release >= MUST_FLUSH_IO else "",
        minor_versions="0, 1, 2" if _serves_4_2(nfs.version_4_2, release) else "0, 1",
        lease_seconds=nfs.lease_seconds,
        expired_clients=_EXPIRED_CLIENTS if release >= KEEPS_EXPIRED else "",
        grace_seconds=nfs.grace_seconds,
        **_kerberos(settings),
        plugin=PLUGIN,
        executable=quoted("the path of this Python", sys.executable),
        config=quoted("the path of the configuration", settings.source.absolute()),
    )
    return head + export_blocks.MARK + export_blocks.render(settings, exports)


def write(settings: Settings, exports: Sequence[ExportedDirectory] = ()) -> bool:
    """Bring ganesha.conf up to date. Returns False if it was. Raises ConfigError, OSError."""
    return files.replace(settings.ganesha_conf, render(settings, exports), 0o644)


def _serves_4_2(wanted: str, release: int) -> bool:
    return {"on": True, "off": False}.get(wanted, release >= TELLS_OF_READ_PLUS)


def _rpc_buffers(max_io_bytes: int) -> str:
    """Return the settings of RPC buffers: one holds a READ or WRITE and the head of its record."""
    if max_io_bytes <= _DEFAULT_RPC_BUFFER_BYTES:
        return ""
    size_bytes = min(max_io_bytes + _MIB, _LARGEST_RPC_BUFFER_BYTES)
    return f"    MaxRPCSendBufferSize = {size_bytes};\n    MaxRPCRecvBufferSize = {size_bytes};\n"


def _kerberos(settings: Settings) -> dict[str, str]:
    """Return the options of Kerberos by their place in the template. Raises ConfigError."""
    nfs = settings.nfs
    if not nfs.has_kerberos:
        return {"idmap": "", "kerberos": "    Active_krb5 = false;\n"}
    options = _KERBEROS.format(
        keytab=quoted("nfs.keytab", nfs.keytab),
        caches=quoted("gateway.data_dir", settings.run_dir / "krb5"),
    )
    mapping = quoted("nfs.idmap_conf", nfs.idmap_conf)
    return {"idmap": f"    IdmapConf = {mapping};\n", "kerberos": options}


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
