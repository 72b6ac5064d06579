"""Application of the admin API, put together from its routers: ``ROUTERS`` has all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from admin_api import openapi, problems
from admin_api.access import authentication
from admin_api.audit import Replayed
from admin_api.cpu_budget import ApartThreads, CpuBudgetMiddleware, MachineLoad, Share
from admin_api.dashboard import Figures
from admin_api.events import CatalogueWatcher, Hub
from admin_api.jobs import work
from admin_api.jobs.rows import JobRow, model
from admin_api.jobs.runner import JobThreads
from admin_api.listener import StrangerLimitMiddleware
from admin_api.middleware import CallMiddleware
from admin_api.pages import site
from admin_api.requests import known_query, open_gateway
from admin_api.routes import (
    checkpoints,
    exports,
    files,
    jobs,
    policies,
    promotions,
    records,
    status,
    tokens,
    trash,
)
from gateway.config.settings import Settings

PREFIX = "/api/v1"
ROUTERS = (
    status.health_router,
    tokens.session_router,
    tokens.router,
    records.router,
    openapi.router,
    checkpoints.router,
    promotions.router,
    trash.router,
    checkpoints.runs_router,
    files.pins_router,
    policies.router,
    policies.retention_router,
    status.router,
    status.recovery_router,
    status.statistics_router,
    status.clients_router,
    status.usage_router,
    files.router,
    files.directories_router,
    exports.router,
    files.queue_router,
    status.bucket_router,
    jobs.router,
    records.configuration_router,
    records.history_router,
    jobs.events_router,
)
KINDS = (*work.FILE_KINDS, *work.TRASH_KINDS)
"""Every kind of job."""


def create_app(settings: Settings) -> FastAPI:
    """Return the application that governs one gateway. Raises UserError."""
    app = FastAPI(
        title="Spillway admin API",
        version=version("spillway"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses=problems.describe(422),
        generate_unique_id_function=openapi.operation_id,
        lifespan=_serving,
    )
    gateway = app.state.gateway = open_gateway(settings)
    app.state.figures = Figures(settings, gateway.database)
    looker = CatalogueWatcher(settings, gateway.database)
    hub = app.state.hub = Hub(looker.look, lambda: ("status", app.state.figures.summary()))

    def publish(row: JobRow) -> None:
        hub.publish("job", model(row))

    app.state.runner = JobThreads(settings, gateway.database, gateway.store, KINDS, publish)
    problems.install(app, authentication.require_sender)
    app.add_exception_handler(Replayed, _again)
    probes = [f"{PREFIX}{status.health_router.prefix}/"]
    if status.is_public(settings):
        probes.append(status.PATH)
    share = settings.admin.busy_share
    if share < 1:
        yields = Share(share, MachineLoad().is_busy)
        app.add_middleware(CpuBudgetMiddleware, share=yields, exempt=probes)
    app.add_middleware(StrangerLimitMiddleware, gateway=gateway, exempt=probes)
    app.add_middleware(CallMiddleware, gateway=gateway)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX, dependencies=[Depends(known_query)])
    app.include_router(status.router_of(settings))
    openapi.complete(app)
    app.state.pages = site.add(app, PREFIX)
    return app


@asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[None]:
    """Run jobs and take events as long as requests are served."""
    runner: JobThreads = app.state.runner
    hub: Hub = app.state.hub
    app.state.threads = ApartThreads()
    hub.open()
    await run_in_threadpool(runner.start)
    try:
        yield
    finally:
        hub.close()
        await run_in_threadpool(runner.stop)


async def _again(_request: Request, exc: Exception) -> Response:
    """Answer a repetition as the first call was answered."""
    assert isinstance(exc, Replayed)
    return Response(exc.body, exc.status, {**exc.headers, "Idempotency-Replayed": "true"})
