"""The settings of the admin API. They are a section of ``gateway.settings``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gateway import checks
from gateway.declare import key as _key

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
    enabled: bool = _key("Whether spillway up runs the admin API and its pages.", True)
    bind: str = _key(
        "Address that they listen on. Any but a loopback address needs tls and a token.",
        "127.0.0.1",
        checks.not_empty,
    )
    port: int = _key("TCP port of the admin API.", 8780, checks.between(1, 65535))
    tls: str = _key(
        "off: plain HTTP, on loopback only. self-signed: the first start makes a certificate.\n"
        "files: certificate and key are given.",
        TLS_OFF,
        checks.one_of((TLS_OFF, TLS_SELF_SIGNED, TLS_FILES)),
    )
    certificate: Path = _key(
        "Certificate chain (PEM), for tls = files or self-signed. A relative path is below\n"
        "data_dir.",
        Path("admin-certificate.pem"),
        lambda value: None if value.name else "must name a file",
    )
    private_key: Path = _key(
        "Its key (PEM, mode 0600). A relative path is below data_dir.",
        Path("admin-key.pem"),
        lambda value: None if value.name else "must name a file",
    )
    session_hours: float = _key(
        "A login of the pages ends after so many hours.", 12.0, checks.between(0.1, 720)
    )
    history_days: int = _key(
        "For how many days the figures of the dashboard are kept, one sample a minute.",
        30,
        checks.between(1, 3650),
    )
    metrics_public: bool = _key(
        "Serve /metrics without a token, if bind is a loopback address. Otherwise it needs one.",
        False,
    )
    busy_share: float = _key(
        "While the machine is busy, requests take this share of one processor on average, so that\n"
        "a program that asks without a pause does not slow NFS. 1: no limit.",
        0.03,
        checks.between(0.01, 1),
    )
    audit_days: int = _key(
        "For how many days the audit log is kept.", 365, checks.between(1, 36_500)
    )
