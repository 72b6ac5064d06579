"""A gateway whose drain asks the store which checksum it verifies, and what it recorded."""

from __future__ import annotations

from tests.support.drainsite import Site


def configured(site: Site, checksum: str) -> Site:
    site.configure("bucket", checksum=checksum)
    return site


def remembered(site: Site) -> list[str]:
    return [kind for (kind,) in site.rows("SELECT checksum FROM endpoint")]
