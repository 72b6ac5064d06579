"""Certificates for servers on loopback."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certify(directory: Path) -> None:
    """Make a CA (ca.pem) and a certificate of it for 127.0.0.1 (server.pem, server.key)."""

    def openssl(name: str, subject: str, *options: str) -> None:
        made = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={subject}"]
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        command = ["openssl", "req", "-x509", *curve, *made, *options]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)

    # Python 3.13 takes no CA without it (RFC 5280, section 4.2.1.3).
    openssl("ca", "Test CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(
        "server",
        "127.0.0.1",
        *("-CA", "ca.pem", "-CAkey", "ca.key"),
        *("-addext", "subjectAltName=IP:127.0.0.1"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
    )
