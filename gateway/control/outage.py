"""Says that the bucket cannot be used now, for commands that wait for it."""

from __future__ import annotations

from gateway import state
from gateway.settings import Settings
from gateway.text import shown


def of_drain(settings: Settings) -> str | None:
    """Return what the drain says of the bucket, or None if it is well or no drain runs."""
    report = state.read(settings, state.DRAIN)
    return said(report if state.alive(report) else None)


def said(report: dict[str, object] | None) -> str | None:
    """Return the outage that a report of the drain or the hydrator tells of, or None."""
    bucket = (report or {}).get("bucket")
    if not isinstance(bucket, dict) or bucket.get("state") not in ("unreachable", "refused"):
        return None
    return (
        f"the bucket is {bucket['state']}: {shown(str(bucket.get('error') or 'no reason known'))}"
    )
