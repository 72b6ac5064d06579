"""Says whether clients wait for cold reads, by the report of the hydrator."""

from __future__ import annotations

from gateway import clock, state
from gateway.settings import Settings

OLD_NS = 10 * clock.NS
"""A hydrator that fetches writes a report each second. One that writes none waits for the bucket or
for an archive, and the drain takes nothing away from it."""


def are_wanted(settings: Settings) -> bool:
    """Return whether clients wait for bytes that the hydrator fetches now.

    A report that is missing, old, or of a process that has ended says nothing: then they do not.
    """
    try:
        report = state.read(settings, state.CACHE)
    except OSError:
        return False
    if report is None or not state.alive(report):
        return False
    waiting, written_ns = report.get("waiting_files"), report.get("time_ns")
    if not isinstance(waiting, int) or not isinstance(written_ns, int):
        return False
    return waiting > 0 and 0 <= clock.now_ns() - written_ns <= OLD_NS
