"""State of the bucket as the drain reports it, for tests of refusals."""

from __future__ import annotations

from tests.support.drainsite import Site


def bucket_state(site: Site) -> str:
    return str(site.report().get("bucket", {}).get("state"))
