"""Finds the error of TLS behind the errors of HTTP clients."""

from __future__ import annotations

import ssl


def error_behind(exc: BaseException) -> ssl.SSLError | None:
    """Return the error of TLS that led to an error, or None if another one did."""
    cause: BaseException | None = exc
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def why_untrusted(error: ssl.SSLCertVerificationError) -> str:
    """Return in a few words why a certificate is not trusted, as OpenSSL says it."""
    return error.verify_message or str(error)
