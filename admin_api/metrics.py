"""Metrics for Prometheus, collected at each scrape.

Names end in their unit, counters in ``_total``. The functions ``of_...`` make metrics of facts and
are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from admin_api.access import tokens
from admin_api.dashboard import Figures
from admin_api.requests import GovernedGateway
from admin_api.tls import certificate_end_ns
from gateway.common import clock
from gateway.common.errors import ControlSocketClosed
from gateway.common.models import values_of
from gateway.config.settings import Settings, SpaceSettings
from gateway.rpc import statistics
from gateway.rpc.statistics import Histogram, Statistics
from gateway.service import alarms
from gateway.service.checkpoints import CatalogueStatus
from gateway.service.reports import DrainReport, HydratorReport, SpaceReport
from gateway.service.scrub import ScrubStatus
from gateway.service.status import Cache, Status

RUNS_MAX = 20
"""The runs that have labels: those with the most at risk. A gateway may have thousands."""
_COUNTERS = (
    ("drain", "uploads", "drain_uploads", "Files that were uploaded."),
    ("drain", "copies", "drain_copies", "Objects that followed a rename."),
    ("drain", "deletes", "drain_deletions", "Objects that were deleted."),
    ("drain", "retries", "drain_retries", "Jobs that failed and are tried again."),
    ("drain", "bytes", "drain_sent_bytes", "Bytes of bodies that the bucket took."),
    ("drain", "throttles", "drain_throttles", "Requests that were too many, or got no answer."),
    ("hydrator", "fetched_bytes", "hydrate_bytes", "Verified bytes that came from the bucket."),
    ("hydrator", "files_arrived", "hydrate_files", "Files that came back as a whole."),
    ("hydrator", "wrong_objects", "hydrate_wrong_objects", "Bytes that were wrong or not there."),
    ("hydrator", "retries", "hydrate_retries", "Requests that failed and are tried again."),
)
"""Process, name in its report, name of the metric, help."""
_SCRUBBED = {
    "files": "Files or objects that were compared,",
    "bytes": "Bytes that were read,",
    "found": "Files that were not what they should be,",
    "healed": "Those of them that are fetched or sent again,",
    "damaged": "Those of them that could not be healed,",
}
"""The figures of a pass of the scrub, with their help."""


def gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """Yield a gauge, unless its value is not known."""
    if value is not None:
        yield GaugeMetricFamily(f"spillway_{name}", text, value=value)


def gauges(name: str, text: str, label: str, values: Mapping[str, float | None]) -> Metric:
    """Return a gauge with a label."""
    family = GaugeMetricFamily(f"spillway_{name}", text, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], value)
    return family


def counter(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a counter."""
    family = CounterMetricFamily(f"spillway_{name}", text, labels=labels)
    for keys, value in values:
        family.add_metric(list(keys), value)
    return family


def of_status(status: Status) -> Iterator[Metric]:
    """Yield what the state of the gateway says."""
    processes, dirty, disk = status.processes, status.dirty, status.disk
    yield gauges(
        *("process_up", "Whether a process of the gateway runs.", "process"),
        {name: float(process.alive) for name, process in processes.items()},
    )
    restarts = [([name], process.restarts) for name, process in processes.items() if name != "up"]
    yield counter("process_restarts", "Restarts by spillway up.", ["process"], restarts)
    yield gauges(
        *("alarm", "The number of things that an alarm is about.", "alarm"),
        {name: float(count) for name, count in alarms.of(status).items()},
    )
    yield from gauge("healthy", "Whether no person must act.", status.healthy)
    yield from gauge("dirty_files", "Files that the bucket lacks.", dirty.files)
    yield from gauge("dirty_bytes", "Bytes that only this gateway has.", dirty.bytes)
    open_files = dirty.open_for_writing_files
    yield from gauge("open_files", "Dirty files that are open for writing.", open_files)
    age = 0.0 if dirty.oldest is None else dirty.oldest.age_seconds
    yield from gauge("oldest_dirty_seconds", "The age of the oldest dirty file.", age)
    yield from gauge("stuck_files", "Files that need a person.", status.stuck.files)
    yield gauges(
        *("queued_objects", "What the drain has to do about objects.", "work"),
        {name: float(count) for name, count in values_of(status.queued).items()},
    )
    unsettled = status.unsettled.objects
    yield from gauge("unsettled_objects", "Objects whose request got no answer.", unsettled)
    names = status.names
    text = "The bucket has the names as they were so long ago."
    yield from gauge("names_copied_age_seconds", text, names.age_seconds)
    yield from gauge("names_waiting", "Changes of names that the bucket lacks.", names.waiting)
    if (drill := status.drill).last is not None:
        yield from gauge(
            "drill_ok", "Whether the last drill brought everything back.", drill.last.is_ok
        )
        text = "Time since the last drill of a restore."
        yield from gauge("drill_age_seconds", text, drill.age_seconds)
    yield from gauge("disk_size_bytes", "Size of the disk.", disk.total_bytes)
    yield from gauge("disk_used_bytes", "Of the disk.", disk.used_bytes)
    yield from gauge("disk_free_bytes", "For users that are not root.", disk.free_bytes)
    text = "Local copies that the disk lost, and that were fetched again."
    yield counter("disk_lost_copies", text, [], [([], disk.lost_copies.files)])
    yield gauges(
        *("trash_bytes", "Bytes of the checkpoints in the trash.", "place"),
        {"disk": status.trash.local_bytes, "bucket": status.trash.bucket_bytes},
    )
    yield from gauge(
        *("held_checkpoints", "Removed by clients, held for a newer one."), status.trash.held
    )
    yield from gauge("held_bytes", "Bytes of them in the bucket.", status.trash.held_bytes)
    yield from _scrub(status.scrub)
    yield from _space(status.space)
    yield from _cache(status.cache)
    yield from _runs(status.catalogue)


