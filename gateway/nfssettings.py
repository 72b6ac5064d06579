"""The settings of the NFS server. They are a section of ``gateway.settings``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway import checks
from gateway.clients import PRIVATE, Squash
from gateway.declare import key as _key

SYS = "sys"
KERBEROS = ("krb5", "krb5i", "krb5p")
_MIB = 1024 * 1024


@dataclass(frozen=True)
class NfsSettings:
    bind: str = _key("Address the NFS server listens on.", "0.0.0.0", checks.not_empty)
    port: int = _key("TCP port of the NFS server.", 2049, checks.between(1, 65535))
    export: str = _key(
        "Path that clients mount: mount -t nfs4 gateway:<export> /mnt.",
        "/checkpoints",
        checks.export_path,
    )
    clients: tuple[str, ...] = _key(
        'Hosts that may mount: address or network, rw or ro, like "10.0.0.0/8 rw". A third word\n'
        'overrides squash: "10.1.2.3 ro all_squash" (or root_squash, no_root_squash). The first\n'
        "entry that fits a host counts; a host that no entry fits is refused.",
        PRIVATE,
        checks.clients,
    )
    squash: str = _key(
        "Users that become the anonymous user (65534): none, root, all. With none, root of a\n"
        "client is root here: jobs in containers often run as root.",
        "none",
        checks.one_of(Squash),
    )
    security: tuple[str, ...] = _key(
        "How clients prove who their users are: sys (not at all), krb5 (Kerberos), krb5i (and no\n"
        "byte can be changed on the way), krb5p (and none can be read). One that is not listed is\n"
        "refused. A change needs a restart.",
        (SYS,),
        checks.some_of((SYS, *KERBEROS)),
    )
    keytab: Path = _key(
        "Keytab with the keys of nfs/<host>, for krb5, krb5i and krb5p. Mode 0600.",
        Path("/etc/spillway/krb5.keytab"),
        checks.absolute,
    )
    idmap_conf: Path = _key(
        "Configuration of libnfsidmap, which finds the local user of a Kerberos principal.",
        Path("/etc/idmapd.conf"),
        checks.absolute,
    )
    lease_seconds: int = _key(
        "A client that is silent for this long loses its opens; its files are then sealed.",
        60,
        checks.between(5, 180),
    )
    grace_seconds: int = _key(
        "How long after a restart clients may reclaim their opens before new ones are admitted.\n"
        "It ends early when all known clients are back.",
        90,
        checks.between(5, 270),
    )
    max_io_bytes: int = _key(
        "Largest READ or WRITE, in bytes.", _MIB, checks.between(4096, 8 * _MIB)
    )
    max_connections: int = _key(
        "TCP connections that are served at once; a client with nconnect=4 has four. One more is\n"
        "closed at once, and its client tries again. Ganesha takes no more than 10000.",
        10_000,
        checks.between(64, 10_000),
    )
    threads: int = _key(
        "Threads that answer calls: so many changes and syncs may be under way at once.\n"
        "While the database is away, up to 384 of them wait for it (fsal/native/call.c).",
        512,
        checks.between(512, 2048),
    )
    manage_gids: bool = _key(
        "Whether the groups of a user are those that the gateway knows (getent initgroups), and\n"
        "not the up to 16 that its client sends. The gateway must know all users then, as by LDAP.",
        False,
    )
    version_4_2: str = _key(
        "Whether NFSv4.2 (extended attributes, fallocate, SEEK_HOLE) is served: auto, on or off.\n"
        "auto: from Ganesha 6 on. Ganesha 4.3 answers Linux 6.6 and later with empty data.",
        "auto",
        checks.one_of(("auto", "on", "off")),
        was_switch=True,
    )
    names_log: str = _key(
        "What clients do that is logged with time, client and user (log/names.jsonl; spillway\n"
        "audit --names). removals: removals and renames. changes: creations and links too.\n"
        "opens: opens of files that were there too.",
        "off",
        checks.one_of(("off", "removals", "changes", "opens")),
    )
    names_log_bytes: int = _key(
        "Size from which on a new log of names begins. The former one is kept beside it.",
        64 * _MIB,
        checks.at_least(_MIB),
    )
    ganesha: Path = _key("The NFS server program.", Path("/usr/bin/ganesha.nfsd"), checks.absolute)
    plugins_dir: Path = _key(
        "Directory of libfsalpython.so.", Path("/usr/lib/spillway"), checks.absolute
    )

    @property
    def has_kerberos(self) -> bool:
        return any(one in KERBEROS for one in self.security)
