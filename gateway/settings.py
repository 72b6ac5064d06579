"""The settings of a gateway: every key of the configuration, documented where it is declared.

``gateway.config`` reads the settings from a file. It renders the file of ``spillway init`` from
the same declarations, so that file and program cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway import checks, logs
from gateway.acknowledge import AcknowledgeSettings
from gateway.adminsettings import AdminSettings
from gateway.checkpointsettings import CheckpointsSettings, RetentionSettings
from gateway.declare import key as _key
from gateway.nfssettings import NfsSettings

DEFAULT_CONFIG = Path("/etc/spillway/spillway.toml")
CHECKSUM_AUTO = "auto"
_MIB = 1024 * 1024


@dataclass(frozen=True)
class GatewaySettings:
    data_dir: Path = _key(
        "Directory of everything this gateway keeps: file bytes, database, NFS recovery state,\n"
        "logs. Put it on the NVMe that takes the burst.",
        Path("/var/lib/spillway"),
        checks.absolute,
    )
    log_format: str = _key(
        "Form of the lines that the processes log. human: text. json: an object a line, with the\n"
        "id of the request that it belongs to. The NFS server's own log is always text.",
        logs.HUMAN,
        checks.one_of(logs.FORMS),
    )


@dataclass(frozen=True)
class SpaceSettings:
    reserve_bytes: int = _key(
        "Of the disk, kept from file data, so that names can always be changed and files deleted.",
        1024 * _MIB,
        checks.at_least(0),
    )
    dirty_limit_bytes: int = _key(
        "How much may be on the disk that is not in the bucket. 0: only the disk's size counts.",
        0,
        checks.at_least(0),
    )
    slow_from: float = _key(
        "Share of the disk or of the dirty limit from which on writers are slowed, fairly, down\n"
        "to what the drain makes free.",
        0.9,
        checks.between(0.1, 0.999),
    )
    full_wait_seconds: float = _key(
        "With hardly any room left and none made free, writers wait for so long (NFS4ERR_DELAY)\n"
        "before they are told that the disk is full (ENOSPC).",
        30.0,
        checks.between(0, 3600),
    )
    client_weights: tuple[str, ...] = _key(
        'While writers are slowed: shares of clients, like ["10.0.0.7=4"]. Others have 1.',
        (),
        checks.weights_of,
    )
    directory_weights: tuple[str, ...] = _key(
        'The same for directories directly below the export, like ["production=10"].',
        (),
        checks.weights_of,
    )


LATE_FACTOR = 3
HOLD_PATTERNS = (
    *("*.tmp", "*.tmp.*[0-9]*", ".tmp*", "*.partial", "*.incomplete"),
    # Checkpoints that get another name when they are whole: Trainer, NeMo, Orbax, flax.
    *(f"tmp[-_]{what}*" for what in ("checkpoint", "ckpt", "step", "global_step", "iter", "epoch")),
    *("tmp[-_][0-9]*", "*-unfinished", "*.orbax-checkpoint-tmp*", "checkpoint_tmp"),
    *(f"tmp[-_]*.{end}" for end in ("pt", "ckpt", "bin", "safetensors")),
    # Files of TensorFlow and TensorStore.
    *("*.tempstate*", "checkpoint.tmp*", "*_temp/part-*", "*_temp_*/part-*", "*.__lock"),
    *(".nfs*", ".~tmp~", ".rsync-partial"),
    *("*.swp", ".*.sw[a-o]"),
)
"""The names that frameworks and tools use until a file or directory is whole. None matches the
directory of a run by chance, as ``tmp_trainer``, the default of Hugging Face."""


@dataclass(frozen=True)
class BucketSettings:
    name: str = _key("Name of the bucket.", check=checks.not_empty)
    endpoint_url: str = _key("URL of the S3 server. Empty: AWS.", "", checks.url, secret=True)
    region: str = _key("Region, as the S3 server names it.", "us-east-1", checks.not_empty)
    prefix: str = _key(
        "Objects are <prefix>/<path below the export>. Empty: the bucket's root.", "", checks.prefix
    )
    path_style: bool = _key(
        "Address the bucket as host/bucket (true) or bucket.host (false).", True
    )
    credentials_file: Path = _key(
        "AWS credentials file (mode 0600), profile [default]. A relative path is below data_dir.",
        Path("credentials"),
        lambda value: None if value.name else "must name a file",
    )
    ca_bundle: str = _key(
        "File (PEM) of the certificates that may vouch for an https endpoint. Empty: the usual.",
        "",
        checks.ca_bundle,
    )
    storage_class: str = _key(
        "Storage class of uploaded objects, as the S3 server names it. Empty: the bucket's own.",
        "",
        checks.word,
    )
    encryption: str = _key(
        "Encryption by the store: AES256 (SSE-S3), aws:kms or aws:kms:dsse (SSE-KMS).\n"
        "Empty: the bucket's own.",
        "",
        checks.encryption,
    )
    kms_key: str = _key(
        "Key for encryption = aws:kms, as an id or ARN. Empty: the account's default key.", ""
    )
    checksum: str = _key(
        "Checksum that goes with what is sent: md5, crc64nvme or crc32c. auto: the store is sent\n"
        "wrong ones once, and gets the first of crc64nvme, crc32c that it refuses, or else md5.",
        CHECKSUM_AUTO,
        checks.one_of((CHECKSUM_AUTO, "md5", "crc64nvme", "crc32c")),
    )
    connect_timeout_seconds: float = _key(
        "Time-out of a connection to the bucket.", 5.0, checks.between(0.1, 300)
    )
    read_timeout_seconds: float = _key(
        "Time-out of an answer from the bucket.", 60.0, checks.between(0.1, 3600)
    )

    @property
    def late_seconds(self) -> float:
        """The time for which a request that was given up may still be under way to the store."""
        return LATE_FACTOR * self.read_timeout_seconds


@dataclass(frozen=True)
class DrainSettings:
    settle_seconds: float = _key(
        "A closed file is left alone for this long before it is drained, so that a save that\n"
        "writes, closes and renames costs no copy in the bucket.",
        5.0,
        checks.between(0, 86_400),
    )
    hold_patterns: tuple[str, ...] = _key(
        "Names (files or directories, shell patterns) that are not drained while so named. A\n"
        'pattern with a slash is matched with the whole path below the export: "scratch/*".\n'
        "The directory of a run is drained whatever its name, once it has a checkpoint.",
        HOLD_PATTERNS,
    )
    workers: int = _key(
        "Files uploaded at the same time, of each kind: small ones and ones over 64 MiB, and of\n"
        "each those that a person or client waits for and all others.",
        4,
        checks.between(1, 64),
    )
    part_bytes: int = _key(
        "Size of a multipart part; it grows by itself for files of over 10,000 parts.",
        16 * _MIB,
        checks.between(5 * _MIB, 5 * 1024 * _MIB),
    )
    part_concurrency: int = _key(
        "Parts of one file in flight. Each takes about 1 MiB of memory.", 4, checks.between(1, 64)
    )
    processes: int = _key(
        "Processes that send small files beside the drain's own. 0: the drain sends them itself.",
        2,
        checks.between(0, 64),
    )
    poll_seconds: float = _key(
        "How often the drain looks for work when nothing wakes it.", 1.0, checks.between(0.05, 60)
    )
    retry_max_seconds: float = _key(
        "Longest pause between tries while the bucket fails. The drain never stops trying.",
        30.0,
        checks.at_least(0.1),
    )
    lease_seconds: float = _key(
        "A drain that is silent for this long loses its work to another one.",
        30.0,
        checks.between(1, 3600),
    )
    bytes_per_second: int = _key(
        "Most bytes sent to the bucket in a second, on average. 0: no limit.", 0, checks.at_least(0)
    )
    requests_per_second: float = _key(
        "Most requests to the bucket in a second, on average. 0: no limit.", 0.0, checks.at_least(0)
    )
    checksum_at_seal: bool = _key(
        "Read every closed file once more, soon after its close, and refuse to upload bytes that\n"
        "changed on the disk since.",
        False,
    )
    max_open_age_seconds: float = _key(
        "Files that stay open for writing (logs) are uploaded this often, each as it was at one\n"
        "moment. Their bytes are copied on the local disk for it. 0: only when they are closed.",
        0.0,
        checks.at_least(0),
    )
    schedule: tuple[str, ...] = _key(
        "Other values of bytes_per_second by the time of day (local time of this machine), like\n"
        '["08:00-20:00 200MiB", "20:00-08:00 0"]. The first entry that fits counts.',
        (),
        checks.schedule,
    )


@dataclass(frozen=True)
class CacheSettings:
    evict_from: float = _key(
        "Share of the disk from which on the bytes of files that the bucket has are evicted. At\n"
        "most 95 % of space.slow_from counts: writers are not slowed before anything is evicted.\n"
        "1.0: nothing is evicted because of the disk.",
        0.8,
        checks.between(0.05, 1.0),
    )
    evict_to: float = _key(
        "Share of the disk down to which they are evicted, those that were not used for the\n"
        "longest time first. At most evict_from.",
        0.7,
        checks.between(0.0, 1.0),
    )
    limits: tuple[str, ...] = _key(
        "How many bytes of clean files directories directly below the export may keep on the\n"
        'disk, like ["scratch=500GiB"]. Others have no limit of their own.',
        (),
        checks.sizes_of,
    )
    keep: tuple[str, ...] = _key(
        "Files that are never evicted: shell patterns of the whole path below the export, like\n"
        '["production/*"].',
        (),
    )
    keep_seconds: float = _key(
        "Files that were read or written in the last so many seconds are not evicted.",
        0.0,
        checks.at_least(0),
    )
    workers: int = _key(
        "Requests for evicted bytes at the same time. Each takes about 1 MiB of memory.",
        16,
        checks.between(1, 256),
    )
    bytes_per_second: int = _key(
        "Most bytes read from the bucket in a second, on average. 0: no limit.",
        0,
        checks.at_least(0),
    )
    requests_per_second: float = _key(
        "Most requests for them in a second, on average. 0: no limit.", 0.0, checks.at_least(0)
    )
    read_ahead: bool = _key(
        "Fetch the other evicted files of a directory too, as soon as two of them are read in the\n"
        "order of their names, as a job that restarts reads its shards.",
        True,
    )
    restore_tier: str = _key(
        "How fast objects of an archive are asked back: Standard, Bulk or Expedited.",
        "Standard",
        checks.one_of(("Standard", "Bulk", "Expedited")),
    )
    restore_days: int = _key("For how many days they stay readable.", 7, checks.between(1, 365))
    restore_wait_seconds: float = _key(
        "How long a client waits for them (NFS4ERR_DELAY) before it is told EIO.",
        60.0,
        checks.at_least(0),
    )


@dataclass(frozen=True)
class NamespaceSettings:
    url: str = _key(
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
    acknowledge: AcknowledgeSettings
    checkpoints: CheckpointsSettings
    retention: RetentionSettings
    namespace: NamespaceSettings
    admin: AdminSettings
    source: Path
    """The file that the settings were read from."""

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
    "acknowledge": AcknowledgeSettings,
    "checkpoints": CheckpointsSettings,
    "retention": RetentionSettings,
    "namespace": NamespaceSettings,
    "admin": AdminSettings,
}