def _scrub(scrub: ScrubStatus) -> Iterator[Metric]:
    present = {kind: passes.present for kind, passes in scrub.kinds.items()}
    last = {kind: passes.last for kind, passes in scrub.kinds.items()}
    ended = {kind: one.ended_ns for kind, one in last.items() if one is not None}
    yield gauges(
        *("scrub_last_pass_timestamp_seconds", "When the last whole pass ended.", "kind"),
        {str(kind): ended_ns / clock.NS for kind, ended_ns in ended.items() if ended_ns},
    )
    for name, passes in (("pass", present), ("last_pass", last)):
        which = "of the present pass" if passes is present else "of the last whole pass"
        for figure, text in _SCRUBBED.items():
            values = {
                str(kind): float(getattr(one, figure))
                for kind, one in passes.items()
                if one is not None
            }
            yield gauges(f"scrub_{name}_{figure}", f"{text} {which}.", "kind", values)


def _space(space: SpaceReport | None) -> Iterator[Metric]:
    level = None if space is None else space.level
    levels = {name: float(level == name) for name in ("room", "slow", "full")}
    yield gauges("space_level", "What the NFS server does with writers.", "level", levels)
    headroom = None if space is None else space.headroom_bytes
    yield from gauge("space_headroom_bytes", "Until nothing more is accepted.", headroom)
    limit = None if space is None else space.dirty_limit_bytes
    yield from gauge("space_dirty_limit_bytes", "0: only the size of the disk counts.", limit)


def _cache(cache: Cache) -> Iterator[Metric]:
    yield from gauge("evict_from_ratio", "Of the disk, as configured.", cache.evict_from)
    yield from gauge("evict_to_ratio", "Of the disk, as configured.", cache.evict_to)
    both = {"resident": cache.resident, "absent": cache.absent}
    places = {name: counts for name, counts in both.items() if counts is not None}
    files = {name: float(place.files) for name, place in places.items()}
    yield gauges("files", "On the disk, or only in the bucket.", "place", files)
    sizes = {name: float(place.bytes) for name, place in places.items()}
    yield gauges("file_bytes", "On the disk, or only in the bucket.", "place", sizes)


def _runs(catalogue: CatalogueStatus) -> Iterator[Metric]:
    states = {name: float(count) for name, count in catalogue.checkpoints.items()}
    yield gauges("checkpoints", "Checkpoints of the catalogue.", "state", states)
    yield from gauge("runs", "Runs of the catalogue.", catalogue.runs)
    at_risk = sorted(catalogue.at_risk, key=lambda run: -run.at_risk_seconds)
    yield from gauge("runs_at_risk", "Runs with work that is only here.", len(at_risk))
    worst = max((run.at_risk_seconds for run in at_risk), default=0.0)
    yield from gauge("rpo_seconds", "Of the run with the most at risk.", worst)
    shown = at_risk[:RUNS_MAX]
    text = f"Work that only this gateway has; the {RUNS_MAX} worst runs."
    seconds = {run.run: run.at_risk_seconds for run in shown}
    yield gauges("run_rpo_seconds", text, "run", seconds)
    sizes = {run.run: run.at_risk_bytes for run in shown}
    yield gauges("run_at_risk_bytes", text, "run", sizes)


def of_settings(space: SpaceSettings) -> Iterator[Metric]:
    """Yield the watermarks as they are configured."""
    yield from gauge("space_slow_from_ratio", "From here on writers are slowed.", space.slow_from)
    yield from gauge("space_reserve_bytes", "Kept from file data.", space.reserve_bytes)


def of_access(certificate_ns: int | None, token_ns: int | None) -> Iterator[Metric]:
    """Yield when what lets clients in ends.

    Args:
        certificate_ns: as ``certificate_end_ns`` of admin_api.tls returns it.
        token_ns: as ``next_end_ns`` of admin_api.access.tokens returns it.
    """
    for name, text, end_ns in (
        ("certificate", "When the certificate of the admin API ends.", certificate_ns),
        ("token", "When the first of the tokens ends that are in use.", token_ns),
    ):
        family = GaugeMetricFamily(f"spillway_{name}_expires_timestamp_seconds", text)
        if end_ns is not None:
            family.add_metric([], end_ns / clock.NS)
        yield family


