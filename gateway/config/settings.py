"""Settings: every key of the configuration, with its documentation, default and check.

``gateway.config.loader`` reads the settings from a file. It renders the file of ``spillway init``
from the same declarations, so that file and program cannot disagree.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from gateway.common import logs
from gateway.common.network import PRIVATE, Squash
from gateway.config import checks


def key(
    doc: str,
    default: Any = MISSING,
    check: checks.Check | None = None,
    *,
    secret: bool = False,
    was_switch: bool = False,
    earlier: str | None = None,
) -> Any:
    """Declare a key.

    Args:
        doc: its documentation.
        default: its value if it is not set. Without one the key is required.
        check: returns what is wrong with a value.
        secret: whether the value may hold a password; errors then do not quote it.
        was_switch: whether earlier versions had true and false here, which are read as on and off.
        earlier: its name in the release before, which is accepted until the next one.
    """
    about = {"doc": doc, "check": check, "secret": secret, "was_switch": was_switch}
    about["earlier"] = earlier
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class AcknowledgeSettings:
    rule: tuple[Mapping[str, Any], ...] = key(
        "Files whose close() returns only when the bucket has them. Each rule is a table of its\n"
        'own: [[acknowledge.rule]], path = "{run}/step-{step}", which also means everything below\n'
        'it; every_steps = 10: only steps that 10 divides; acknowledge = "local": an exception.\n'
        "The first rule that fits a path counts. What matches drain.incomplete_patterns never\n"
        "waits.",
        (),
        checks.acknowledge_rules,
    )
    wait_seconds: float = key(
        "How long such a CLOSE is answered with NFS4ERR_DELAY before the answer is an error.\n"
        "0: until the bucket has the file. Linux does not tell a program of the error: with\n"
        "a limit, close() returns 0 after it.",
        0.0,
        checks.between(0, 4_000_000),
    )


SYS = "sys"
KERBEROS = ("krb5", "krb5i", "krb5p")
_MIB = 1024 * 1024


@dataclass(frozen=True)
class NfsSettings:
    bind: str = key("Address the NFS server listens on.", "0.0.0.0", checks.not_empty)
    port: int = key("TCP port of the NFS server.", 2049, checks.between(1, 65535))
    export: str = key(
        "Path that clients mount: mount -t nfs4 gateway:<export> /mnt.",
        "/checkpoints",
        checks.export_path,
    )
    clients: tuple[str, ...] = key(
        'Hosts that may mount: address or network, rw or ro, like "10.0.0.0/8 rw". A third word\n'
        'overrides squash: "10.1.2.3 ro all_squash" (or root_squash, no_root_squash). The first\n'
        "entry that fits a host counts; a host that no entry fits is refused.",
        PRIVATE,
        checks.clients,
    )
    squash: str = key(
        "Users that become the anonymous user (65534): none, root, all. With none, root of a\n"
        "client is root here: jobs in containers often run as root.",
        "none",
        checks.one_of(Squash),
    )
    security: tuple[str, ...] = key(
        "How clients prove who their users are: sys (not at all), krb5 (Kerberos), krb5i (and no\n"
        "byte can be changed on the way), krb5p (and none can be read). One that is not listed is\n"
        "refused. A change needs a restart.",
        (SYS,),
        checks.some_of((SYS, *KERBEROS)),
    )
    keytab: Path = key(
        "Keytab with the keys of nfs/<host>, for krb5, krb5i and krb5p. Mode 0600.",
        Path("/etc/spillway/krb5.keytab"),
        checks.absolute,
    )
    idmap_conf: Path = key(
        "Configuration of libnfsidmap, which finds the local user of a Kerberos principal.",
        Path("/etc/idmapd.conf"),
        checks.absolute,
    )
    lease_seconds: int = key(
        "A client that is silent for this long loses its opens; its files are then sealed.",
        60,
        checks.between(5, 180),
    )
    grace_seconds: int = key(
        "How long after a restart clients may reclaim their opens before new ones are admitted.\n"
        "It ends early when all known clients are back.",
        90,
        checks.between(5, 270),
    )
    max_io_bytes: int = key(
        "Largest READ or WRITE, in bytes.", _MIB, checks.between(4096, 8 * _MIB)
    )
    max_connections: int = key(
        "TCP connections that are served at once; a client with nconnect=4 has four. One more is\n"
        "closed at once, and its client tries again. Ganesha takes no more than 10000.",
        10_000,
        checks.between(64, 10_000),
    )
    threads: int = key(
        "Threads that answer calls: so many changes and syncs may be under way at once.\n"
        "While the database is away, up to 384 of them wait for it (fsal/native/call.c).",
        512,
        checks.between(512, 2048),
    )
    manage_gids: bool = key(
        "Whether the groups of a user are those that the gateway knows (getent initgroups), and\n"
        "not the up to 16 that its client sends. The gateway must know all users then, as by LDAP.",
        False,
    )
    version_4_2: str = key(
        "Whether NFSv4.2 (extended attributes, fallocate, SEEK_HOLE) is served: auto, on or off.\n"
        "auto: from Ganesha 6 on. Ganesha 4.3 answers Linux 6.6 and later with empty data.",
        "auto",
        checks.one_of(("auto", "on", "off")),
        was_switch=True,
    )
    names_log: str = key(
        "What clients do that is logged with time, client and user (log/names.jsonl; spillway\n"
        "audit --names). removals: removals and renames. changes: creations and links too.\n"
        "opens: opens of files that were there too.",
        "off",
        checks.one_of(("off", "removals", "changes", "opens")),
    )
    names_log_bytes: int = key(
        "Size from which on a new log of names begins. The former one is kept beside it.",
        64 * _MIB,
        checks.at_least(_MIB),
    )
    ganesha: Path = key("The NFS server program.", Path("/usr/bin/ganesha.nfsd"), checks.absolute)
    plugins_dir: Path = key(
        "Directory of libfsalpython.so.", Path("/usr/lib/spillway"), checks.absolute
    )

    @property
    def has_kerberos(self) -> bool:
        return any(flavour in KERBEROS for flavour in self.security)


@dataclass(frozen=True)
class CheckpointsSettings:
    rule: tuple[Mapping[str, Any], ...] = key(
        "Rules that recognise checkpoints, before those of known frameworks. Each is a table of\n"
        'its own: [[checkpoints.rule]], name = "ours", path = "{run}/step-{step}", and one or\n'
        'more of: files = 8, or files = ["rank-*.pt"]; marker = "DONE"; quiet_seconds = 60.',
        (),
        checks.rules,
    )
    quiet_seconds: float = key(
        "A checkpoint that neither an index nor others of its run show to be whole is complete\n"
        "when nothing has changed in it for so long: a rank may be late.",
        60.0,
        checks.at_least(0),
    )
    rpo_seconds: float = key(
        "spillway status raises an alarm when a run would lose more than so many seconds of its\n"
        "work with this gateway: the age of its newest checkpoint in the bucket, if newer data\n"
        "is not there. 0: no alarm.",
        0.0,
        checks.at_least(0),
    )
    rpo_bytes: int = key(
        "The same for the bytes of a run that only this gateway has. 0: no alarm.",
        0,
        checks.at_least(0),
    )


@dataclass(frozen=True)
class RetentionSettings:
    approval_share: float = key(
        "What policies delete of a run waits for a person (spillway policy approve), if it is\n"
        "more than this share of the run's checkpoints, or of their bytes. Up to four deletions\n"
        "are not asked about if the run keeps as many. The same share counts for a policy.",
        0.5,
        checks.between(0, 1),
        earlier="ask_share",
    )
    min_replacement_share: float = key(
        "A checkpoint is deleted only if a newer one of its run, for which it goes, has at least\n"
        "this share of its bytes: what was cut off, or is another thing, replaces none.",
        0.5,
        checks.between(0, 1),
        earlier="least_share",
    )
    skip_superseded: bool = key(
        "A complete checkpoint is not uploaded if a newer one of its run is complete, and a\n"
        "policy with wait_hours = 0 deletes it as soon as that one is in the bucket.",
        True,
    )
    trash_seconds: float = key(
        "For so long a deleted checkpoint can be restored: spillway trash restore.\n"
        "0: it is removed for good at once.",
        7 * 86_400.0,
        checks.at_least(0),
    )
    trash_short_seconds: float = key(
        "While the disk is too full although the evictor had its time, what has been in the trash\n"
        "for so long, and has bytes that only the disk has, is removed early.",
        3600.0,
        checks.at_least(0),
    )
    trash_max_bytes: int = key(
        "While the files in the trash have more than so many bytes, the oldest checkpoints there\n"
        "are removed early: those that their runs can do without, and that have been there for\n"
        "trash_short_seconds. 0: no limit.",
        0,
        checks.at_least(0),
    )
    rotation_hours: float = key(
        "What clients remove of the newest checkpoint of a run that the bucket has whole stays in\n"
        "the bucket until a newer one is there, or for so many hours. 0: it is removed at once.",
        72.0,
        checks.at_least(0),
    )


TLS_OFF = "off"
TLS_SELF_SIGNED = "self-signed"
TLS_FILES = "files"

_HASH = re.compile(r"\$argon2id\$v=19\$[a-z0-9=,]+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+")
_AS_PREPARED = "must be what spillway first-boot --prepare-token printed"


def token_id(value: str) -> str | None:
    """Return what is wrong with the id of a token that was made elsewhere, or None."""
    return None if re.fullmatch("[0-9a-f]{12}", value) else _AS_PREPARED


def token_hash(value: str) -> str | None:
    """Return what is wrong with the hash of a token that was made elsewhere, or None."""
    return None if _HASH.fullmatch(value) else _AS_PREPARED


@dataclass(frozen=True)
class AdminSettings:
    enabled: bool = key("Whether spillway up runs the admin API and its pages.", True)
    bind: str = key(
        "Address that they listen on. Any but a loopback address needs tls and a token.",
        "127.0.0.1",
        checks.not_empty,
    )
    port: int = key("TCP port of the admin API.", 8780, checks.between(1, 65535))
    tls: str = key(
        "off: plain HTTP, on loopback only. self-signed: the first start makes a certificate.\n"
        "files: certificate and key are given.",
        TLS_OFF,
        checks.one_of((TLS_OFF, TLS_SELF_SIGNED, TLS_FILES)),
    )
    certificate: Path = key(
        "Certificate chain (PEM), for tls = files or self-signed. A relative path is below\n"
        "data_dir.",
        Path("admin-certificate.pem"),
        lambda value: None if value.name else "must name a file",
    )
    private_key: Path = key(
        "Its key (PEM, mode 0600). A relative path is below data_dir.",
        Path("admin-key.pem"),
        lambda value: None if value.name else "must name a file",
    )
    session_hours: float = key(
        "A login of the pages ends after so many hours.", 12.0, checks.between(0.1, 720)
    )
    history_days: int = key(
        "For how many days the figures of the dashboard are kept, one sample a minute.",
        30,
        checks.between(1, 3650),
    )
    metrics_public: bool = key(
        "Serve /metrics without a token, if bind is a loopback address. Otherwise it needs one.",
        False,
    )
    busy_share: float = key(
        "While the machine is busy, requests take this share of one processor on average, so that\n"
        "a program that asks without a pause does not slow NFS. 1: no limit.",
        0.03,
        checks.between(0.01, 1),
    )
    audit_days: int = key(
        "For how many days the audit log is kept.", 365, checks.between(1, 36_500)
    )
    audit_export: str = key(
        "Where each entry of the audit log goes too, as a line of JSON: the absolute path of a\n"
        "file, or syslog (that of this machine). Empty: nowhere.",
        "",
        checks.audit_target,
    )


AUDIT_SYSLOG = checks.SYSLOG
DEFAULT_CONFIG = Path("/etc/spillway/spillway.toml")
CHECKSUM_AUTO = "auto"


@dataclass(frozen=True)
class GatewaySettings:
    name: str = key(
        "Name of this gateway for people: in the titles of pages, in metrics (spillway_info) and\n"
        "in webhooks. Empty: the name of the host.",
        "",
        checks.shown_name,
    )
    data_dir: Path = key(
        "Directory of everything this gateway keeps: file bytes, database, NFS recovery state,\n"
        "logs. Put it on the NVMe that takes the burst.",
        Path("/var/lib/spillway"),
        checks.absolute,
    )
    log_format: str = key(
        "Form of the lines that the processes log. human: text. json: an object a line, with the\n"
        "id of the request that it belongs to. The NFS server's own log is always text.",
        logs.HUMAN,
        checks.one_of(logs.FORMS),
    )


@dataclass(frozen=True)
class SpaceSettings:
    reserve_bytes: int = key(
        "Of the disk, kept from file data, so that names can always be changed and files deleted.",
        1024 * _MIB,
        checks.at_least(0),
    )
    dirty_limit_bytes: int = key(
        "How much may be on the disk that is not in the bucket. 0: only the disk's size counts.",
        0,
        checks.at_least(0),
    )
    slow_from: float = key(
        "Share of the disk or of the dirty limit from which on writers are slowed, fairly, down\n"
        "to what the drain makes free.",
        0.9,
        checks.between(0.1, 0.999),
    )
    full_wait_seconds: float = key(
        "With hardly any room left and none made free, writers wait for so long (NFS4ERR_DELAY)\n"
        "before they are told that the disk is full (ENOSPC).",
        30.0,
        checks.between(0, 3600),
    )
    client_weights: tuple[str, ...] = key(
        'While writers are slowed: shares of clients, like ["10.0.0.7=4"]. Others have 1.',
        (),
        checks.weights_of,
    )
    directory_weights: tuple[str, ...] = key(
        'The same for directories directly below the export, like ["production=10"].',
        (),
        checks.weights_of,
    )


LATE_FACTOR = 3
INCOMPLETE_PATTERNS = (
    *("*.tmp", "*.tmp.*[0-9]*", ".tmp*", "*.partial", "*.incomplete"),
    # Checkpoints that get another name when they are whole: Trainer, NeMo, Orbax, flax.
    *(f"tmp[-_]{word}*" for word in ("checkpoint", "ckpt", "step", "global_step", "iter", "epoch")),
    *("tmp[-_][0-9]*", "*-unfinished", "*.orbax-checkpoint-tmp*", "checkpoint_tmp"),
    *(f"tmp[-_]*.{end}" for end in ("pt", "ckpt", "bin", "safetensors")),
    # Files of TensorFlow and TensorStore.
    *("*.tempstate*", "checkpoint.tmp*", "*_temp/part-*", "*_temp_*/part-*", "*.__lock"),
    *(".nfs*", ".~tmp~", ".rsync-partial"),
    *("*.swp", ".*.sw[a-o]"),
    # Uploads to `rclone serve s3`; the second is the name of release 1.75.0.
    *(".rclone_temp_*", ".rclone_multipart_upload_*"),
)
"""The names that frameworks and tools use until a file or directory is whole. None matches the
directory of a run by chance, as ``tmp_trainer``, the default of Hugging Face."""


@dataclass(frozen=True)
class BucketSettings:
    name: str = key("Name of the bucket.", check=checks.not_empty)
    endpoint_url: str = key("URL of the S3 server. Empty: AWS.", "", checks.url, secret=True)
    region: str = key("Region, as the S3 server names it.", "us-east-1", checks.not_empty)
    prefix: str = key(
        "Objects are <prefix>/<path below the export>. Empty: the bucket's root.", "", checks.prefix
    )
    path_style: bool = key("Address the bucket as host/bucket (true) or bucket.host (false).", True)
    credentials_file: Path = key(
        "AWS credentials file (mode 0600), profile [default]. A relative path is below data_dir.",
        Path("credentials"),
        lambda value: None if value.name else "must name a file",
    )
    ca_bundle: str = key(
        "File (PEM) of the certificates that may vouch for an https endpoint. Empty: the usual.",
        "",
        checks.ca_bundle,
    )
    storage_class: str = key(
        "Storage class of uploaded objects, as the S3 server names it. Empty: the bucket's own.",
        "",
        checks.word,
    )
    encryption: str = key(
        "Encryption by the store: AES256 (SSE-S3), aws:kms or aws:kms:dsse (SSE-KMS).\n"
        "Empty: the bucket's own.",
        "",
        checks.encryption,
    )
    kms_key: str = key(
        "Key for encryption = aws:kms, as an id or ARN. Empty: the account's default key.", ""
    )
    checksum: str = key(
        "Checksum that goes with what is sent: md5, crc64nvme or crc32c. auto: the store is sent\n"
        "wrong ones once, and gets the first of crc64nvme, crc32c that it refuses, or else md5.",
        CHECKSUM_AUTO,
        checks.one_of((CHECKSUM_AUTO, "md5", "crc64nvme", "crc32c")),
    )
    connect_timeout_seconds: float = key(
        "Time-out of a connection to the bucket.", 5.0, checks.between(0.1, 300)
    )
    read_timeout_seconds: float = key(
        "Time-out of an answer from the bucket.", 60.0, checks.between(0.1, 3600)
    )

    @property
    def late_seconds(self) -> float:
        """The time for which a request that was given up may still be under way to the store."""
        return LATE_FACTOR * self.read_timeout_seconds


@dataclass(frozen=True)
class DrainSettings:
    settle_seconds: float = key(
        "A closed file is left alone for this long before it is drained, so that a save that\n"
        "writes, closes and renames costs no copy in the bucket.",
        5.0,
        checks.between(0, 86_400),
    )
    incomplete_patterns: tuple[str, ...] = key(
        "Names (files or directories, shell patterns) that are not drained while so named. A\n"
        'pattern with a slash is matched with the whole path below the export: "scratch/*".\n'
        "The directory of a run is drained whatever its name, once it has a checkpoint.",
        INCOMPLETE_PATTERNS,
        earlier="hold_patterns",
    )
    workers: int = key(
        "Files uploaded at the same time, of each kind: small ones and ones over 64 MiB, and of\n"
        "each those that a person or client waits for and all others.",
        4,
        checks.between(1, 64),
    )
    part_bytes: int = key(
        "Size of a multipart part; it grows by itself for files of over 10,000 parts.",
        16 * _MIB,
        checks.between(5 * _MIB, 5 * 1024 * _MIB),
    )
    part_concurrency: int = key(
        "Parts of one file in flight. Each takes about 1 MiB of memory.", 4, checks.between(1, 64)
    )
    processes: int = key(
        "Processes that send small files beside the drain's own. 0: the drain sends them itself.",
        2,
        checks.between(0, 64),
    )
    poll_seconds: float = key(
        "How often the drain looks for work when nothing wakes it.", 1.0, checks.between(0.05, 60)
    )
    retry_max_seconds: float = key(
        "Longest pause between tries while the bucket fails. The drain never stops trying.",
        30.0,
        checks.at_least(0.1),
    )
    lease_seconds: float = key(
        "A drain that is silent for this long loses its work to another one.",
        30.0,
        checks.between(1, 3600),
    )
    bytes_per_second: int = key(
        "Most bytes sent to the bucket in a second, on average. 0: no limit.", 0, checks.at_least(0)
    )
    requests_per_second: float = key(
        "Most requests to the bucket in a second, on average. 0: no limit.", 0.0, checks.at_least(0)
    )
    checksum_at_seal: bool = key(
        "Read every closed file once more, soon after its close, and refuse to upload bytes that\n"
        "changed on the disk since.",
        False,
    )
    max_open_age_seconds: float = key(
        "Files that stay open for writing (logs) are uploaded this often, each as it was at one\n"
        "moment. Their bytes are copied on the local disk for it. 0: only when they are closed.",
        0.0,
        checks.at_least(0),
    )
    schedule: tuple[str, ...] = key(
        "Other values of bytes_per_second by the time of day (local time of this machine), like\n"
        '["08:00-20:00 200MiB", "20:00-08:00 0"]. The first entry that fits counts.',
        (),
        checks.schedule,
    )


@dataclass(frozen=True)
class CacheSettings:
    evict_from: float = key(
        "Share of the disk from which on the bytes of files that the bucket has are evicted. At\n"
        "most 95 % of space.slow_from counts: writers are not slowed before anything is evicted.\n"
        "1.0: nothing is evicted because of the disk.",
        0.8,
        checks.between(0.05, 1.0),
    )
    evict_to: float = key(
        "Share of the disk down to which they are evicted, those that were not used for the\n"
        "longest time first. At most evict_from.",
        0.7,
        checks.between(0.0, 1.0),
    )
    limits: tuple[str, ...] = key(
        "How many bytes of clean files directories directly below the export may keep on the\n"
        'disk, like ["scratch=500GiB"]. Others have no limit of their own.',
        (),
        checks.sizes_of,
    )
    keep: tuple[str, ...] = key(
        "Files that are never evicted: shell patterns of the whole path below the export, like\n"
        '["production/*"].',
        (),
    )
    keep_seconds: float = key(
        "Files that were read or written in the last so many seconds are not evicted.",
        0.0,
        checks.at_least(0),
    )
    workers: int = key(
        "Requests for evicted bytes at the same time. Each takes about 1 MiB of memory.",
        16,
        checks.between(1, 256),
    )
    bytes_per_second: int = key(
        "Most bytes read from the bucket in a second, on average. 0: no limit.",
        0,
        checks.at_least(0),
    )
    requests_per_second: float = key(
        "Most requests for them in a second, on average. 0: no limit.", 0.0, checks.at_least(0)
    )
    read_ahead: bool = key(
        "Fetch the other evicted files of a directory too, as soon as two of them are read in the\n"
        "order of their names, as a job that restarts reads its shards.",
        True,
    )
    restore_tier: str = key(
        "How fast objects of an archive are asked back: Standard, Bulk or Expedited.",
        "Standard",
        checks.one_of(("Standard", "Bulk", "Expedited")),
    )
    restore_days: int = key("For how many days they stay readable.", 7, checks.between(1, 365))
    restore_wait_seconds: float = key(
        "How long a client waits for them (NFS4ERR_DELAY) before it is told EIO.",
        60.0,
        checks.at_least(0),
    )


LATE_SECONDS, LATE_INTERVALS = 300.0, 12
"""After the longer of these a person must know that the names in the bucket are old."""


@dataclass(frozen=True)
class RecoverySettings:
    names_in_bucket: bool = key(
        "Copy the names into the bucket too, below .spillway/names, so that the bucket alone\n"
        "brings everything back: spillway restore.",
        True,
    )
    names_seconds: float = key(
        "How many seconds of changes of names a loss of the gateway may cost, as long as the\n"
        "bucket answers.",
        5.0,
        checks.between(0.1, 3600),
    )
    keep_days: int = key(
        "For how many days what the copy had before is kept, so that a restore can name a time.",
        7,
        checks.between(0, 3650),
    )
    drill_days: float = key(
        "Every so many days the names in the bucket are restored into a scratch database and\n"
        "compared with the namespace: spillway restore --drill. 0: never.",
        7.0,
        checks.at_least(0),
    )

    @property
    def late_seconds(self) -> float:
        """The age from which on the names in the bucket are too old."""
        return max(LATE_SECONDS, LATE_INTERVALS * self.names_seconds)


@dataclass(frozen=True)
class ScrubSettings:
    bytes_per_second: int = key(
        "Most bytes that the scrub reads in a second, on average, from the disk and the bucket\n"
        "together. 0: no limit. It always rests for at least as long as it reads.",
        64 * _MIB,
        checks.at_least(0),
    )
    local_days: float = key(
        "Every so many days all files on the disk are read and compared with their checksums.\n"
        "What differs is fetched again from the bucket. 0: never.",
        30.0,
        checks.at_least(0),
    )
    objects_days: float = key(
        "Every so many days it is looked whether the bucket has all objects as they were\n"
        "recorded, without reading them. What it lacks is sent again from the disk. 0: never.",
        1.0,
        checks.at_least(0),
    )
    deep_days: float = key(
        "Every so many days the bytes of all objects are read from the bucket and compared with\n"
        "their checksums. The bucket may charge for each byte. 0: never.",
        0.0,
        checks.at_least(0),
    )


@dataclass(frozen=True)
class WebhooksSettings:
    receiver: tuple[Mapping[str, Any], ...] = key(
        "Who is told of alarms and checkpoints, by signed POSTs of JSON (Standard Webhooks). Each\n"
        'is a table of its own: [[webhooks.receiver]] with name = "chat", url = "https://host/path",\n'
        'and secret_file = "/etc/spillway/chat.secret". With events = ["checkpoint.durable",\n'
        '"alarm.*"] it gets these, otherwise all. The process of the admin API sends them.',
        (),
        checks.receivers,
        secret=True,
    )


@dataclass(frozen=True)
class NamespaceSettings:
    url: str = key(
        "Database of the namespace. Empty: SQLite in data_dir.",
        "",
        secret=True,
    )


@dataclass(frozen=True)
class Settings:
    """The whole configuration. Every path below data_dir is a property of this class."""

    gateway: GatewaySettings
    nfs: NfsSettings
    space: SpaceSettings
    bucket: BucketSettings
    drain: DrainSettings
    cache: CacheSettings
    scrub: ScrubSettings
    acknowledge: AcknowledgeSettings
    checkpoints: CheckpointsSettings
    retention: RetentionSettings
    recovery: RecoverySettings
    namespace: NamespaceSettings
    admin: AdminSettings
    webhooks: WebhooksSettings
    source: Path
    """The file that the settings were read from."""

    @property
    def name(self) -> str:
        """The name of the gateway for people."""
        return self.gateway.name or socket.gethostname()

    @property
    def data_dir(self) -> Path:
        return self.gateway.data_dir

    @property
    def database_url(self) -> str:
        return self.namespace.url or f"sqlite:///{self.data_dir / 'namespace.db'}"

    @property
    def admin_db(self) -> Path:
        """The admin API's own database: tokens, sessions, audit, jobs, history."""
        return self.data_dir / "admin.db"

    @property
    def webhooks_db(self) -> Path:
        """The events that receivers of webhooks have not taken yet."""
        return self.data_dir / "webhooks.db"

    @property
    def credentials_file(self) -> Path:
        return self.data_dir / self.bucket.credentials_file

    @property
    def ganesha_conf(self) -> Path:
        return self.data_dir / "ganesha.conf"

    @property
    def drain_ahead_ns(self) -> int:
        """The furthest ahead of now that ``drain_after_ns`` of a file can have been set."""
        reclaim_seconds = self.nfs.lease_seconds + self.nfs.grace_seconds
        return int(max(self.drain.settle_seconds, reclaim_seconds) * 1e9)

    @property
    def files_dir(self) -> Path:
        return self.data_dir / "files"

    @property
    def recovery_dir(self) -> Path:
        return self.data_dir / "recovery"

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "log"

    @property
    def run_dir(self) -> Path:
        return self.data_dir / "run"


SECTIONS: Mapping[str, type[Any]] = {
    "gateway": GatewaySettings,
    "nfs": NfsSettings,
    "space": SpaceSettings,
    "bucket": BucketSettings,
    "drain": DrainSettings,
    "cache": CacheSettings,
    "scrub": ScrubSettings,
    "acknowledge": AcknowledgeSettings,
    "checkpoints": CheckpointsSettings,
    "retention": RetentionSettings,
    "recovery": RecoverySettings,
    "namespace": NamespaceSettings,
    "admin": AdminSettings,
    "webhooks": WebhooksSettings,
}
