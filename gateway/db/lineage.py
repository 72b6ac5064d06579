"""Where a database comes from. One of another lineage than before may be an older copy."""

from __future__ import annotations

from typing import NamedTuple


class Lineage(NamedTuple):
    """What a database keeps until it is restored, copied or failed over."""

    origin: str
    """Another one after a copy or a backup took the place of the database."""
    branch: int
    """Grows with each failover to a standby of the same origin, which may lack the last changes.
    A restore of a whole cluster of PostgreSQL to an earlier moment looks the same."""