def of_reports(drain: DrainReport | None, hydrator: HydratorReport | None) -> Iterator[Metric]:
    """Yield what the drain and the hydrator report. Their counts begin again when they start."""
    drain = drain or DrainReport(alive=False)
    fetching = hydrator or HydratorReport(alive=False)
    reports: dict[str, DrainReport | HydratorReport] = {"drain": drain, "hydrator": fetching}
    for process, key, name, text in _COUNTERS:
        value = reports[process].counters.get(key)
        yield counter(name, text, [], [] if value is None else [([], value)])
    requests = [
        ([process, status], count)
        for process, report in reports.items()
        for status, count in report.answers.items()
    ]
    text = "Requests to the bucket by the status of the answer; none: no answer came."
    yield counter("s3_requests", text, ["process", "status"], requests)
    states = ("unknown", "reachable", "unreachable", "refused")
    state = drain.bucket.state if drain.alive else "unknown"
    gauges_by_state = {name: float(name == state) for name in states}
    yield gauges("bucket_state", "Of the bucket, as the drain sees it.", "state", gauges_by_state)
    for value, name, text in (
        (drain.failing, "drain_failing_jobs", "Jobs that wait for their next try."),
        (drain.waiting_files, "drain_waiting_files", "Files that could be uploaded now."),
        (drain.requests_at_once, "drain_requests_at_once", "How many may be under way now."),
    ):
        yield from gauge(name, text, value if drain.alive else None)
    text = "Files that cannot be fetched."
    yield from gauge("hydrate_damaged_files", text, fetching.damaged_files)
    text = "Files that clients wait for."
    yield from gauge("hydrate_waiting_files", text, fetching.waiting_files)
    evicted = fetching.evictor.get("evicted_bytes", 0)
    text = "Bytes that the evictor freed."
    yield counter("evicted_bytes", text, [], [] if hydrator is None else [([], evicted)])


def of_statistics(found: Statistics) -> Iterator[Metric]:
    """Yield what the NFS server counted. Its counts begin again when it starts."""
    text = "Operations that were answered for good, and the time that they took."
    latency = HistogramMetricFamily("spillway_nfs_operation_seconds", text, labels=["operation"])
    for kind, operation in found.operations.items():
        _add(latency, [kind], operation.latency)
    yield latency
    yield counter(
        *("nfs_delayed", "Operations that were told to come again later.", ["operation"]),
        [([kind], operation.delayed) for kind, operation in found.operations.items()],
    )
    yield counter(
        *("nfs_errors", "Operations by the error of their answer.", ["operation", "error"]),
        [
            ([kind, name], count)
            for kind, operation in found.operations.items()
            for name, count in operation.errors.items()
        ],
    )
    yield counter(
        *("nfs_bytes", "Bytes that clients read or wrote.", ["direction"]),
        [(["in"], found.operations["write"].bytes), (["out"], found.operations["read"].bytes)],
    )
    sizes = HistogramMetricFamily("spillway_commit_changes", "Changes in a transaction of names.")
    _add(sizes, [], found.commit_sizes)
    times = HistogramMetricFamily("spillway_commit_seconds", "The time that COMMIT of names took.")
    _add(times, [], found.commit_seconds)
    yield from (sizes, times)


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    bounds = [*(repr(float(bound)) for bound in histogram.bounds), "+Inf"]
    cumulated = list(zip(bounds, accumulate(histogram.buckets), strict=True))
    family.add_metric(labels, buckets=cumulated, sum_value=histogram.sum)


def of_gateway(status: Status, settings: Settings) -> Iterator[Metric]:
    """Yield what is known of a gateway without its admin API."""
    facts = {"name": settings.name, "version": version("spillway")}
    yield InfoMetricFamily("spillway", "The gateway, always 1.", value=facts)
    yield from of_status(status)
    yield from of_settings(settings.space)
    yield from of_reports(status.drain, status.cache.hydrator)
    if status.processes["ganesha"].alive:
        try:
            server_statistics = statistics.read(settings)
        except ControlSocketClosed:
            return  # it starts or stops: process_up tells
        yield from of_statistics(server_statistics)


class _Families(Collector):
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families


def text_of(families: Iterator[Metric]) -> bytes:
    """Return metrics in the text format of Prometheus. Raises what making them raises."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


def _scraped(gateway: GovernedGateway, figures: Figures) -> Iterator[Metric]:
    with gateway.store.reading() as session:
        token_ns = tokens.next_end_ns(session)
    yield from of_access(certificate_end_ns(gateway.settings), token_ns)
    yield from of_gateway(figures.counted(), gateway.settings)


def text(gateway: GovernedGateway, figures: Figures) -> bytes:
    """Return the metrics in the text format of Prometheus. Raises UserError, TryAgain."""
    return text_of(_scraped(gateway, figures))
