"""Context of a promotion's steps: the database, the bucket and the control socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from gateway.catalogue.manifest_store import ManifestStore
from gateway.common.errors import SpillwayError, UserError
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.drain.context import Context, DrainView
from gateway.lifecycle.promotion import store
from gateway.lifecycle.promotion.store import PromotionRow
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import RpcRequest

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from gateway.objectstore.holds import HoldingStore

OpenControl = Callable[[], AbstractContextManager[ControlSocket]]


class PromotionEnded(SpillwayError):
    """A person ended the promotion meanwhile."""


class PromotionContext:
    """The database, the bucket and the control socket of one gateway.

    Args:
        open_control: connects to the control socket.
    """

    def __init__(self, settings: Settings, database: Database, open_control: OpenControl) -> None:
        self.settings = settings
        self._database = database
        self._open_control = open_control
        self.manifests = ManifestStore(settings, database)

    @cached_property
    def store(self) -> HoldingStore:
        """The bucket. It is opened when there is something to copy."""
        # The imports are here because boto3 and awscrt take a second to import.
        from gateway.objectstore import negotiation
        from gateway.objectstore.checksums import ChecksumKind
        from gateway.objectstore.holds import HoldingStore
        from gateway.objectstore.ownership import guarded

        with self.reading() as session:
            kind = negotiation.known(session, self.settings.bucket) or ChecksumKind.MD5
        store = HoldingStore(self.settings, kind=kind)
        return guarded(store, self.settings, self._database)

    def reload(self) -> None:
        """Read the credentials again at the next request."""
        self.store.reload()
        self.manifests.reload()

    @cached_property
    def _context(self) -> Context:
        return Context(self.settings, self._database, self.store)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a read transaction. Raises TryAgain."""
        with self._database.reading() as session:
            yield session

    @contextmanager
    def writing(self, of: PromotionRow) -> Iterator[DrainView]:
        """Open a write transaction about a promotion. It is durable on return.

        Raises Ended if the promotion has another state by now, TryAgain.
        """
        with self._context.writing() as view:
            now = store.one_named(view.session, of.name)
            if now is None or (now.top, now.state) != (of.top, of.state):
                raise PromotionEnded(f"{of.name} is not {of.state} any more")
            yield view

    def change(self, now: PromotionRow, before: PromotionRow) -> PromotionRow:
        """Write what changed of a promotion. Returns it as it is now. Raises Ended, TryAgain."""
        if now != before:
            with self.writing(before) as view:
                store.change(view.session, now)
        return now

    def ask(self, requests: Sequence[RpcRequest], fine: Sequence[int] = (0,)) -> None:
        """Have requests answered over the control socket.

        Raises UserError, ControlSocketClosed, OSError.

        Args:
            fine: the answers that are no errors.
        """
        with self._open_control() as control:
            for request, answer in zip(requests, control.run(requests), strict=True):
                if answer.errno not in fine:
                    raise UserError(
                        f"the NFS server answers {request.op.name} with errno {answer.errno}: it "
                        "is tried again"
                    )
