"""Certificate of the admin API, made here or given as files, and renewed without a restart."""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.common import clock, files
from gateway.common.errors import UserError
from gateway.config.settings import TLS_OFF, TLS_SELF_SIGNED, Settings

log = logging.getLogger("admin")

VALID = timedelta(days=825)
"""Some browsers refuse certificates that are valid for longer."""
RENEWED_BEFORE = timedelta(days=30)
EARLIER = timedelta(days=1)
"""The clocks of clients may be behind."""
AUTHORITY = "admin-authority.pem"
"""What signs the certificates that are made here, with its key, beside them."""
AUTHORITY_VALID = timedelta(days=20 * 365)
ORGANIZATION = "Spillway admin API"
"""The name in certificates that were made here. A certificate of another is never overwritten."""


def paths(settings: Settings) -> tuple[Path, Path]:
    """Return where the certificate and its key are."""
    admin = settings.admin
    return settings.data_dir / admin.certificate, settings.data_dir / admin.private_key


class Certificate:
    """The certificate that is used now. Raises UserError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: object = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        """The context of all connections. New ones get a renewed certificate."""
        self.refresh()

    def refresh(self) -> None:
        """Make a certificate if it is missing or ends soon, and load one that was changed. Raises
        UserError: then the one before stays in use."""
        settings = self._settings
        certificate, key = paths(settings)
        try:
            if settings.admin.tls == TLS_SELF_SIGNED and not _is_good(certificate, key):
                _make(settings.admin.bind, certificate, key)
            seen = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (certificate, key)]
            if seen == self._seen:
                return
            if key.stat().st_mode & 0o077:
                log.warning("others can read %s: chmod 600 %s", key, key)
            # Without a password OpenSSL would ask the terminal for one.
            self.context.load_cert_chain(certificate, key, password=lambda: "")
        except ssl.SSLError as exc:
            raise UserError(
                f"cannot use {certificate} with {key}: {exc.reason or exc}: admin.certificate must "
                "be a PEM chain, and admin.private_key its key, without a password"
            ) from None
        except OSError as exc:
            raise UserError(
                f"cannot use {exc.filename or certificate}: {exc.strerror}: check "
                f"admin.certificate and admin.private_key in {settings.source}"
            ) from None
        self._seen = seen


def certificate_of(settings: Settings) -> Certificate | None:
    """Return the certificate to serve with, or None without TLS. Raises UserError."""
    return None if settings.admin.tls == TLS_OFF else Certificate(settings)


def certificate_end_ns(settings: Settings) -> int | None:
    """Return when the certificate ends, or None: there is no TLS, or no certificate."""
    if settings.admin.tls == TLS_OFF:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(paths(settings)[0].read_bytes())
    except (OSError, ValueError):
        return None
    return int(certificate.not_valid_after_utc.timestamp()) * clock.NS


def _is_good(path: Path, key_path: Path) -> bool:
    """Return whether a certificate was made here, has this key and lasts. Raises UserError if it
    was not made here, OSError."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        return False
    except ValueError:
        certificate = None
    names = (
        []
        if certificate is None
        else certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    )
    if certificate is None or [name.value for name in names] != [ORGANIZATION]:
        raise UserError(
            f'{path} was not made by Spillway: set admin.tls = "files", or move it away'
        )
    with suppress(FileNotFoundError, ValueError, TypeError):
        key = load_pem_private_key(key_path.read_bytes(), None)
        now = datetime.fromtimestamp(clock.now_ns() / clock.NS, UTC)
        lasts = certificate.not_valid_after_utc - now > RENEWED_BEFORE
        return lasts and key.public_key() == certificate.public_key()
    return False


def _make(bind: str, path: Path, key_path: Path) -> None:
    """Make a key and a certificate, signed by the authority of this gateway. Raises OSError."""
    authority, authority_key = _authority(path)
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    made = (
        _builder(_name(socket.gethostname()), authority.subject, key, VALID)
        .add_extension(x509.SubjectAlternativeName(_names(bind)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(signer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    # A crash between the two leaves a pair that does not fit, and the next start makes another.
    files.replace(key_path, _pem(key), 0o600)
    chain = made.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM)
    files.replace(path, chain.decode(), 0o644)
    log.info(
        "made the certificate %s, fingerprint %s", path, made.fingerprint(hashes.SHA256()).hex(":")
    )


def _authority(path: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return what signs the certificates that are made here, with its key. It stays: a client that
    has the certificate trusts the renewed one too. Raises OSError."""
    place = path.with_name(AUTHORITY)
    with suppress(FileNotFoundError, ValueError, TypeError):
        content = place.read_bytes()
        certificate, kept = (
            x509.load_pem_x509_certificate(content),
            load_pem_private_key(content, None),
        )
        now = datetime.fromtimestamp(clock.now_ns() / clock.NS, UTC)
        if (
            isinstance(kept, ec.EllipticCurvePrivateKey)
            and certificate.not_valid_after_utc - now > VALID
        ):
            return certificate, kept
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{socket.gethostname()} authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder(name, name, key, AUTHORITY_VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    files.replace(place, made.public_bytes(Encoding.PEM).decode() + _pem(key), 0o600)
    return made, key


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common[:64]),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(clock.now_ns() // clock.NS, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _names(bind: str) -> list[x509.GeneralName]:
    """Return the names and addresses by which clients call this machine."""
    hosts = {"localhost", socket.gethostname(), socket.getfqdn()}
    addresses = {"127.0.0.1", "::1"}
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # The address of a route outwards. Nothing is sent.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            addresses.add(probe.getsockname()[0].partition("%")[0])
    try:
        if not ipaddress.ip_address(bind).is_unspecified:
            addresses.add(bind)
    except ValueError:
        hosts.add(bind)
    valid = sorted(host for host in hosts if host and host.isascii())
    return [
        *(x509.DNSName(host) for host in valid),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)),
    ]
