"""``python -m admin_api --config PATH``: serves the admin API and pages until SIGTERM, SIGINT.

It stops nothing else when it cannot start: NFS, the drain and the other processes do not need it.
"""

from __future__ import annotations

import gc
import logging
import resource
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from admin_api import cpu_budget
from admin_api.app import create_app
from admin_api.audit_export import AuditExport, keep_exporting, receiver_of
from admin_api.dashboard import Figures, Sampler
from admin_api.listener import CONNECTIONS_MAX, Connections, Listener, listen, require_safe, url_of
from admin_api.requests import GovernedGateway
from admin_api.store import prune
from admin_api.tls import Certificate, certificate_of
from gateway.common import clock
from gateway.common.errors import NamespaceError, UserError
from gateway.common.process import ReportFile
from gateway.config import datadir
from gateway.processes.daemon import SWITCH_SECONDS, Daemon
from gateway.service import deliveries

log = logging.getLogger("admin")

LOCK = "admin.lock"
STOP_SECONDS = 4.5
REQUESTS_STOP_SECONDS = 2
"""The time that requests have to end, those that stream events among them."""
HEAD_BYTES_MAX = 256 * 1024
"""The longest parameter (admin_api.requests), each byte of its UTF-8 written as %XX."""
BEAT_SECONDS = 1
TEND_SECONDS = 60.0
PRUNE_SECONDS = 3600.0


def main() -> int:
    """Run the process. Returns the exit status: 0 if it was told to stop, 1 if a person must act
    first."""
    sys.setswitchinterval(SWITCH_SECONDS)
    process = Daemon("admin", __doc__, STOP_SECONDS, module="admin_api")
    # A shell allows 1,024, which a crowd of connections would use up before they give way.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        settings = process.configuration()
        datadir.require_ours(settings)
        # A second one would take the first one's calls for interrupted.
        process.alone(settings, LOCK)
        app = create_app(settings)
        gateway: GovernedGateway = app.state.gateway
        require_safe(gateway)
        certificate = certificate_of(settings)
        connections = Connections()
        listener = Listener(listen(settings), connections)
        # What the start made stays. Every full collection would look at all of it.
        gc.freeze()
    except (UserError, NamespaceError) as exc:
        print(exc, file=sys.stderr)
        return 1
    beats = LoopCounter()
    server = uvicorn.Server(_config(app, certificate, connections, beats))
    process.on_stop = lambda: setattr(server, "should_exit", True)
    sampler = Sampler(settings, gateway.store, app.state.figures.gathered)
    tending = (gateway, sampler, certificate, process.stop)
    threading.Thread(target=_tend, args=tending, daemon=True).start()
    _deliver(gateway, app.state.figures, process.stop)

    def serve() -> None:
        # Without a share, a client that asks without a pause would go before NFS.
        if settings.admin.busy_share < 1:
            cpu_budget.first()
        server.run(sockets=[listener])

    # Its own thread: in the main thread uvicorn would take the signals.
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    log.info("listening on %s", url_of(settings))
    process.watched(settings, lambda: beats.count)
    if process.stop.is_set():
        server.should_exit = True  # the signal came before there was a server
    thread.join()
    if not process.stop.is_set():
        print("the server of the admin API ended by itself: see the lines above", file=sys.stderr)
        return 1
    return process.end()


def _deliver(gateway: GovernedGateway, figures: Figures, stop: threading.Event) -> None:
    """Start to deliver the audit log and events to those that the configuration names."""
    settings = gateway.settings
    reports: list[Callable[[], dict[str, Any]]] = []
    if settings.admin.audit_export:
        export = AuditExport(settings, gateway.store, receiver_of(settings))
        threading.Thread(target=keep_exporting, args=(export, stop), daemon=True).start()
        reports.append(lambda: {deliveries.AUDIT: export.report()})
    if settings.webhooks.receiver:
        # The import is here because httpx takes a tenth of a second.
        from admin_api.webhook_sender import webhooks_of

        try:
            webhooks = webhooks_of(settings, gateway.database, figures.gathered, stop)
        except (UserError, sqlite3.Error) as exc:
            # The pages and the API are there without them.
            log.error("no event is sent to webhooks: %s", exc)
        else:
            webhooks.start()
            reports.append(webhooks.report)
    if reports:
        ReportFile(
            settings.run_dir / datadir.DELIVERIES,
            lambda: {name: facts for report in reports for name, facts in report().items()},
        )


class LoopCounter:
    """Counts the rounds of the loop that serves requests."""

    def __init__(self) -> None:
        self.count = 0

    async def beat(self) -> None:
        self.count += 1


def _config(
    app: Any, certificate: Certificate | None, connections: Connections, beats: LoopCounter
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=connections.protocol(),
        loop="asyncio",
        # Lines come from this package, with the id of the request. Uvicorn's own name no user.
        log_config=None,
        access_log=False,
        server_header=False,
        # Else a client could name any address as its own.
        proxy_headers=False,
        # Connections that wait for their clients have given way long before.
        limit_concurrency=2 * CONNECTIONS_MAX,
        # Else the answer to a long path would be that of the server, which is no problem detail.
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        callback_notify=beats.beat,
        timeout_notify=BEAT_SECONDS,
        timeout_graceful_shutdown=REQUESTS_STOP_SECONDS,
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
    )


def _tend(
    gateway: GovernedGateway,
    sampler: Sampler,
    certificate: Certificate | None,
    stop: threading.Event,
) -> None:
    """Take samples, delete old rows and renew the certificate until stop is set."""
    prune_at = 0.0
    while True:
        try:
            if certificate is not None:
                certificate.refresh()
            if (now := clock.monotonic_seconds()) >= prune_at:
                prune(gateway.store, gateway.settings)
                prune_at = now + PRUNE_SECONDS
            sampler.take()
        except UserError as exc:
            log.error("%s", exc)
        except Exception:
            # What is not foreseen must not end this: certificate and rows would grow old.
            log.exception("unexpected")
        if stop.wait(TEND_SECONDS):
            return


if __name__ == "__main__":
    sys.exit(main())
