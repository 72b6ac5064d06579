"""Choice of what a restore uses of the copy of the names: a base, and the log after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.common.errors import UserError
from gateway.objectstore.objects import ListedObject
from gateway.recovery.names_store import BaseDocument, LogSegment, NamesStore, Series
from gateway.recovery.segments import BadSegment


@dataclass(frozen=True)
class NamesSource:
    """A base and its log, as the bucket has them."""

    series: str
    base: BaseDocument
    parts: Sequence[ListedObject]
    log: Sequence[LogSegment]
    """In the order in which the segments are used."""
    gap: str | None
    """Why the log is not used to its end, for people. None: it is."""
    problems: Sequence[str]
    """What is wrong with newer bases, for people. They are not used."""


def choose(names: NamesStore, at_ns: int | None = None) -> NamesSource:
    """Choose the newest base that is whole, and the log after it.

    Args:
        names: the copy in the bucket.
        at_ns: the latest time that is wanted (default: now).

    Returns:
        The source. Its log may go beyond that time: the heads of the segments tell.

    Raises:
        StoreError: the bucket cannot be read.
        UserError: it has no base, or none of that time.
    """
    problems: list[str] = []
    is_any = False
    for series in reversed(names.series()):
        for listed in sorted(series.documents, reverse=True):
            is_any = True
            try:
                base = names.document(listed)
                if at_ns is not None and base.ended_ns > at_ns:
                    continue
                parts = names.parts_of(series, base)
            except BadSegment as exc:
                problems.append(str(exc))
                continue
            log, gap = _after(series, base)
            if gap is not None and _end(log, base) < base.upto:
                # Without that much of the log, the base has names of several moments.
                problems.append(f"the base {listed.key} is not used: {gap}")
                continue
            return NamesSource(series.name, base, parts, log, gap, problems)
    why = f": {problems[0]}" if problems else ""
    if at_ns is not None and is_any:
        raise UserError(f"the bucket has no copy of the names from that time or before{why}")
    raise UserError(
        f"the bucket has no copy of the names below this prefix{why}: check bucket.name and "
        "bucket.prefix"
    )


def _after(series: Series, base: BaseDocument) -> tuple[list[LogSegment], str | None]:
    """Return the segments that continue a base without a gap, and why they end early."""
    log: list[LogSegment] = []
    end = base.after
    for segment in series.log:
        if segment.upto < base.after:
            continue
        if segment.after > end:
            return log, (
                f"the log lacks what comes between {end} and {segment.after} "
                f"({segment.listed.key} is the next segment)"
            )
        log.append(segment)
        end = max(end, segment.upto)
    if end < base.upto:
        return log, f"the log ends at {end}, {base.upto} is needed"
    return log, None


def _end(log: Sequence[LogSegment], base: BaseDocument) -> int:
    return max((segment.upto for segment in log), default=base.after)


def later(source: NamesSource, names: NamesStore) -> Iterator[LogSegment]:
    """Yield what the log of a source has since it was chosen.

    Args:
        source: what was chosen.
        names: the copy in the bucket.

    Raises:
        StoreError: the bucket cannot be read.
    """
    known = {segment.listed.key for segment in source.log}
    for series in names.series():
        if series.name == source.series:
            log, _gap = _after(series, source.base)
            yield from (segment for segment in log if segment.listed.key not in known)
