"""The gateway of this machine, for commands, with what the admin API's own database has."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from functools import cached_property

from gateway import clock
from gateway.cli import checks
from gateway.control import local
from gateway.control.jobs import Jobs
from gateway.control.records import HistoryTable, RecordedCall
from gateway.control.tokens import Tokens
from gateway.db.engine import Database
from gateway.db.opening import explained


class LocalGateway(local.LocalGateway):
    """The gateway of this machine (gateway.control.gateway)."""

    # The imports of admin_api are here because every command imports this module.

    @cached_property
    def jobs(self) -> Jobs:
        from admin_api.jobs.rows import LocalJobs

        return LocalJobs(self._store)

    @cached_property
    def tokens(self) -> Tokens:
        from admin_api.access.tokens import LocalTokens

        return LocalTokens(self._store, self._author)

    def history(self, begin: datetime, end: datetime, step_seconds: int) -> HistoryTable:
        from admin_api import sampling

        from_ns, to_ns = (int(one.timestamp()) * clock.NS for one in (begin, end))
        with self._store.reading() as session:
            return sampling.model(session, from_ns, to_ns, step_seconds)

    def audit(
        self,
        most: int,
        who: str | None = None,
        path: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[RecordedCall]:
        from admin_api.store import audit

        with self._store.reading() as session:
            found = audit.listed(session, most=most, who=who, path=path, since=since, until=until)
            return [audit.model(one) for one in found]

    @cached_property
    def _store(self) -> Database:
        """The admin API's own database."""
        from admin_api.store.opening import open_store

        checks.require_data_dir(self._settings)
        store = self._stack.enter_context(closing(open_store(self._settings)))
        self._stack.enter_context(explained(store))
        return store
