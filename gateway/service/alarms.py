"""Alarms of a gateway by name, for metrics, the history and lists. Pure."""

from __future__ import annotations

from gateway.service.reports import ReportedBucket
from gateway.service.status import Status

PROCESS_DOWN = "process_down"
BUCKET_UNREACHABLE = "bucket_unreachable"
BUCKET_REFUSED = "bucket_refused"
BUCKET_TAKEN = "bucket_taken"
DISK_SLOW = "disk_slow"
DISK_FULL = "disk_full"
DISK_FAILING = "disk_failing"
DESCRIPTORS_GONE = "descriptors_gone"
FILES_STUCK = "files_stuck"
FILES_DAMAGED = "files_damaged"
NAMES_HELD = "names_held"
RPO_EXCEEDED = "rpo_exceeded"
DELETIONS_WAIT = "deletions_wait"
CLOCK_AHEAD = "clock_ahead"
PROMOTIONS_FAILED = "promotions_failed"
CONNECTIONS_NEAR_LIMIT = "connections_near_limit"
THREADS_NEAR_LIMIT = "threads_near_limit"
DESCRIPTORS_NEAR_LIMIT = "descriptors_near_limit"
CLIENTS_SHARE_NAME = "clients_share_name"


def of(status: Status) -> dict[str, int]:
    """Return for each alarm how many things it is about; 0: there is no alarm."""
    drain = status.drain
    bucket = drain.bucket if drain is not None and drain.alive else ReportedBucket()
    level = None if status.space is None else status.space.level
    lost = status.disk.lost_copies
    return {
        PROCESS_DOWN: sum(not one.alive for one in status.processes.values()),
        BUCKET_UNREACHABLE: int(bucket.state == "unreachable"),
        BUCKET_REFUSED: int(bucket.state == "refused" and not bucket.taken),
        BUCKET_TAKEN: int(bucket.taken),
        DISK_SLOW: int(level == "slow"),
        DISK_FULL: int(level == "full"),
        DISK_FAILING: lost.files if lost.is_recent else 0,
        DESCRIPTORS_GONE: int(not status.disk.has_descriptors),
        FILES_STUCK: status.stuck.files,
        FILES_DAMAGED: len(status.cache.damaged),
        NAMES_HELD: status.held.files,
        RPO_EXCEEDED: status.catalogue.alarms,
        DELETIONS_WAIT: 0 if status.retention.asked is None else status.retention.asked.checkpoints,
        CLOCK_AHEAD: int(status.retention.clock_ahead_seconds > 0),
        PROMOTIONS_FAILED: status.promotions["failed"],
        CONNECTIONS_NEAR_LIMIT: int(status.connections.near),
        THREADS_NEAR_LIMIT: int(status.threads.near),
        DESCRIPTORS_NEAR_LIMIT: int(status.descriptors.near),
        CLIENTS_SHARE_NAME: len(status.shared_names),
    }
