"""Collects the metrics of one scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from admin_api.figures import Figures
from admin_api.gateway import Gateway
from admin_api.metrics import families
from admin_api.store import tokens
from admin_api.tls import certificate_end_ns
from gateway.door import statistics
from gateway.errors import DoorClosed


class _Scrape(Collector):
    def __init__(self, gateway: Gateway, figures: Figures) -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        status = self._figures.counted()
        yield from families.of_status(status)
        yield from families.of_settings(self._settings.space)
        with self._gateway.store.reading() as session:
            token_ns = tokens.next_end_ns(session)
        yield from families.of_access(certificate_end_ns(self._settings), token_ns)
        yield from families.of_reports(status.drain, status.cache.hydrator)
        if status.processes["ganesha"].alive:
            try:
                found = statistics.read(self._settings)
            except DoorClosed:
                return  # it starts or stops: process_up tells
            yield from families.of_statistics(found)


def text(gateway: Gateway, figures: Figures) -> bytes:
    """Return the metrics in the text format of Prometheus. Raises UserError, TryAgain."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(gateway, figures))
    return generate_latest(registry)
