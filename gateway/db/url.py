"""URL of a database, and its lineage: a database of another lineage may be an older copy."""

from __future__ import annotations

import re
from typing import NamedTuple

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from gateway.common.errors import ConfigError

FORMS = (
    "must be sqlite:///<absolute path> or postgresql://user@host/name "
    "(in a password write @ as %40, / as %2F)"
)
_SEVERAL = re.compile(r"(postgresql[^:]*://)([^@/?]*@)?([^@/?]*,[^@/?]*)(/[^?]*)\??(.*)")


def parse(url: str) -> URL:
    """Return the parts of a URL. Raises ConfigError, which does not quote the URL."""
    try:
        parsed = make_url(with_hosts(url))
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigError("namespace.url", None, FORMS) from None
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database and parsed.database.startswith("/"):
        return parsed
    # With a second @, the parsed host or database name has a part of the password.
    if kind == "postgresql" and parsed.database and "@" not in f"{parsed.host}{parsed.database}":
        return parsed
    raise ConfigError("namespace.url", None, FORMS)


def safe(parsed: URL) -> str:
    """Return a URL as it may be shown: without password and options, which may hold a password."""
    return parsed.set(query={}).render_as_string(hide_password=True)


def with_hosts(url: str) -> str:
    """Return a URL of several hosts, each perhaps with a port, in the form of SQLAlchemy."""
    if (match := _SEVERAL.fullmatch(url)) is None:
        return url
    scheme, user, hosts, name, options = match.groups()
    places = [host if ":" in host else f"{host}:5432" for host in hosts.split(",")]
    query = "&".join([*(f"host={place}" for place in places), *filter(None, [options])])
    return f"{scheme}{user or ''}{name}?{query}"


class Lineage(NamedTuple):
    """What a database keeps until it is restored, copied or failed over."""

    origin: str
    """Another one after a copy or a backup took the place of the database."""
    branch: int
    """Grows with each failover to a standby of the same origin, which may lack the last changes.
    A restore of a whole cluster of PostgreSQL to an earlier moment looks the same."""
