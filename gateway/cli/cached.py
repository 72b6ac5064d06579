"""What `spillway status` says of the local disk as a cache: files on it and not, the hydrator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway import clock
from gateway.cli.retention import moment
from gateway.control.cached import Cache, damaged, thawing
from gateway.text import shown
from gateway.units import duration, size

DAMAGED_SHOWN = THAWING_SHOWN = 5
REMEDY = "make the uploaded version of its object readable again, or delete the file"


def lines(cache: Cache) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line, for a person. The admin API may not have counted yet."""
    here, away = cache.resident, cache.absent
    text = "not counted yet"
    if here is not None:
        text = f"{here.files:,} files, {size(here.bytes)}"
    if away is not None and away.files:
        text += f"; only in the bucket: {away.files:,} files, {size(away.bytes)}"
    yield "on the disk", text
    yield "evicting", _evicting(cache)
    yield "fetching", _fetching(cache.hydrator)
    found = damaged(cache)
    for one in found[:DAMAGED_SHOWN]:
        what, why = shown(str(one.get("path"))), shown(str(one.get("reason")))
        yield "damaged", f"{what}: {why}: {REMEDY}"
    if len(found) > DAMAGED_SHOWN:
        yield "damaged", f"and {len(found) - DAMAGED_SHOWN} more: spillway status --json"
    found = thawing(cache)
    for one in found[:THAWING_SHOWN]:
        yield "thawing", _thawing(one)
    if len(found) > THAWING_SHOWN:
        yield "thawing", f"and {len(found) - THAWING_SHOWN} more: spillway status --json"
    for name in cache.dropped_readers:
        yield "journal", f"reader {shown(name)} fell behind and must read everything again"


def _evicting(cache: Cache) -> str:
    now = cache.evicting
    if now is None:
        return "nothing because of the disk"
    text = f"from {_percent(now.above)} of the disk down to {_percent(now.down_to)}"
    if now.is_early:
        text += (
            f" (not from {_percent(cache.evict_from)}: {size(now.saved_bytes)} were written "
            "within ten minutes in the last day, and are kept free)"
        )
    return f"{text}; {_percent(now.used)} are used"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _thawing(one: Mapping[str, Any]) -> str:
    what, tier = shown(str(one.get("path"))), shown(str(one.get("tier")))
    since_ns, expected_ns, expires_ns = (
        int(one.get(name) or 0) for name in ("since_ns", "expected_ns", "expires_ns")
    )
    if expires_ns:
        return f"{what}: back from the archive until {moment(expires_ns)}, and not fetched yet"
    age_seconds = max(0, clock.now_ns() - since_ns) / clock.NS
    return (
        f"{what}: asked back {duration(age_seconds)} ago ({tier}), expected until "
        f"{moment(expected_ns)}; reads of it end with EIO until then"
    )


def _fetching(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return "the hydrator has not reported yet"
    if not report["alive"]:
        return "stopped"
    texts = [f"{report['files']} files" if report.get("files") else "no file"]
    if report.get("thawing_files"):
        texts.append(f"{report['thawing_files']} objects are asked back from the archive")
    if report.get("has_room") is False:
        texts.append("only what clients wait for: the disk is short of room")
    bucket, counters = report.get("bucket"), report.get("counters")
    if isinstance(bucket, dict) and bucket.get("error"):
        texts.append(shown(str(bucket["error"])))
    if isinstance(counters, dict):
        texts += [f"{shown(str(name)).replace('_', ' ')} {n}" for name, n in counters.items() if n]
    return ", ".join(texts)
