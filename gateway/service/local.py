"""Gateway of this machine for commands, with what the service knows of it (gateway.cli.local)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Self

from gateway.common.errors import ControlSocketClosed, UserError
from gateway.config.settings import Settings
from gateway.db import schema
from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.namespace.lookup import Browser
from gateway.rpc import statistics
from gateway.rpc.control import ControlSocket
from gateway.rpc.control import opened as opened_control
from gateway.rpc.statistics import Statistics
from gateway.service import clients, configuration, records, status, usage
from gateway.service.bucket import LocalBucket
from gateway.service.checkpoints import LocalCheckpoints
from gateway.service.clients import ClientList, Opens
from gateway.service.configuration import Configuration
from gateway.service.exports import LocalExports
from gateway.service.files import LocalFiles
from gateway.service.pins import LocalPins
from gateway.service.policies import LocalPolicies
from gateway.service.promotions import LocalPromotions
from gateway.service.queue import LocalQueue
from gateway.service.records import Event, NameChange
from gateway.service.status import Status
from gateway.service.trash import LocalTrashBin
from gateway.service.usage import UsageFacts


class LocalGateway:
    """The gateway of this machine (gateway.service.gateway). A context manager: what a noun needs
    is opened when a command first uses it, and closed at the end.

    Args:
        author: the person who gives the command, for records.
    """

    def __init__(self, settings: Settings, author: str) -> None:
        self._settings = settings
        self._author = author
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # An error of the database becomes one that says what to do (gateway.db.schema).
        self._stack.__exit__(kind, error, traceback)

    def status(self) -> Status:
        return status.gather(self._settings)

    def statistics(self) -> Statistics:
        with _answered():
            return statistics.read(self._settings)

    def clients(self) -> ClientList:
        with _answered():
            return clients.gather(self._settings)

    def opens(self, path: str) -> Opens:
        with _answered():
            return clients.opens(self._settings, path)

    def usage(self, path: str) -> UsageFacts:
        return usage.gather(self._settings, path)

    def configuration(self) -> Configuration:
        return configuration.model(self._settings)

    def names_log(
        self,
        most: int,
        path: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[NameChange]:
        return records.listed(self._settings, most, path, since, until)

    def events(self) -> Generator[Event]:
        raise UserError(
            "events are told by the admin API: "
            "spillway --gateway http://127.0.0.1:8780 events --follow"
        )

    @cached_property
    def bucket(self) -> LocalBucket:
        return LocalBucket(self._settings)

    @cached_property
    def queue(self) -> LocalQueue:
        # The import is here because boto3 takes half a second to import.
        from gateway.objectstore.s3 import S3Store

        return LocalQueue(Context(self._settings, self._database, S3Store(self._settings)))

    @cached_property
    def pins(self) -> LocalPins:
        return LocalPins(self._settings, self._database, self._browser, self._author)

    @cached_property
    def files(self) -> LocalFiles:
        return LocalFiles(
            self._settings, self._database, self._browser, self._author, lambda: self._control
        )

    @cached_property
    def checkpoints(self) -> LocalCheckpoints:
        return LocalCheckpoints(self._settings, self._database, self._browser, self._author)

    @cached_property
    def trash(self) -> LocalTrashBin:
        return LocalTrashBin(self._settings, self._database, self._author)

    @cached_property
    def promotions(self) -> LocalPromotions:
        return LocalPromotions(self._settings, self._database, self._browser, self._author)

    @cached_property
    def exports(self) -> LocalExports:
        return LocalExports(self._settings, self._database, self._author)

    @cached_property
    def policies(self) -> LocalPolicies:
        return LocalPolicies(self._settings, self._database, self._author)

    @cached_property
    def _database(self) -> Database:
        return self._stack.enter_context(schema.opened(self._settings.database_url))

    @cached_property
    def _browser(self) -> Browser:
        _ = self._database  # a schema that is not current is refused
        return self._stack.enter_context(Browser(self._settings))

    @cached_property
    def _control(self) -> ControlSocket:
        return self._stack.enter_context(opened_control(self._settings))


@contextmanager
def _answered() -> Iterator[None]:
    """Say what to do when no NFS server answers in the body. Raises UserError."""
    try:
        yield
    except ControlSocketClosed as exc:
        raise UserError(f"{exc}: look at spillway status") from None
