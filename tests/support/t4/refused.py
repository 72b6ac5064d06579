"""Shared by tests of refused: bucket_state."""

from __future__ import annotations

from tests.support.drainsite import Site


def bucket_state(site: Site) -> str:
    return str(site.report().get("bucket", {}).get("state"))
