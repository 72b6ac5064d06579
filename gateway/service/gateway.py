"""Protocol of a gateway as commands see it: this machine's, or another one by its admin API.

They are gateway.cli.local and gateway.cli.client; a command does not see which. Results are models
(gateway.common.models). Paths and names in them have the form of gateway.common.text.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Protocol

from gateway.rpc.statistics import Statistics
from gateway.service.bucket import BucketActions
from gateway.service.checkpoints import Checkpoints
from gateway.service.clients import ClientList, Opens
from gateway.service.configuration import Configuration
from gateway.service.exports import Exports
from gateway.service.files import Files
from gateway.service.jobs import Jobs
from gateway.service.pins import Pins
from gateway.service.policies import Policies
from gateway.service.promotions import Promotions
from gateway.service.queue import Queue
from gateway.service.records import Event, HistoryTable, NameChange, RecordedCall
from gateway.service.status import Status
from gateway.service.tokens import Tokens
from gateway.service.trash import TrashBin
from gateway.service.usage import UsageFacts


class Gateway(Protocol):
    """A gateway, by its nouns; a noun that is only read is a method. All methods raise UserError,
    NotPossible, StoreError."""

    def status(self) -> Status:
        """Return the state of the gateway. The bucket was asked, and files were counted."""

    def statistics(self) -> Statistics:
        """Return what the NFS server was asked since its start."""

    def clients(self) -> ClientList:
        """Return who mounts."""

    def opens(self, path: str) -> Opens:
        """Return who has a file open, or what is below a directory. Args: path, of the command
        line. Raises NotThere, NotPossible."""

    def usage(self, path: str) -> UsageFacts:
        """Return what a directory has with all below it, and what owners have. Args: path, of the
        command line. Raises NotThere, NotPossible."""

    def configuration(self) -> Configuration:
        """Return the keys as they are in force. What may be a password is masked."""

    def history(self, begin: datetime, end: datetime, step_seconds: int) -> HistoryTable:
        """Return the figures of the dashboard by time."""

    def audit(
        self,
        most: int,
        who: str | None = None,
        path: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[RecordedCall]:
        """Return who changed what and who was refused, the newest first.

        Args:
            most: calls at most.
            who: name or id of a token. None: all.
            path: with which the paths of the calls begin.
            since: the first moment.
            until: the moment after the last.
        """

    def names_log(
        self,
        most: int,
        path: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[NameChange]:
        """Return which client changed which names, the newest first. Args: as of ``audit``, but
        path, of the command line, to which it was done, or above it, or below."""

    def events(self) -> Generator[Event]:
        """Yield what changes, as it happens, without an end; first the state now."""

    @property
    def bucket(self) -> BucketActions: ...

    @property
    def queue(self) -> Queue: ...

    @property
    def pins(self) -> Pins: ...

    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def exports(self) -> Exports: ...

    @property
    def files(self) -> Files: ...

    @property
    def jobs(self) -> Jobs: ...

    @property
    def policies(self) -> Policies: ...

    @property
    def promotions(self) -> Promotions: ...

    @property
    def tokens(self) -> Tokens: ...

    @property
    def trash(self) -> TrashBin: ...
